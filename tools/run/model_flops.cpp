#include "tools/run/model_flops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lockstep::tools {
namespace {

constexpr double kTera = 1e12;

// In TFLOP/s; 0: the card has no such tensor cores.
struct Peak {
  std::string_view card;  // a word of its name, or several; the first that fits counts
  double float32, tf32, bf16;
};

constexpr std::array kPeaks{
    Peak{"H200", 66.9, 494.7, 989.4},
    Peak{"H100 PCIe", 51.2, 378, 756},
    Peak{"H100", 66.9, 494.7, 989.4},
    Peak{"A100", 19.5, 156, 312},
    Peak{"A10", 31.2, 62.5, 125},
    Peak{"A40", 37.4, 74.8, 149.7},
    Peak{"A6000", 38.7, 77.4, 154.8},
    Peak{"L40S", 91.6, 183, 362},
    Peak{"L4", 30.3, 60, 121},
    Peak{"V100", 15.7, 0, 0},
    Peak{"T4", 8.1, 0, 0},
    Peak{"RTX 3090", 35.6, 35.6, 71},
    Peak{"RTX 4090", 82.6, 82.6, 165.2},
    Peak{"RTX 5090", 104.8, 104.8, 209.5},
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

// "5.21 M"
std::string with_prefix(double value) {
  constexpr std::string_view kPrefixes = "kMGTP";
  std::size_t i = 0;
  for (value /= 1e3; value >= 1e3 && i + 1 < kPrefixes.size(); ++i) value /= 1e3;
  return fmt::format("{:.3g} {}", value, kPrefixes[i]);
}

}  // namespace

double flops_per_token(const nn::GptOptions& gpt) {
  const nn::GptParameterCounts counts = nn::count_parameters(gpt);
  const auto channels = static_cast<double>(gpt.channels);
  const auto context = static_cast<double>(gpt.context);
  const double added = channels * context;
  return 6 * (counts.matrix_elements + counts.vector_elements - added) +
         12 * static_cast<double>(gpt.layers) * channels * context;
}

std::optional<double> peak_flops(std::string_view card, kernels::MatmulPrecision precision) {
  using enum kernels::MatmulPrecision;
  if (is_variant(card)) return std::nullopt;
  for (const Peak& peak : kPeaks) {
    if (!has_words(card, peak.card)) continue;
    const double tera = precision == highest ? peak.float32
                        : precision == high  ? peak.tf32
                                             : peak.bf16;
    if (tera > 0) return tera * kTera;
    break;
  }
  return std::nullopt;
}

std::string describe_flops(const nn::GptOptions& gpt, const TokenRate& rate) {
  const double per_token = flops_per_token(gpt);
  const double per_second = per_token * rate.tokens_per_second;
  std::string text = fmt::format("a token takes {}FLOP: {}FLOP/s", with_prefix(per_token),
                                 with_prefix(per_second));
  const std::optional<double> peak = peak_flops(rate.card, rate.precision);
  if (!peak) return text;
  const double share = per_second / (*peak * static_cast<double>(rate.num_cards));
  const std::string cards = rate.num_cards == 1 ? "" : fmt::format("{} x ", rate.num_cards);
  return text +
         fmt::format(", MFU {:.3g} % of {}{:.4g} TFLOP/s", 100 * share, cards, *peak / kTera);
}

}  // namespace lockstep::tools
