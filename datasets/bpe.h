// GPT-2's byte-pair encoding.
//
// A text is cut into words; a space belongs to the word after it. A word's bytes are tokens; then
// the pair of neighbours that comes first in the list of merges becomes one token, again and again.
// Source: https://github.com/openai/gpt-2, src/encoder.py.
#pragma once

#include <filesystem>
#include <unordered_map>

#include "datasets/tokenizer.h"

namespace lockstep::datasets {

class BytePairs final : public Tokenizer {
 public:
  // Reads encoder.json and vocab.bpe of the folder, or vocab.json and merges.txt, as Hugging Face
  // calls them.
  // Throws Error{Io} that names the file if it is missing or broken, or if the two do not belong to
  // one vocabulary.
  explicit BytePairs(const std::filesystem::path& folder);

  std::size_t size() const override { return bytes_.size(); }
  Tokens encode(std::string_view text, const std::string& name) const override;
  std::string decode(std::uint16_t token) const override { return bytes_[token]; }

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::uint16_t result = 0;
  };

  void read_tokens(const std::filesystem::path& path);
  void read_merges(const std::filesystem::path& path);
  const Merge* find_merge(std::uint16_t left, std::uint16_t right) const;
  Tokens encode_word(std::string_view word) const;

  std::vector<std::string> bytes_;  // each token's bytes
  std::unordered_map<std::string, std::uint16_t> tokens_;
  std::unordered_map<std::uint32_t, Merge> merges_;  // keyed by left << 16 | right
};

// The end of the word that begins at text[begin], as this regular expression finds it:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// name: the text's name in errors. REQUIRES: begin < text.size().
// Throws Error{Io} for bytes that are not UTF-8.
std::size_t end_of_word(std::string_view text, std::size_t begin, const std::string& name);

}  // namespace lockstep::datasets
