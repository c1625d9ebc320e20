#include "tools/run/weights_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "datasets/tokenizer.h"
#include "engine/core/text.h"
#include "engine/launch/rank_environment.h"
#include "engine/nn/models.h"
#include "tools/run/task.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// True for two words of one model, such as gpt2 and gpt:12-12-768-1024.
bool are_one_model(const std::string& a, const std::string& b) {
  if (a == b) return true;
  try {
    return nn::parse_model(a) == nn::parse_model(b);
  } catch (const Error&) {
    return false;  // a newer program's word
  }
}

// The characters of a that b lacks.
std::string only_in(std::string_view a, std::string_view b, const std::string& name) {
  std::string only;
  for (std::size_t at = 0; at < a.size();) {
    const std::string character = datasets::utf8(datasets::next_character(a, at, name));
    if (b.find(character) == b.npos) only += character;
  }
  return only;
}

std::string describe(const TokenKind& tokens, const std::string& name) {
  if (tokens.characters.empty()) return fmt::format("a vocabulary of {}", tokens.vocabulary);
  std::size_t count = 0;
  for (std::size_t at = 0; at < tokens.characters.size(); ++count) {
    datasets::next_character(tokens.characters, at, name);
  }
  return fmt::format("{} '{}'", count_text(count, "character"), shown(tokens.characters));
}

// A vocabulary of which only the size is known may be any of that size.
bool are_same(const TokenKind& a, const TokenKind& b) {
  if (a.characters != b.characters) return false;
  return a.vocabulary.starts_with(b.vocabulary) || b.vocabulary.starts_with(a.vocabulary);
}

std::string difference(const TokenKind& file, const TokenKind& text) {
  if (file.characters.empty() || text.characters.empty()) return {};
  const std::string lost = only_in(file.characters, text.characters, text.name);
  const std::string added = only_in(text.characters, file.characters, text.name);
  std::string words;
  if (!lost.empty()) words += fmt::format(", without '{}'", shown(lost));
  if (!added.empty()) words += fmt::format(", with '{}' besides", shown(added));
  return words;
}

}  // namespace

std::string metadata_value(const checkpoint::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

checkpoint::Metadata metadata_of(const TrainingTask& task) {
  checkpoint::Metadata metadata{{kModelKey, task.model}};
  const datasets::Dataset& data = *task.data;
  if (!data.characters.empty()) metadata.emplace(kCharactersKey, data.characters);
  if (!data.vocabulary.empty()) metadata.emplace(kVocabularyKey, data.vocabulary);
  return metadata;
}

void note_once(std::string_view flag, std::string_view text) {
  if (launch::rank_environment(launch::current_environment()).rank != 0) return;
  fmt::print(stderr, "lockstep: [{}] {}\n", flag, text);
}

void require_same_model(const WeightsFile& file, const std::string& model) {
  const std::string said = metadata_value(file.metadata, kModelKey);
  require(said.empty() || are_one_model(said, model), file.code, file.flag,
          "'{}' says that its weights are of --model {}, and the model here is {}; use --model {}",
          file.path, shown(said), model, shown(said));
}

void require_same_tokens(const WeightsFile& file, const TokenKind& tokens,
                         std::string_view advice) {
  const TokenKind said{metadata_value(file.metadata, kCharactersKey),
                       metadata_value(file.metadata, kVocabularyKey), file.path};
  if (said.characters.empty() && said.vocabulary.empty()) return;
  require(are_same(said, tokens), file.code, file.flag,
          "'{}' was trained on {}, and '{}' has {}{}; {}", file.path, describe(said, file.path),
          tokens.name, describe(tokens, tokens.name), difference(said, tokens), advice);
}

std::size_t rows_of_table(const nn::StateDict& state, std::size_t num_tokens, Tokens kind) {
  const auto table =
      std::ranges::find(state, "transformer.wte.weight", &nn::StateDict::value_type::first);
  require(table != state.end() && table->second.num_dims() == 2, ErrorCode::State, "weights",
          "there is no table of tokens, transformer.wte.weight");
  constexpr std::size_t kPadding = 8;
  const std::size_t rows = table->second.size(0);
  const bool is_padded = rows > num_tokens && (kind == Tokens::vocabulary || rows % kPadding == 0);
  require(rows == num_tokens || is_padded, ErrorCode::State, "weights",
          "its weights are for {} tokens, but the {} {}", rows,
          kind == Tokens::characters ? "text has" : "vocabulary has",
          kind == Tokens::characters ? count_text(num_tokens, "character")
                                     : fmt::format("{}", num_tokens));
  return rows;
}

}  // namespace lockstep::tools
