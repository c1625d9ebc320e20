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
  if (call.grad_bias.num_elements > 0) {
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
    if (call.input_grad_bias.num_elements > 0) {
      product.finish = Product::Finish::gradient_sums;
      product.column_sums = call.input_grad_bias;
    }
  }
  return product;
}

// Of the value before the layer's own activation.
ConstMatrixView inner_gradient(const LinearBackward& call) {
  return call.activation == Activation::none ? call.grad_y : ConstMatrixView(call.scratch);
}

// grad_x, with its column sums where they are wanted.
void find_input_gradient(Stream& stream, const LinearBackward& call) {
  const Product product = input_product(call, inner_gradient(call));
  run(stream, product);
  const bool is_summed =
      has_column_sums(product) && product.c.num_elements() > 0 && inner_size(product) > 0;
  if (call.input_grad_bias.data != nullptr && !is_summed) {
    backend(DeviceType::cuda).sum_rows(stream, call.grad_x, call.input_grad_bias, Write::overwrite);
  }
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
  const bool has_mask = writes_relu_mask(plan_for(stream, product).epilogue);
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
  if (call.activation != Activation::none) {
    const bool before = needs_preactivation(call.activation);
    finish_backward(stream, call.activation, before ? call.preactivation : call.y, call.grad_y,
                    call.scratch);
  }
  const ConstMatrixView grad = inner_gradient(call);
  const bool has_weight = call.grad_weight.data != nullptr;
  const bool has_input = call.grad_x.data != nullptr;
  // Neither product needs the other.
  Stream* const side = has_weight && has_input ? side_stream(stream) : nullptr;
  if (side != nullptr) {
    side->wait(stream.record());
    find_input_gradient(*side, call);
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
    find_input_gradient(stream, call);
  }
}

// The sums cost something in either place, and decide which algorithms the products can have: all
// four are timed, like any product. Where nothing may be timed they stay in the layer's own.
bool CudaBackend::sums_input_gradient(Stream& stream, const LinearBackward& call,
                                      const LinearBackward& before) {
  const bool are_products =
      call.grad_x.num_elements() > 0 && call.weight.rows > 0 && before.x.num_elements() > 0;
  if (call.x.dtype != DType::float32 || !are_products) return false;
  LinearBackward summing = call;
  summing.input_grad_bias = before.grad_bias;
  const Product here = input_product(summing, inner_gradient(call));
  if (!has_column_sums(here)) return false;
  const ProductPlan plan_here = plan_for(stream, here);
  if (!has_gradient_sums(plan_here.epilogue)) return false;
  LinearBackward without = before;
  without.grad_bias = {};
  const ProductPlan plan_there = plan_for(stream, weight_product(before, call.grad_x));
  if (plan_here.microseconds == 0 || plan_there.microseconds == 0) {
    return plan_there.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  }
  const double with_sums_here =
      plan_here.microseconds + plan_for(stream, weight_product(without, call.grad_x)).microseconds;
  const double with_sums_there =
      plan_there.microseconds +
      plan_for(stream, input_product(call, inner_gradient(call))).microseconds;
  return with_sums_here < with_sums_there;
}

}  // namespace lockstep::kernels::cuda
