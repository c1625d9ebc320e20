// The fused linear layer: one product forward, two backward (side by side in a captured step), and
// where cuBLASLt has an epilogue for it no other kernel (epilogues.h).
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/side_stream.h"
#include "kernels/cuda/tuner.h"

namespace lockstep::kernels::cuda {
namespace {

// y [batch, out] = activation(x [batch, in] * (weight [out, in])^T + bias)
Product forward_product(const LinearForward& call) {
  Product product;
  product.operation = "linear";
  product.a = call.x;
  product.b = call.weight;
  product.transpose_b = Transpose::yes;
  product.c = call.y;
  product.finish = Product::Finish::forward;
  product.activation = call.activation;
  product.bias = call.bias;
  product.preactivation = call.preactivation;
  product.mask = call.mask;
  if (call.mask.data != nullptr) product.mask_use = Product::Mask::written;
  return product;
}

// grad_weight [out, in] = (grad [batch, out])^T * x [batch, in], and grad's column sums
Product weight_product(const LinearBackward& call, const ConstMatrixView& grad) {
  Product product;
  product.operation = "linear backward";
  product.a = grad;
  product.transpose_a = Transpose::yes;
  product.b = call.x;
  product.c = call.grad_weight;
  product.write = call.write_parameters;
  if (call.grad_bias.data != nullptr) {
    product.finish = Product::Finish::bias_gradient;
    product.column_sums = call.grad_bias;
  }
  return product;
}

// grad_x [batch, in] = grad [batch, out] * weight [out, in], times input_activation'
Product input_product(const LinearBackward& call, const ConstMatrixView& grad) {
  Product product;
  product.operation = "linear backward";
  product.a = grad;
  product.b = call.weight;
  product.c = call.grad_x;
  if (call.input_activation != Activation::none) {
    product.finish = Product::Finish::gradient;
    product.activation = call.input_activation;
    product.saved = needs_preactivation(call.input_activation) ? call.input_preactivation : call.x;
    product.saved_mask = call.input_mask;
  }
  return product;
}

}  // namespace

std::size_t CudaBackend::linear_mask_bytes(Stream& stream, const LinearForward& call) {
  checks::linear_forward(call);
  require_floating("linear", call.x.dtype);
  const bool is_candidate = call.activation == Activation::relu && call.x.dtype == DType::float32 &&
                            call.preactivation.data == nullptr && call.y.num_elements() > 0 &&
                            call.x.cols > 0;
  if (!is_candidate) return 0;
  Product product = forward_product(call);
  product.mask = {};
  product.mask_use = Product::Mask::wanted;
  const cublasLtEpilogue_t epilogue = plan_for(stream, product).epilogue;
  const bool has_mask =
      epilogue == CUBLASLT_EPILOGUE_RELU_AUX || epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  return has_mask ? relu_mask_bytes(call.y.rows, call.y.cols) : 0;
}

void CudaBackend::linear_forward(Stream& stream, const LinearForward& call) {
  checks::linear_forward(call);
  require_floating("linear", call.x.dtype);
  run(stream, forward_product(call));
}

void CudaBackend::linear_backward(Stream& stream, const LinearBackward& call) {
  checks::linear_backward(call);
  require_floating("linear backward", call.x.dtype);
  ConstMatrixView grad = call.grad_y;  // of the value before the activation
  if (call.activation != Activation::none) {
    const bool before = needs_preactivation(call.activation);
    finish_backward(stream, call.activation, before ? call.preactivation : call.y, call.grad_y,
                    call.scratch);
    grad = call.scratch;
  }
  const bool has_weight = call.grad_weight.data != nullptr;
  const bool has_input = call.grad_x.data != nullptr;
  // Neither product needs the other.
  Stream* const side = has_weight && has_input ? side_stream(stream) : nullptr;
  if (side != nullptr) {
    side->wait(stream.record());
    run(*side, input_product(call, grad));
  }
  // With no rows or no columns of x there is no product that could sum the bias gradient along.
  const bool has_product = has_weight && call.x.num_elements() > 0;
  if (has_weight) {
    LinearBackward without_bias = call;
    without_bias.grad_bias = {};
    run(stream, weight_product(has_product ? call : without_bias, grad));
  }
  if (call.grad_bias.data != nullptr && !has_product) {
    sum_rows(stream, grad, call.grad_bias, call.write_parameters);
  }
  if (side != nullptr) {
    stream.wait(side->record());
  } else if (has_input) {
    run(stream, input_product(call, grad));
  }
}

}  // namespace lockstep::kernels::cuda
