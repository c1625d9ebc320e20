// Turns texts into tokens, which are numbered from 0, and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::datasets {

using Tokens = std::vector<std::uint16_t>;
inline constexpr std::size_t kMostTokens = 65535;

// Returns the character that begins at text[at], and moves at past it. name: the text's name in
// errors.
// Throws Error{Io} for bytes that are not UTF-8, with their offset.
char32_t next_character(std::string_view text, std::size_t& at, const std::string& name);
std::string utf8(char32_t character);

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::size_t size() const = 0;  // the number of tokens
  // name: the text's name in errors.
  // Throws Error{Io} for bytes that are not UTF-8, Error{Usage} for a character without a token.
  virtual Tokens encode(std::string_view text, const std::string& name) const = 0;
  // The token's bytes, which may be a part of a character. REQUIRES: token < size().
  virtual std::string decode(std::uint16_t token) const = 0;
  // "50257 tokens, CRC-32 1a2b3c4d": the same for the same tokens.
  std::string description() const;
};

// A token for each character, in the order of their code points.
class Characters final : public Tokenizer {
 public:
  // The characters of the text. Throws next_character()'s errors, and Error{Io} for too many.
  Characters(std::string_view text, const std::string& name);

  std::string text() const;  // each once, in their order
  std::size_t size() const override { return all_.size(); }
  Tokens encode(std::string_view text, const std::string& name) const override;
  std::string decode(std::uint16_t token) const override { return utf8(all_[token]); }

 private:
  std::vector<char32_t> all_;
};

}  // namespace lockstep::datasets
