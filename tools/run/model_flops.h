// Model FLOPs utilization (MFU): the share of a card's peak that the arithmetic of a GPT takes.
// Source: PaLM (arXiv 2204.02311), appendix B, as nanoGPT counts: a token takes 6 operations for
// each parameter, forward and backward, but for the position embedding's, which are only added; and
// 12 * layers * channels * context in attention, as if no position were masked.
#pragma once

#include <string>
#include <string_view>

#include "engine/nn/gpt.h"
#include "kernels/matmul_precision.h"

namespace lockstep::tools {

// Multiplications and additions of a training step for each token.
double flops_per_token(const nn::GptOptions& gpt);

struct TokenRate {
  double tokens_per_second = 0;  // over all devices
  std::string card;              // each device's; empty: cores of a CPU
  std::size_t num_cards = 0;
  kernels::MatmulPrecision precision = kernels::MatmulPrecision::highest;
};

// "a token takes 5.21 MFLOP: 83.4 GFLOP/s", and for a card with a known peak
// ", MFU 42.1 % of 2 x 989 TFLOP/s".
std::string describe_flops(const nn::GptOptions& gpt, const TokenRate& rate);

}  // namespace lockstep::tools
