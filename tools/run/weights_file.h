// The metadata of weights files: their model, and the tokens that it was trained on. Weights of one
// shape may have another meaning, so both are checked before weights are used.
#pragma once

#include <string>
#include <string_view>

#include "engine/checkpoint/safetensors.h"
#include "engine/core/error.h"
#include "engine/nn/state_dict.h"

namespace lockstep::tools {

struct TrainingTask;

inline constexpr const char* kModelKey = "lockstep.model";
inline constexpr const char* kCharactersKey = "lockstep.characters";
inline constexpr const char* kVocabularyKey = "lockstep.vocabulary";

// The value, or nothing.
std::string metadata_value(const checkpoint::Metadata& metadata, const char* key);

// The metadata of --save and of a checkpoint's model.
checkpoint::Metadata metadata_of(const TrainingTask& task);

// Prints a line about a flag on stderr, once per job.
void note_once(std::string_view flag, std::string_view text);

// A file as the errors of the two checks below name it.
struct WeightsFile {
  ErrorCode code = ErrorCode::State;
  std::string_view flag = "--init";
  std::string path;
  checkpoint::Metadata metadata;
};

// Throws unless the file says no model, or one with the same layers.
void require_same_model(const WeightsFile& file, const std::string& model);

// The tokens of a model: characters, or a vocabulary as in datasets::Dataset. `name`: the text's or
// the vocabulary's.
struct TokenKind {
  std::string characters;
  std::string vocabulary;
  std::string name;
};

// Throws, naming both kinds of tokens, unless the file's are the same or it says none.
void require_same_tokens(const WeightsFile& file, const TokenKind& tokens, std::string_view advice);

// The rows of the table of tokens in a GPT's state. More than the tokens are padding, which has
// added tokens or ends at a multiple of 8; characters have only the latter.
// Throws Error{State} for other numbers of rows, and without a table.
enum class Tokens { characters, vocabulary };
std::size_t rows_of_table(const nn::StateDict& gpt_state, std::size_t num_tokens, Tokens kind);

}  // namespace lockstep::tools
