#include "tools/run/data_sheet.h"

#include <algorithm>
#include <array>

namespace lockstep::tools {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// Cards by a word of their names, or several; the first that fits counts.
struct DataSheet {
  std::string_view card;
  double float32, tf32, bf16;  // TFLOP/s; 0: the card has no such tensor cores
  double bandwidth;            // GB/s; 0: cards of this name differ
};

constexpr std::array kSheets{
    DataSheet{"H200", 66.9, 494.7, 989.4, 4800},
    DataSheet{"H100 PCIe", 51.2, 378, 756, 2000},
    DataSheet{"H100", 66.9, 494.7, 989.4, 3350},
    DataSheet{"A100-SXM4-80GB", 19.5, 156, 312, 2039},
    DataSheet{"A100-SXM4-40GB", 19.5, 156, 312, 1555},
    DataSheet{"A100 80GB PCIe", 19.5, 156, 312, 1935},
    DataSheet{"A100", 19.5, 156, 312, 0},
    DataSheet{"A10", 31.2, 62.5, 125, 600},
    DataSheet{"A40", 37.4, 74.8, 149.7, 696},
    DataSheet{"A6000", 38.7, 77.4, 154.8, 768},
    DataSheet{"L40S", 91.6, 183, 362, 864},
    DataSheet{"L4", 30.3, 60, 121, 300},
    DataSheet{"V100", 15.7, 0, 0, 900},
    DataSheet{"T4", 8.1, 0, 0, 320},
    DataSheet{"RTX 3090", 35.6, 35.6, 71, 936},
    DataSheet{"RTX 4090", 82.6, 82.6, 165.2, 1008},
    DataSheet{"RTX 5090", 104.8, 104.8, 209.5, 1792},
};

// True if the words stand in the name: "A10" does in "NVIDIA A10" and in "A10-24Q", not in "A100".
bool has_words(std::string_view name, std::string_view words) {
  const auto is_end = [&](std::size_t at) {
    return at >= name.size() || name[at] == ' ' || name[at] == '-';
  };
  for (std::size_t at = name.find(words); at != name.npos; at = name.find(words, at + 1)) {
    if ((at == 0 || is_end(at - 1)) && is_end(at + words.size())) return true;
  }
  return false;
}

// "NVIDIA GeForce RTX 3090 Ti" is another card than the RTX 3090, with another data sheet.
bool is_variant(std::string_view name) {
  constexpr std::array<std::string_view, 5> kVariants{"Ti", "SUPER", "D", "NVL", "Laptop"};
  return std::ranges::any_of(kVariants,
                             [&](std::string_view word) { return has_words(name, word); });
}

const DataSheet* find_sheet(std::string_view card) {
  if (is_variant(card)) return nullptr;
  const auto* const found = std::ranges::find_if(
      kSheets, [&](const DataSheet& sheet) { return has_words(card, sheet.card); });
  return found == kSheets.end() ? nullptr : found;
}

}  // namespace

std::optional<double> peak_flops(std::string_view card, kernels::MatmulPrecision precision) {
  using enum kernels::MatmulPrecision;
  const DataSheet* const sheet = find_sheet(card);
  if (sheet == nullptr) return std::nullopt;
  const double tera = precision == highest ? sheet->float32
                      : precision == high  ? sheet->tf32
                                           : sheet->bf16;
  if (tera == 0) return std::nullopt;
  return tera * kTera;
}

std::optional<CardSpeed> card_speed(std::string_view card, kernels::MatmulPrecision precision) {
  const std::optional<double> flops = peak_flops(card, precision);
  if (!flops) return std::nullopt;
  const double bandwidth = find_sheet(card)->bandwidth;
  if (bandwidth == 0) return std::nullopt;
  return CardSpeed{std::string(card), *flops, bandwidth * kGiga};
}

std::string known_cards() {
  std::string names;
  for (const DataSheet& sheet : kSheets) {
    if (sheet.bandwidth == 0) continue;
    if (!names.empty()) names += ", ";
    names += sheet.card;
  }
  return names;
}

}  // namespace lockstep::tools
