#include "engine/core/shown_text.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t kMaxBytes = 80;

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace

std::string shown(std::string_view text) {
  std::size_t length = std::min(text.size(), kMaxBytes);
  // Not within a character of UTF-8, which has at most three bytes after its first.
  for (int i = 0; i < 3 && length < text.size() && is_continuation(text[length]); ++i) --length;
  std::string result(text.substr(0, length));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (length < text.size()) result += "...";
  return result;
}

std::string shell_quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace lockstep
