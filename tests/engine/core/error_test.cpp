#include "engine/core/error.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

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
  EXPECT_EQ(exit_code(ErrorCode::Usage), 2);
  EXPECT_EQ(exit_code(ErrorCode::Io), 1);
  EXPECT_EQ(exit_code(ErrorCode::Numeric), 1);
}

}  // namespace
}  // namespace lockstep
