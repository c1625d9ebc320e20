// cuDNN is loaded when it is first needed. Its descriptors are host objects, so this needs the
// library, but no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cuda/cudnn_library.h"

namespace lockstep::kernels::cuda {
namespace {

using ::testing::HasSubstr;

CudnnLibrary load(const char* path) {
  setenv("LOCKSTEP_CUDNN_LIBRARY", path, 1);
  CudnnLibrary result = load_cudnn();
  unsetenv("LOCKSTEP_CUDNN_LIBRARY");
  return result;
}

TEST(LoadedCudnn, HasTheFunctionsOfTheHeaders) {
  const CudnnLibrary library = load_cudnn();
  if (!library.problem.empty()) GTEST_SKIP() << library.problem;
  int major = 0;
  ASSERT_EQ(library.cudnnGetProperty(MAJOR_VERSION, &major), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(major, CUDNN_MAJOR);
#define LOCKSTEP_EXPECT(name) EXPECT_NE(library.name, nullptr) << #name;
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_EXPECT)
#undef LOCKSTEP_EXPECT
  cudnnFilterDescriptor_t filter = nullptr;
  ASSERT_EQ(library.cudnnCreateFilterDescriptor(&filter), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(
      library.cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 4, 3, 5, 5),
      CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(library.cudnnDestroyFilterDescriptor(filter), CUDNN_STATUS_SUCCESS);
}

TEST(LoadedCudnn, SaysWhyThereIsNone) {
  EXPECT_THAT(load("/nowhere/libcudnn.so").problem, HasSubstr("/nowhere/libcudnn.so"));
  EXPECT_THAT(load("libm.so.6").problem, HasSubstr("libm.so.6 is not cuDNN"));
}

}  // namespace
}  // namespace lockstep::kernels::cuda
