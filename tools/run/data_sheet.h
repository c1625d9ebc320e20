// This file knows what NVIDIA's data sheets promise of a card.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/matmul_precision.h"

namespace lockstep::tools {

// Operations per second of dense products, without sparsity and with float32 sums. card: "NVIDIA
// H200", or a topology's "A100". Absent for other cards, and for tensor cores that a card lacks.
std::optional<double> peak_flops(std::string_view card, kernels::MatmulPrecision precision);

struct CardSpeed {
  std::string name;
  double flops_per_second = 0;  // peak_flops()
  double bytes_per_second = 0;  // of its memory
};

// Absent where peak_flops() is, and where cards of that name differ in their memory, as "A100" and
// "A100 80GB PCIe" do.
std::optional<CardSpeed> card_speed(std::string_view card, kernels::MatmulPrecision precision);

// "H200, H100 PCIe, ...": the cards that have a speed in some precision.
std::string known_cards();

}  // namespace lockstep::tools
