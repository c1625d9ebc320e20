// lockstep sample: lets a trained GPT continue a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "datasets/bpe.h"
#include "datasets/dataset.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/core/error.h"
#include "engine/core/rng.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/numbers.h"
#include "tools/flags/training_flags.h"
#include "tools/run/placement.h"
#include "tools/run/weights_file.h"

namespace lockstep::tools {
namespace {

// This command shares the training flags of device, model and text.
struct SampleFlags : TrainingFlags {
  std::string prompt;
  int num_tokens = 200;
  // nanoGPT's defaults.
  double temperature = 0.8;
  int top_k = 200;
};

// The model's word in the file; shapes alone do not tell the number of heads.
std::string model_word(const SampleFlags& flags, const checkpoint::Metadata& metadata) {
  const std::string word = flags.model.empty() ? metadata_value(metadata, kModelKey) : flags.model;
  require(!word.empty(), ErrorCode::Usage, "sample",
          "'{}' doesn't say which model its weights are of, as files of train --save do; give "
          "--model gpt2, gpt2-medium or gpt:LAYERS-HEADS-CHANNELS-CONTEXT",
          flags.init_path);
  require(nn::parse_model(word).takes_text(), ErrorCode::Usage, "sample",
          "'{}' is not a text model; use the weights of a gpt:, gpt2 or gpt2-medium", word);
  return word;
}

std::unique_ptr<datasets::Tokenizer> make_tokenizer(const SampleFlags& flags,
                                                    const checkpoint::Metadata& metadata,
                                                    std::size_t window) {
  const WeightsFile file{.path = flags.init_path, .metadata = metadata};
  std::string characters = metadata_value(metadata, kCharactersKey);
  const std::string advice = characters.empty()
                                 ? "give what the model was trained on"
                                 : "leave out --dataset and --vocab: the file says its characters";
  if (!flags.vocab_dir.empty()) {
    auto pairs = std::make_unique<datasets::BytePairs>(flags.vocab_dir);
    require_same_tokens(file, {{}, pairs->description(), flags.vocab_dir}, advice);
    return pairs;
  }
  if (!flags.dataset.empty()) {
    const datasets::DatasetSpec spec = datasets::parse_dataset(flags.dataset);
    require(spec.is_text() && spec.kind != datasets::DatasetKind::tokens, ErrorCode::Usage,
            "--dataset", "'{}' has no characters; name the text that the model was trained on",
            flags.dataset);
    const datasets::Dataset text = datasets::load_dataset(spec, flags.data_dir, 0, {window});
    require_same_tokens(file, {text.characters, {}, text.train.name}, advice);
    characters = text.characters;
  }
  require(!characters.empty(), ErrorCode::Usage, "sample",
          "'{}' doesn't say which characters its tokens are; give --vocab DIR for GPT-2's tokens, "
          "or --dataset for the characters of the text that the model was trained on",
          flags.init_path);
  return std::make_unique<datasets::Characters>(characters, flags.init_path);
}

// The GPT with the file's weights. num_tokens: the size of the tokenizer.
std::shared_ptr<nn::Module> load_model(const SampleFlags& flags, const std::string& word,
                                       std::size_t num_tokens, Device device) {
  const nn::ModelSpec spec = nn::parse_model(word);
  try {
    nn::StateDict state = nn::gpt_state(nn::load_weights(flags.init_path), spec.gpt.layers);
    nn::add_missing_biases(state);
    const std::size_t vocabulary = rows_of_table(
        state, num_tokens, flags.vocab_dir.empty() ? Tokens::characters : Tokens::vocabulary);
    auto model = nn::make_model(spec, {{spec.gpt.context}, vocabulary}, 0, DType::float32, device);
    nn::load_state_dict(*model, state);
    model->eval();
    return model;
  } catch (const Error& error) {
    fail(error.code(), "--init", "'{}' does not fit --model {}: {}", flags.init_path, word,
         error.what());
  }
}

// Draws among the top_k likeliest by softmax(logits / temperature); at 0 it takes the likeliest.
std::size_t draw(const std::vector<float>& logits, const SampleFlags& flags, Rng& rng) {
  std::vector<std::size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0U);
  const std::size_t count =
      flags.temperature == 0 ? 1 : std::min(static_cast<std::size_t>(flags.top_k), tokens.size());
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  tokens.resize(count);
  std::vector<double> sums;  // cumulative shares up to each token
  for (const std::size_t token : tokens) {
    const double difference = static_cast<double>(logits[token]) - logits[tokens[0]];
    const double share = token == tokens[0] ? 1 : std::exp(difference / flags.temperature);
    sums.push_back((sums.empty() ? 0 : sums.back()) + share);
  }
  const auto place = std::ranges::upper_bound(sums, rng.uniform() * sums.back());
  return tokens[std::min(static_cast<std::size_t>(place - sums.begin()), count - 1)];
}

void print_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run_sample(const SampleFlags& flags) {
  require_not_negative("--temperature", flags.temperature);
  const Device device{resolve_device_type(flags), 0};
  apply_threads_per_device(flags, 1);
  const checkpoint::Metadata metadata = checkpoint::read_metadata(flags.init_path);
  const std::string word = model_word(flags, metadata);
  const std::size_t context = nn::parse_model(word).gpt.context;
  const auto tokenizer = make_tokenizer(flags, metadata, context);
  datasets::Tokens tokens = tokenizer->encode(flags.prompt, "--prompt");
  const auto model = load_model(flags, word, tokenizer->size(), device);
  require_same_model({.path = flags.init_path, .metadata = metadata}, word);

  // Each token costs a forward pass of the whole window, because keys and values are not kept.
  const NoGradScope no_grad;
  Rng rng(flags.seed);
  print_now(flags.prompt);
  for (int i = 0; i < flags.num_tokens; ++i) {
    const std::size_t length = std::min(tokens.size(), context);
    const std::vector<std::int64_t> window(tokens.end() - static_cast<std::ptrdiff_t>(length),
                                           tokens.end());
    const Tensor logits = (*model)(Tensor::from(window, {1, length}, device)).value();
    std::vector<float> last = logits.rows(length - 1, length).to_vector<float>();
    last.resize(tokenizer->size());  // a vocabulary may be padded
    tokens.push_back(static_cast<std::uint16_t>(draw(last, flags, rng)));
    print_now(tokenizer->decode(tokens.back()));
  }
  print_now("\n");
}

}  // namespace

void add_sample_command(CLI::App& program) {
  auto flags = std::make_shared<SampleFlags>();
  flags->dataset.clear();  // the file says the characters
  CLI::App& sample = *program.add_subcommand("sample", "Continue a text with a trained GPT");
  add_option(
      sample, "--init", flags->init_path, "FILE",
      "the weights, as train --save writes them (safetensors, or the index of several files)")
      ->required();
  add_option(sample, "--prompt", flags->prompt, "TEXT", "the text to continue; it is printed first")
      ->required();
  sample.add_option("--tokens", flags->num_tokens, "how many tokens to write")
      ->check(CLI::Range(1, 1 << 30));
  sample.add_option(
      "--temperature", flags->temperature,
      "divides the logits: a larger one is more random, and 0 takes the likeliest token");
  sample
      .add_option("--top-k", flags->top_k,
                  "draw among so many of the likeliest tokens (default: all)")
      ->check(CLI::Range(1, 1 << 30));
  sample.add_option("--seed", flags->seed, "seed of the draws")->check(whole_number());
  add_option(sample, "--model", flags->model, "MODEL",
             "for weights from elsewhere: gpt2, gpt2-medium or "
             "gpt:LAYERS-HEADS-CHANNELS-CONTEXT");
  CLI::Option* const vocab = sample.add_option(
      "--vocab", flags->vocab_dir, "the folder of GPT-2's tokens: encoder.json and vocab.bpe");
  vocab->type_name("FOLDER");
  add_option(sample, "--dataset", flags->dataset, "DATA",
             "for weights from elsewhere: the text whose characters are the tokens")
      ->excludes(vocab);
  for (const char* name : {"--data-dir", "--device", "--threads-per-device", "--precision"}) {
    add_training_flag(sample, *flags, name);
  }
  sample.callback([flags] { run_sample(*flags); });
}

}  // namespace lockstep::tools
