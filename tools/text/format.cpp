#include "tools/text/format.h"

#include <fmt/format.h>

namespace lockstep::tools {

std::string format_factor(double factor) {
  const int decimals = factor < 0.00995  ? 5
                       : factor < 0.0995 ? 3
                       : factor < 9.995  ? 2
                       : factor < 99.95  ? 1
                                         : 0;
  return fmt::format("{:.{}f}x", factor, decimals);
}

std::string format_bytes(std::size_t num_bytes) {
  const double bytes = static_cast<double>(num_bytes);
  if (num_bytes < 1000) return fmt::format("{} B", num_bytes);
  if (bytes < 999.95 * (1 << 10)) return fmt::format("{:.1f} KiB", bytes / (1 << 10));
  if (bytes < 999.95 * (1 << 20)) return fmt::format("{:.1f} MiB", bytes / (1 << 20));
  return fmt::format("{:.1f} GiB", bytes / (1 << 30));
}

std::string wrap(std::string_view text, std::size_t columns, std::size_t margin) {
  std::string lines;
  while (text.size() + margin > columns) {
    std::size_t end = text.rfind(' ', columns - margin);
    if (end == std::string_view::npos) end = text.find(' ');  // the word itself is wider
    if (end == std::string_view::npos) break;
    lines.append(text.substr(0, end)).append("\n").append(margin, ' ');
    text.remove_prefix(end + 1);
  }
  return lines.append(text);
}

void print_wrapped(std::FILE* out, std::string_view text) {
  if (!text.empty()) fmt::print(out, "{}\n", wrap(text));
}

std::string count_text(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string with_thousands(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

}  // namespace lockstep::tools
