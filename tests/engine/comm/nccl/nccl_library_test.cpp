#include "engine/comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include "tests/support/expect_error.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::testing::expect_error;

TEST(NcclLibrary, WhatIsMissingIsAnErrorThatSaysWhatToDo) {
  expect_error(ErrorCode::Comm, "no NCCL was found", [] { load("/nowhere/libnccl.so.2"); });
  expect_error(ErrorCode::Comm, "use the engine's own communicator, which needs no NCCL",
               [] { load("/nowhere/libnccl.so.2"); });
}

TEST(NcclLibrary, AnotherLibraryIsNoNccl) {
  expect_error(ErrorCode::Comm, "libm.so.6 has no ncclGetVersion", [] { load("libm.so.6"); });
}

TEST(NcclLibrary, TheOneOfThisMachineHasAllThatIsNeeded) {
  const char* path = NCCL_ON_BUILD_MACHINE;
  if (dlopen(path, RTLD_LAZY | RTLD_LOCAL) == nullptr) GTEST_SKIP() << "no " << path << " here";
  EXPECT_THAT(version_of(load(path)), ::testing::StartsWith("2."));
}

}  // namespace
}  // namespace lockstep::comm::nccl
