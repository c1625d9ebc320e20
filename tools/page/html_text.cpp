#include "tools/page/html_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/text.h"

namespace lockstep::tools::page {
namespace {

bool is_first_byte(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool is_control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        if (is_control) {
          html += "\xEF\xBF\xBD";
        } else {
          html += c;
        }
      }
    }
  }
  return html;
}

std::size_t num_letters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, is_first_byte));
}

std::string shortened(std::string_view text, std::size_t most_letters) {
  const std::size_t letters = num_letters(text);
  if (letters <= most_letters) return std::string(text);
  const std::size_t num_kept = most_letters == 0 ? 0 : most_letters - 1;
  std::size_t begin = 0;
  for (std::size_t i = 0; begin < text.size(); ++begin) {
    if (is_first_byte(text[begin]) && i++ == letters - num_kept) break;
  }
  text.remove_prefix(begin);
  return "…" + std::string(text);
}

std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    line += is_plain ? word : shell_quoted(word);
  }
  return line;
}

Unit seconds_unit(double largest) {
  if (largest >= 1) return {1, "s"};
  return largest >= 1e-3 ? Unit{1e-3, "ms"} : Unit{1e-6, "us"};
}

Unit bytes_unit(double largest) {
  constexpr double kKiB = 1024;
  if (largest >= kKiB * kKiB * kKiB) return {kKiB * kKiB * kKiB, "GiB"};
  return largest >= kKiB * kKiB ? Unit{kKiB * kKiB, "MiB"} : Unit{kKiB, "KiB"};
}

std::string short_number(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e7 || size < 1e-4) return fmt::format("{:.2e}", value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  const int decimals = std::clamp(2 - static_cast<int>(std::floor(std::log10(size))), 0, 6);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace lockstep::tools::page
