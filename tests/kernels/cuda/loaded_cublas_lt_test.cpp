// That cuBLASLt is loaded when it is first called. Its descriptors are host objects, so this needs
// the library, but no GPU.
#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "engine/core/error.h"
#include "kernels/cuda/cublas_lt.h"

namespace lockstep::kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LoadedCublasLt, IsTheVersionOfTheHeaders) {
  EXPECT_EQ(cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
  EXPECT_STRNE(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE),
               cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS));
}

TEST(LoadedCublasLt, KeepsWhatIsPassedOn) {
  MatmulDescriptor descriptor(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  EXPECT_NO_THROW(descriptor.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T));
  // An operation has four bytes: cuBLASLt refuses one, so it has seen the size.
  EXPECT_THROW(descriptor.set(CUBLASLT_MATMUL_DESC_TRANSB, 'x'), Error);
  EXPECT_NO_THROW(MatrixLayout(CUDA_R_32F, 3, 5, 3).set_batch(2, 15));
}

// In a process of its own, since a process loads the library once.
TEST(LoadedCublasLtDeathTest, MissingIsAnErrorThatSaysWhatToDo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [] {
    setenv("LOCKSTEP_CUBLASLT_LIBRARY", "/nowhere/libcublasLt.so", 1);
    try {
      cublasLtGetVersion();
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(3),
              AllOf(HasSubstr("/nowhere/libcublasLt.so"), HasSubstr("LOCKSTEP_CUBLASLT_LIBRARY")));
}

}  // namespace
}  // namespace lockstep::kernels::cuda
