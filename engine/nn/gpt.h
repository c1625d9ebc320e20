// GPT-2: a language model on tokens.
//
//   tokens -> wte + wpe -> h.0 -> ... -> ln_f -> logits = x * wte^T
//
// The table of tokens is also the last layer: one parameter with two uses, whose gradient is the
// sum of both. Parameters have the names of Hugging Face's GPT2LMHeadModel.
//
// In memory the vocabulary is padded to a multiple of 64, for which GPUs have faster products. The
// logits of the padding are -infinity: such tokens have the probability 0 and no gradient.
#pragma once

#include "engine/nn/sequence_layers.h"
#include "engine/nn/state_dict.h"

namespace lockstep::nn {

struct GptOptions {
  std::size_t layers = 12;
  std::size_t heads = 12;
  std::size_t channels = 768;
  std::size_t context = 1024;  // most tokens in a sequence
  std::size_t vocabulary = 50257;
  // Probability for the embedding and each branch; attention weights are never dropped.
  double dropout = 0;
  std::uint64_t seed = 0;

  bool operator==(const GptOptions&) const = default;
};

// How many parameters a GPT has, and their elements.
struct GptParameterCounts {
  std::size_t matrices = 0;
  std::size_t vectors = 0;
  double matrix_elements = 0;
  double vector_elements = 0;
};
GptParameterCounts count_parameters(const GptOptions& options);

// The smallest multiple of 64 that is at least the vocabulary: 50257 -> 50304.
std::size_t padded_vocabulary(std::size_t vocabulary);

// x + c_proj(gelu(c_fc(x))), with four times as many channels inside; GELU's tanh form.
class GptMlp final : public ModuleOf<GptMlp> {
 public:
  GptMlp(std::size_t channels, Rng& rng, double deviation, double residual_deviation,
         const Placement& placement);
  Variable forward(const Variable& x) override {
    return over_rows(c_proj_, over_rows(c_fc_, x, Activation::gelu_tanh));
  }
  std::string type_name() const override { return "GptMlp"; }

 private:
  Linear c_fc_;
  Linear c_proj_;
};

// x = x + attn(ln_1(x)), then x = x + mlp(ln_2(x)): each branch normalises its input.
class GptBlock final : public ModuleOf<GptBlock> {
 public:
  // number: the block's number, which makes its dropout masks differ from the others'.
  GptBlock(const GptOptions& options, std::size_t number, Rng& rng, const Placement& placement);
  Variable forward(const Variable& x) override;
  std::string type_name() const override { return "GptBlock"; }

 private:
  LayerNorm ln_1_;
  CausalSelfAttention attn_;
  LayerNorm ln_2_;
  GptMlp mlp_;
  Dropout after_attn_;
  Dropout after_mlp_;
};

// Everything but the last product: tokens [batch, length] -> [batch, length, channels].
class GptTransformer final : public ModuleOf<GptTransformer> {
 public:
  GptTransformer(const GptOptions& options, Rng rng, const Placement& placement);
  Variable forward(const Variable& tokens) override;
  const Embedding& table() const { return wte_; }
  std::vector<std::shared_ptr<Module>> in_turn() const;  // as Gpt::in_turn()
  std::string type_name() const override { return "GptTransformer"; }

 private:
  Embedding wte_;
  Embedding wpe_;
  Sequential h_;
  LayerNorm ln_f_;
  Dropout dropout_;
};

// Shapes:  tokens int64 [batch, length], length <= context
//          -> logits [batch * length, padded_vocabulary(vocabulary)].
// Weights start normal with standard deviation 0.02, those of the projections back to the residual
// 0.02 / sqrt(2 * layers), drawn from Rng(seed) in the order of the names; biases are 0.
// Throws Error{Usage} for a size of 0 and heads that do not divide channels; in forward
// Error{Shape} for a token outside the vocabulary and for sequences longer than the context.
// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
class Gpt final : public ModuleOf<Gpt> {
 public:
  explicit Gpt(const GptOptions& options, const Placement& placement = {});
  Variable forward(const Variable& tokens) override;
  // The same as modules that run one after the other, and share its parameters: the embedding, each
  // block, and the last product, which has the table of tokens again.
  std::vector<std::shared_ptr<Module>> in_turn() const { return transformer_.in_turn(); }
  std::string type_name() const override { return "Gpt"; }

 private:
  GptTransformer transformer_;
};

// Converts a GPT-2's state from files to the names of Gpt: names may lack the prefix
// "transformer."; masks ("attn.bias", "attn.masked_bias") are left out; "lm_head.weight" replaces a
// missing table.
// Throws Error{State} for another number of layers, and for a last layer that differs from the
// table.
StateDict gpt_state(StateDict state, std::size_t layers);

// Adds zeros for the biases of a state that has none in its linear layers, or none in its layer
// norms, as nanoGPT's with bias=False: they compute the same. Returns how many it added.
std::size_t add_missing_biases(StateDict& gpt_state);

}  // namespace lockstep::nn
