// What NVIDIA's data sheets promise of a card.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/matmul_precision.h"

namespace lockstep::tools {

// Operations per second of dense products, without sparsity and with float32 sums. card: "NVIDIA
// H200", or a topology's "A100". Absent for other cards, and for tensor cores that a card lacks.
std::optional<double> peak_flops(std::string_view card, kernels::MatmulPrecision precision);

// Bytes per second of the card's memory. Absent for other cards, and where cards of that name
// differ, as "A100" and "A100 80GB PCIe" do.
std::optional<double> memory_bandwidth(std::string_view card);

// "H200, H100 PCIe, ...": the cards that have both.
std::string known_cards();

}  // namespace lockstep::tools
