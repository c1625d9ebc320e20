#include "datasets/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kTextOperation = "text";

Dataset split(Tokens tokens, std::size_t vocabulary, const std::string& name, std::size_t window) {
  const std::size_t num_train = tokens.size() * 9 / 10;
  require(num_train > window, ErrorCode::Io, kTextOperation,
          "'{}' has {} tokens to train on (and a tenth for validation); a window takes {} and the "
          "token after it",
          name, num_train, window);
  const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(num_train);
  Dataset dataset;
  for (data::LabelledRows* rows : {&dataset.train, &dataset.test}) {
    rows->name = name;
    rows->num_features = window;
    rows->num_classes = vocabulary;
    rows->row_shape = {window};
  }
  // There is no validation if the last tenth is shorter than a window.
  if (tokens.size() - num_train > window) dataset.test.tokens.assign(middle, tokens.end());
  tokens.resize(num_train);
  dataset.train.tokens = std::move(tokens);
  return dataset;
}

}  // namespace

Dataset tokens_of(std::string_view text, const Tokenizer& tokenizer, const std::string& name,
                  std::size_t window) {
  return split(tokenizer.encode(text, name), tokenizer.size(), name, window);
}

Dataset characters_of(std::string_view text, const std::string& name, std::size_t window) {
  const Characters characters(text, name);
  Dataset dataset = tokens_of(text, characters, name, window);
  dataset.characters = characters.text();
  return dataset;
}

Dataset read_tokens(const std::filesystem::path& path, std::size_t window) {
  constexpr std::size_t kHeaderBytes = 1024;  // 256 integers: magic, version, number of tokens
  constexpr std::int32_t kMagic = 20240520;
  InputFile file(path, kTextOperation);
  std::array<std::int32_t, 3> header{};
  std::size_t begin = 0;
  if (file.read(std::as_writable_bytes(std::span(header))) == sizeof(header) &&
      header[0] == kMagic) {
    begin = kHeaderBytes;
    const std::uint64_t num_bytes = kHeaderBytes + 2 * static_cast<std::uint64_t>(header[2]);
    require(header[1] == 1 && file.num_bytes() == num_bytes, ErrorCode::Io, kTextOperation,
            "'{}' has the header of llm.c's version {} with {} tokens, and {} bytes; expected "
            "version 1 and {} bytes",
            file.name(), header[1], header[2], file.num_bytes(), num_bytes);
  }
  require(file.num_bytes() % 2 == 0, ErrorCode::Io, kTextOperation,
          "'{}' has {} bytes; tokens of two bytes need an even number", file.name(),
          file.num_bytes());
  file.rewind();
  std::vector<std::byte> skipped(begin);
  file.read_exactly(skipped);
  Tokens tokens((file.num_bytes() - begin) / 2);
  file.read_exactly(std::as_writable_bytes(std::span(tokens)));
  const auto wrong =
      std::ranges::find_if(tokens, [](std::uint16_t token) { return token >= kGpt2Vocabulary; });
  require(wrong == tokens.end(), ErrorCode::Io, kTextOperation,
          "'{}': the token at offset {} (byte {}) is {}, outside GPT-2's vocabulary of {}",
          file.name(), wrong - tokens.begin(),
          begin + 2 * static_cast<std::size_t>(wrong - tokens.begin()),
          wrong == tokens.end() ? 0 : *wrong, kGpt2Vocabulary);
  return split(std::move(tokens), kGpt2Vocabulary, path.string(), window);
}

}  // namespace lockstep::datasets
