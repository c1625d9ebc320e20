#include "datasets/tokenizer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kTokenizerOperation = "text";

// find_character() returns it for bytes that are not UTF-8.
constexpr char32_t kNone = std::numeric_limits<char32_t>::max();
char32_t find_character(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if ((first >= 0x80 && first < 0xc2) || first > 0xf4 || at + length > text.size()) return kNone;
  char32_t point = length == 1 ? first : first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xc0) != 0x80) return kNone;
    point = point << 6 | (next & 0x3fu);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = point >= 0xd800 && point < 0xe000;
  if (point < kSmallest[length] || point > 0x10ffff || is_surrogate) return kNone;
  at += length;
  return point;
}

}  // namespace

char32_t next_character(std::string_view text, std::size_t& at, const std::string& name) {
  const char32_t character = find_character(text, at);
  require(character != kNone, ErrorCode::Io, kTokenizerOperation,
          "'{}' is not UTF-8 text: the byte at offset {} does not begin a character", name, at);
  return character;
}

std::string utf8(char32_t character) {
  if (character < 0x80) return {static_cast<char>(character)};
  const std::size_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  std::string bytes(length, '\0');
  for (std::size_t i = length - 1; i > 0; --i, character >>= 6) {
    bytes[i] = static_cast<char>(0x80 | (character & 0x3f));
  }
  bytes[0] = static_cast<char>((0xf00u >> length) | character);
  return bytes;
}

std::string Tokenizer::description() const {
  uLong checksum = crc32(0, nullptr, 0);
  for (std::size_t token = 0; token < size(); ++token) {
    const std::string bytes = decode(static_cast<std::uint16_t>(token)) + '\n';
    checksum = crc32(checksum, reinterpret_cast<const Bytef*>(bytes.data()),
                     static_cast<uInt>(bytes.size()));
  }
  return fmt::format("{} tokens, CRC-32 {:08x}", size(), checksum);
}

Characters::Characters(std::string_view text, const std::string& name) {
  for (std::size_t at = 0; at < text.size();) all_.push_back(next_character(text, at, name));
  std::ranges::sort(all_);
  all_.erase(std::unique(all_.begin(), all_.end()), all_.end());
  require(all_.size() <= kMostTokens, ErrorCode::Io, kTokenizerOperation,
          "'{}' has {} different characters; {} are possible", name, all_.size(), kMostTokens);
}

std::string Characters::text() const {
  std::string text;
  for (const char32_t character : all_) text += utf8(character);
  return text;
}

Tokens Characters::encode(std::string_view text, const std::string& name) const {
  Tokens tokens;
  tokens.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at, name);
    const auto place = std::ranges::lower_bound(all_, character);
    require(
        place != all_.end() && *place == character, ErrorCode::Usage, kTokenizerOperation,
        "'{}' has the character '{}' (U+{:04X}), which is not one of the {} that the model knows",
        name, shown(utf8(character)), static_cast<std::uint32_t>(character), all_.size());
    tokens.push_back(static_cast<std::uint16_t>(place - all_.begin()));
  }
  return tokens;
}

}  // namespace lockstep::datasets
