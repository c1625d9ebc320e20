#include "engine/core/error.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

constexpr ErrorCode kAllCodes[] = {
    ErrorCode::Shape,   ErrorCode::DType, ErrorCode::Device, ErrorCode::Cuda,  ErrorCode::Comm,
    ErrorCode::Timeout, ErrorCode::Io,    ErrorCode::Usage,  ErrorCode::State, ErrorCode::Numeric};

TEST(Error, NamesTheOperationInBracketsBeforeTheMessage) {
  const Error error(ErrorCode::Shape, "scatter", "cannot split 4-D input along dim 5");
  EXPECT_STREQ(error.what(), "[scatter] cannot split 4-D input along dim 5");
  EXPECT_EQ(error.code(), ErrorCode::Shape);
}

TEST(Error, BracesInsideArgumentsAreTextAndNotFormat) {
  testing::expect_error(ErrorCode::Usage, "unknown '{}'",
                        [] { fail(ErrorCode::Usage, "model", "unknown '{}'", "{}"); });
}

TEST(Error, OnlyUsageErrorsExitWithTwo) {
  for (const ErrorCode code : kAllCodes) {
    EXPECT_EQ(exit_code(code), code == ErrorCode::Usage ? 2 : 1) << to_string(code);
  }
}

}  // namespace
}  // namespace lockstep
