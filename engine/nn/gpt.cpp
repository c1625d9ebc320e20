#include "engine/nn/gpt.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/core/error.h"

namespace lockstep::nn {

namespace {

constexpr double kDeviation = 0.02;
constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kTable = "transformer.wte.weight";
constexpr std::string_view kHead = "lm_head.weight";

double residual_deviation(const GptOptions& options) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(options.layers));
}

Dropout dropout_of(const GptOptions& options, std::size_t layer) {
  return {options.dropout, options.seed, static_cast<std::uint32_t>(layer)};
}

// The bias of the logits: 0, and -infinity for the table's padding.
Variable padding_bias(const Embedding& table) {
  const Tensor& weight = table.weight().value();
  if (table.num_rows() == weight.size(0)) return {};
  const Tensor bias = Tensor::zeros({weight.size(0)}, weight.dtype(), weight.device());
  bias.rows(table.num_rows(), weight.size(0)).fill(-std::numeric_limits<double>::infinity());
  return Variable(bias);
}

}  // namespace

std::size_t padded_vocabulary(std::size_t vocabulary) {
  return (vocabulary + 63) / 64 * 64;
}

GptParameterCounts count_parameters(const GptOptions& options) {
  const auto channels = static_cast<double>(options.channels);
  const auto layers = static_cast<double>(options.layers);
  return {2 + 4 * options.layers, 2 + 8 * options.layers,
          channels *
              (static_cast<double>(options.vocabulary + options.context) + 12 * layers * channels),
          channels * (2 + 13 * layers)};
}

GptMlp::GptMlp(std::size_t channels, Rng& rng, double deviation, double residual_deviation,
               const Placement& placement)
    : c_fc_(channels, 4 * channels, rng, starting_with(deviation, placement)),
      c_proj_(4 * channels, channels, rng, starting_with(residual_deviation, placement)) {
  register_child("c_fc", c_fc_);
  register_child("c_proj", c_proj_);
}

GptBlock::GptBlock(const GptOptions& options, std::size_t number, Rng& rng,
                   const Placement& placement)
    : ln_1_(options.channels, 1e-5, placement),
      attn_(options.channels, options.heads, rng, kDeviation, residual_deviation(options),
            placement),
      ln_2_(options.channels, 1e-5, placement),
      mlp_(options.channels, rng, kDeviation, residual_deviation(options), placement),
      after_attn_(dropout_of(options, 2 * number + 1)),
      after_mlp_(dropout_of(options, 2 * number + 2)) {
  register_child("ln_1", ln_1_);
  register_child("attn", attn_);
  register_child("ln_2", ln_2_);
  register_child("mlp", mlp_);
  if (options.dropout == 0) return;
  register_child("after_attn", after_attn_);
  register_child("after_mlp", after_mlp_);
}

Variable GptBlock::forward(const Variable& x) {
  const Variable y = add(x, after_attn_(attn_(ln_1_(x))));
  return add(y, after_mlp_(mlp_(ln_2_(y))));
}

GptTransformer::GptTransformer(const GptOptions& options, Rng rng, const Placement& placement)
    : wte_(options.vocabulary, options.channels, rng, kDeviation, placement,
           padded_vocabulary(options.vocabulary) - options.vocabulary),
      wpe_(options.context, options.channels, rng, kDeviation, placement),
      h_([&] {
        std::vector<std::shared_ptr<Module>> blocks;
        for (std::size_t i = 0; i < options.layers; ++i) {
          blocks.push_back(std::make_shared<GptBlock>(options, i, rng, placement));
        }
        return blocks;
      }()),
      ln_f_(options.channels, 1e-5, placement),
      dropout_(dropout_of(options, 0)) {
  register_child("wte", wte_);
  register_child("wpe", wpe_);
  register_child("h", h_);
  register_child("ln_f", ln_f_);
  if (options.dropout > 0) register_child("dropout", dropout_);
}

Variable GptTransformer::forward(const Variable& tokens) {
  return ln_f_(h_(dropout_(wte_.forward(tokens, wpe_.weight()))));
}

namespace {

// [batch, length, channels] -> logits [batch * length, rows of the table].
Variable logits_of(const Variable& x, const Embedding& table) {
  const Shape& shape = x.shape();
  return linear(reshape(x, {shape[0] * shape[1], shape[2]}), table.weight(), padding_bias(table));
}

class GptEmbedding final : public ModuleOf<GptEmbedding> {
 public:
  GptEmbedding(const Embedding& wte, const Embedding& wpe, const Dropout& dropout)
      : wte_(wte), wpe_(wpe), dropout_(dropout) {
    register_child("wte", wte_);
    register_child("wpe", wpe_);
    register_child("dropout", dropout_);
  }
  Variable forward(const Variable& tokens) override {
    return dropout_(wte_.forward(tokens, wpe_.weight()));
  }

 private:
  Embedding wte_;
  Embedding wpe_;
  Dropout dropout_;
};

class GptHead final : public ModuleOf<GptHead> {
 public:
  GptHead(const LayerNorm& ln_f, const Embedding& table) : ln_f_(ln_f), table_(table) {
    register_child("ln_f", ln_f_);
    register_child("table", table_);
  }
  Variable forward(const Variable& x) override { return logits_of(ln_f_(x), table_); }

 private:
  LayerNorm ln_f_;
  Embedding table_;
};

}  // namespace

std::vector<std::shared_ptr<Module>> GptTransformer::in_turn() const {
  std::vector<std::shared_ptr<Module>> modules;
  modules.push_back(std::make_shared<GptEmbedding>(wte_, wpe_, dropout_));
  for (const auto& [name, block] : h_.children()) modules.push_back(block);
  modules.push_back(std::make_shared<GptHead>(ln_f_, wte_));
  return modules;
}

Gpt::Gpt(const GptOptions& options, const Placement& placement)
    : transformer_(options, Rng(options.seed), placement) {
  register_child("transformer", transformer_);
}

Variable Gpt::forward(const Variable& tokens) {
  return logits_of(transformer_(tokens), transformer_.table());
}

namespace {

bool is_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// One more than the largest N of "transformer.h.N.".
std::size_t count_layers(const StateDict& state) {
  std::size_t layers = 0;
  for (const auto& [name, tensor] : state) {
    constexpr std::string_view kBlocks = "transformer.h.";
    if (!name.starts_with(kBlocks)) continue;
    std::size_t number = 0;
    const char* const begin = name.data() + kBlocks.size();
    if (std::from_chars(begin, name.data() + name.size(), number).ptr == begin) continue;
    layers = std::max(layers, number + 1);
  }
  return layers;
}

}  // namespace

StateDict gpt_state(StateDict state, std::size_t layers) {
  std::erase_if(state, [](const auto& entry) { return is_mask(entry.first); });
  const bool has_prefix = std::ranges::any_of(
      state, [](const auto& entry) { return entry.first.starts_with(kPrefix); });
  for (auto& [name, tensor] : state) {
    if (!has_prefix && name != kHead) name.insert(0, kPrefix);
  }
  const auto head = std::ranges::find(state, kHead, &StateDict::value_type::first);
  const auto table = std::ranges::find(state, kTable, &StateDict::value_type::first);
  if (head != state.end() && table == state.end()) {
    head->first = kTable;
  } else if (head != state.end()) {
    require(head->second.shape() == table->second.shape() &&
                head->second.to_vector<double>() == table->second.to_vector<double>(),
            ErrorCode::State, "load_state_dict",
            "\"{}\" and \"{}\" are one parameter in this model, but differ", kHead, kTable);
    state.erase(head);
  }
  const std::size_t found = count_layers(state);
  require(found == layers, ErrorCode::State, "load_state_dict",
          "the weights are those of {} layers, and the model has {}", found, layers);
  return state;
}

std::size_t add_missing_biases(StateDict& state) {
  constexpr std::string_view kWeight = ".weight";
  constexpr std::string_view kBias = ".bias";
  const auto is_norm = [](std::string_view name) { return name.find(".ln_") != name.npos; };
  const auto has_bias = [&](bool of_norms) {
    return std::ranges::any_of(state, [&](const auto& entry) {
      return entry.first.ends_with(kBias) && is_norm(entry.first) == of_norms;
    });
  };
  const bool norms_have = has_bias(true);
  const bool linears_have = has_bias(false);
  StateDict added;
  for (const auto& [name, weight] : state) {
    const bool is_table = name.ends_with(".wte.weight") || name.ends_with(".wpe.weight");
    if (!name.ends_with(kWeight) || is_table || weight.num_dims() == 0) continue;
    if (is_norm(name) ? norms_have : linears_have) continue;
    const std::string layer = name.substr(0, name.size() - kWeight.size());
    added.emplace_back(layer + std::string(kBias),
                       Tensor::zeros({weight.size(0)}, weight.dtype(), weight.device()));
  }
  state.insert(state.end(), added.begin(), added.end());
  return added.size();
}

}  // namespace lockstep::nn
