// The arithmetic of a GPT, and the share of a card's peak that it takes.
#include "tools/run/model_flops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/run/data_sheet.h"

namespace lockstep::tools {
namespace {

using kernels::MatmulPrecision;

// 6 * 123.65M parameters, without the position embedding, and 12 * 12 * 768 * 1024.
TEST(ModelFlops, OfGpt2AreWhatNanoGptCounts) {
  EXPECT_NEAR(flops_per_token({}), 6 * 123.653376e6 + 113.246208e6, 1);
}

TEST(DataSheet, IsOfTheCardThatANameNames) {
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MatmulPrecision::bf16), 312e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", MatmulPrecision::bf16), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", MatmulPrecision::high), 494.7e12);
  EXPECT_EQ(peak_flops("NVIDIA A10", MatmulPrecision::medium), 125e12);
  EXPECT_EQ(peak_flops("Tesla V100", MatmulPrecision::highest), 15.7e12);
  EXPECT_FALSE(peak_flops("Tesla V100", MatmulPrecision::bf16));
  EXPECT_FALSE(peak_flops("NVIDIA GeForce RTX 3090 Ti", MatmulPrecision::highest));
  EXPECT_FALSE(peak_flops("", MatmulPrecision::highest));
  EXPECT_EQ(card_speed("NVIDIA A100-SXM4-80GB", MatmulPrecision::bf16).value().bytes_per_second,
            2039e9);
  EXPECT_FALSE(card_speed("NVIDIA A100", MatmulPrecision::bf16));  // 40 or 80 GB
}

TEST(ModelFlops, AreSaidWithTheirShareOfAllCards) {
  const TokenRate rate{100e3, "NVIDIA H200", 2, MatmulPrecision::bf16};
  EXPECT_EQ(describe_flops({}, rate),
            "a token takes 855 MFLOP: 85.5 TFLOP/s, MFU 4.32 % of 2 x 989.4 TFLOP/s");
  EXPECT_EQ(describe_flops({}, {100e3, "", 1}), "a token takes 855 MFLOP: 85.5 TFLOP/s");
}

}  // namespace
}  // namespace lockstep::tools
