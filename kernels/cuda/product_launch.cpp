#include "kernels/cuda/product_launch.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/product_description.h"
#include "kernels/cuda/product_workspace.h"

namespace lockstep::kernels::cuda {
namespace {

// What the library was not asked to do.
void finish_rest(Stream& stream, const Product& product, cublasLtEpilogue_t epilogue) {
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) return;
  switch (product.finish) {
    case Product::Finish::none:
      return;
    case Product::Finish::forward:
      if (product.activation != Activation::none || product.bias.data != nullptr ||
          product.preactivation.data != nullptr) {
        finish_forward(stream, product.c, product.bias, product.activation, product.preactivation);
      }
      return;
    case Product::Finish::gradient:
      finish_backward(stream, product.activation, product.saved, product.c, product.c);
      return;
    case Product::Finish::bias_gradient:
      backend(DeviceType::cuda).sum_rows(stream, product.a, product.column_sums, product.write);
      return;
  }
}

}  // namespace

Launched try_launch(Stream& stream, const Product& product, const ProductPlan& plan) {
  void* const workspace = plan.workspace_bytes > 0 ? product_workspace(stream) : nullptr;
  {
    LaunchScope scope(stream, product.operation);
    const ProductDescription description(product, plan.epilogue);
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool is_wide = product.c.dtype == DType::float64;
    const bool adds = product.write == Write::accumulate;
    const void* alpha = is_wide ? static_cast<const void*>(&wide_one) : &one;
    const void* beta = adds ? alpha : is_wide ? static_cast<const void*>(&wide_zero) : &zero;
    const cublasStatus_t status = cublasLtMatmul(
        cublas_lt(runtime::cuda::cuda_stream(stream).gpu()), description.matmul.get(), alpha,
        product.b.data, description.first.get(), product.a.data, description.second.get(), beta,
        product.c.data, description.result.get(), product.c.data, description.result.get(),
        &plan.algorithm, workspace, plan.workspace_bytes, scope.handle());
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
      return Launched::refused;
    }
    check_cublas(status, "cublasLtMatmul");
    scope.finish(cudaSuccess);
  }
  finish_rest(stream, product, plan.epilogue);
  return Launched::yes;
}

}  // namespace lockstep::kernels::cuda
