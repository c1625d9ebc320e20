#include "engine/core/error.h"

#include <gtest/gtest.h>

#include <set>

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

TEST(Error, KeepsItsPartsApartWhateverIsInThem) {
  const Error error(ErrorCode::Io, "read [a] b", "expected [4] bytes] found [3");
  EXPECT_EQ(error.operation(), "read [a] b");
  EXPECT_EQ(error.message(), "expected [4] bytes] found [3");
  const Error copy = error;
  EXPECT_EQ(copy.operation(), error.operation());
  EXPECT_EQ(copy.message(), error.message());
  const Error empty(ErrorCode::Io, "", "");
  EXPECT_EQ(empty.operation(), "");
  EXPECT_EQ(empty.message(), "");
}

TEST(Error, FailFormatsItsArguments) {
  testing::expect_error(ErrorCode::Io, "[read] expected 4 bytes, found 3",
                        [] { fail(ErrorCode::Io, "read", "expected {} bytes, found {}", 4, 3); });
}

TEST(Error, BracesInsideArgumentsAreTextAndNotFormat) {
  testing::expect_error(ErrorCode::Usage, "unknown '{}'",
                        [] { fail(ErrorCode::Usage, "model", "unknown '{}'", "{}"); });
}

TEST(Error, RequireThrowsOnlyWhenItsConditionIsFalse) {
  EXPECT_NO_THROW(require(true, ErrorCode::State, "backward", "called twice"));
  testing::expect_error(ErrorCode::State, "[backward] called twice",
                        [] { require(false, ErrorCode::State, "backward", "called twice"); });
}

TEST(Error, OnlyUsageErrorsExitWithTwo) {
  for (const ErrorCode code : kAllCodes) {
    EXPECT_EQ(exit_code(code), code == ErrorCode::Usage ? 2 : 1) << to_string(code);
  }
}

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const ErrorCode code : kAllCodes) names.insert(to_string(code));
  EXPECT_EQ(names.size(), std::size(kAllCodes));
  EXPECT_FALSE(names.contains("Unknown"));
  EXPECT_EQ(to_string(ErrorCode::Timeout), "Timeout");
}

}  // namespace
}  // namespace lockstep
