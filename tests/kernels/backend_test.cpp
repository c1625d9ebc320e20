#include "engine/runtime/physical_gpus.h"
#include "reference.h"

namespace lockstep::kernels {
namespace {

TEST(BackendOf, TheCpuIsAlwaysTheSameObject) {
  EXPECT_EQ(&backend(DeviceType::cpu), &backend(DeviceType::cpu));
}

TEST(BackendOf, CudaIsAnErrorInABuildWithoutIt) {
  const bool has_cuda = runtime::no_gpu_reason().find("build has no CUDA") == std::string::npos;
  if (has_cuda) GTEST_SKIP() << "this build has CUDA";
  expect_error(ErrorCode::Device, "no CUDA", [] { backend(DeviceType::cuda); });
}

TEST(BackendOf, OnlyGeluNeedsTheValueBeforeTheActivation) {
  EXPECT_TRUE(needs_preactivation(Activation::gelu_erf));
  EXPECT_TRUE(needs_preactivation(Activation::gelu_tanh));
  for (const Activation other :
       {Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid}) {
    EXPECT_FALSE(needs_preactivation(other));
  }
}

TEST(BackendOf, ADtypeWithoutAKernelIsNamed) {
  std::uint16_t halves[4] = {};
  const TensorView view{halves, DType::bfloat16, 4};
  expect_error(ErrorCode::DType, "[add]", [&] { cpu().add(stream_with(1), view, view, view); });
  Array<float> floats(4);
  Array<double> doubles(4);
  expect_error(ErrorCode::DType, "[add]",
               [&] { cpu().add(stream_with(1), floats.view(), doubles.view(), floats.view()); });
}

}  // namespace
}  // namespace lockstep::kernels
