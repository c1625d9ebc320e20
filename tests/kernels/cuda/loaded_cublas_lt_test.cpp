// That cuBLASLt is loaded when it is first called. Its descriptors are host objects, so this needs
// the library, but no GPU.
#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "engine/core/error.h"

namespace lockstep::kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LoadedCublasLt, IsTheVersionOfTheHeaders) {
  EXPECT_EQ(cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
  EXPECT_STRNE(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE),
               cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS));
}

// In a process of its own, since a process loads the library once.
TEST(LoadedCublasLtDeathTest, MissingSaysWhatToDo) {
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
