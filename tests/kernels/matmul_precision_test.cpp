#include "kernels/matmul_precision.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::kernels {
namespace {

TEST(MatmulPrecision, IsHighestUntilSomebodySaysOtherwise) {
  EXPECT_EQ(matmul_precision(), MatmulPrecision::highest);
  set_matmul_precision(MatmulPrecision::medium);
  EXPECT_EQ(matmul_precision(), MatmulPrecision::medium);
  set_matmul_precision(MatmulPrecision::highest);
}

TEST(MatmulPrecision, IsWrittenWithTheWordsOfPyTorch) {
  for (const char* word : {"highest", "high", "medium"}) {
    EXPECT_EQ(to_string(parse_matmul_precision(word)), word);
  }
  lockstep::testing::expect_error(ErrorCode::Usage, "'tf32' is none; use highest",
                                  [] { parse_matmul_precision("tf32"); });
}

TEST(MatmulTuning, IsOffWhileAScopeWantsIt) {
  const bool before = is_matmul_tuning_on();
  {
    const UntunedScope outer;
    { const UntunedScope inner; }
    EXPECT_FALSE(is_matmul_tuning_on());
  }
  EXPECT_EQ(is_matmul_tuning_on(), before);
}

}  // namespace
}  // namespace lockstep::kernels
