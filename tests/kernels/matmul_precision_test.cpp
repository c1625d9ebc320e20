#include "kernels/matmul_precision.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::kernels {
namespace {

TEST(MatmulPrecision, IsWrittenWithTheWordsOfPyTorch) {
  for (const char* word : {"highest", "high", "medium"}) {
    EXPECT_EQ(to_string(parse_matmul_precision(word)), word);
  }
  lockstep::testing::expect_error(ErrorCode::Usage, "'tf32' is none; use highest",
                                  [] { parse_matmul_precision("tf32"); });
}

}  // namespace
}  // namespace lockstep::kernels
