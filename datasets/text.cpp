#include "datasets/text.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kTextOperation = "text";

// UTF-16 or UTF-32, by their mark or because many bytes are 0; else nothing.
std::string wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xff\xfe\0\0"sv) || text.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return "UTF-16";
  const std::string_view head = text.substr(0, 4096);
  const auto num_zeros = static_cast<std::size_t>(std::ranges::count(head, '\0'));
  if (head.empty() || 4 * num_zeros < head.size()) return {};
  return fmt::format("UTF-{}{}", 8 * num_zeros > 5 * head.size() ? 32 : 16,
                     head.front() == '\0' ? "BE" : "LE");
}

}  // namespace

Dataset windows_of(Tokens tokens, std::size_t vocabulary, const std::string& name,
                   std::size_t window) {
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
  dataset.vocabulary = fmt::format("{} tokens", vocabulary);
  return dataset;
}

Dataset tokens_of(std::string_view text, const Tokenizer& tokenizer, const std::string& name,
                  std::size_t window) {
  Dataset dataset = windows_of(tokenizer.encode(text, name), tokenizer.size(), name, window);
  dataset.vocabulary = tokenizer.description();
  return dataset;
}

Dataset characters_of(std::string_view text, const std::string& name, std::size_t window) {
  const Characters characters(text, name);
  Dataset dataset = tokens_of(text, characters, name, window);
  dataset.characters = characters.text();
  dataset.vocabulary.clear();
  return dataset;
}

std::string_view without_mark(std::string_view text, const std::string& name) {
  constexpr std::string_view kUtf8 = "\xef\xbb\xbf";
  if (text.starts_with(kUtf8)) return text.substr(kUtf8.size());
  const std::string encoding = wide_encoding(text);
  require(encoding.empty(), ErrorCode::Io, kTextOperation,
          "'{0}' is {1} text, and UTF-8 is needed; convert it: iconv -f {1} -t UTF-8 {2} > NEW.txt",
          name, encoding, shell_quoted(name));
  return text;
}

}  // namespace lockstep::datasets
