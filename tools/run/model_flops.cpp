#include "tools/run/model_flops.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "tools/run/data_sheet.h"

namespace lockstep::tools {
namespace {

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
         fmt::format(", MFU {:.3g} % of {}{:.4g} TFLOP/s", 100 * share, cards, *peak * 1e-12);
}

}  // namespace lockstep::tools
