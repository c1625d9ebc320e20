#include "tools/page/html_text.h"

#include <algorithm>

namespace lockstep::tools::page {
namespace {

bool is_first_byte(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

std::string escaped(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default: {
      const auto byte = static_cast<unsigned char>(c);
      const bool is_control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
      return is_control ? "\xEF\xBF\xBD" : std::string(1, c);
    }
  }
}

}  // namespace

std::string escape(std::string_view text) {
  std::string html;
  for (const char c : text) html += escaped(c);
  return html;
}

std::string shortened(std::string_view text, std::size_t most_letters) {
  auto letters = static_cast<std::size_t>(std::ranges::count_if(text, is_first_byte));
  if (letters <= most_letters) return std::string(text);
  const std::size_t num_kept = most_letters == 0 ? 0 : most_letters - 1;
  for (; !text.empty() && (letters > num_kept || !is_first_byte(text[0])); text.remove_prefix(1)) {
    if (is_first_byte(text[0])) --letters;
  }
  return "…" + std::string(text);
}

}  // namespace lockstep::tools::page
