// The layers of sequences [batch, length, channels]: Embedding, LayerNorm and CausalSelfAttention.
//
// Their names, defaults and printed forms are PyTorch's, except attention's, which are GPT-2's.
#pragma once

#include "engine/autograd/ops/sequences.h"
#include "engine/nn/layers.h"

namespace lockstep::nn {

// The dtype and device of a layer's parameters.
struct Placement {
  DType dtype = DType::float32;
  std::optional<Device> device = {};  // nullopt: default_device()
};

// Options of a Linear whose weights start normal with this standard deviation.
LinearOptions starting_with(double deviation, const Placement& placement);

// Tokens int64 [batch, length] -> their rows of the table [batch, length, channels].
// Parameter: "weight" [num_rows, channels], which starts normal with the standard deviation; in
// memory `padding` rows of zeros follow it.
// Throws Error{Usage} for a size of 0; in forward as embedding().
class Embedding final : public ModuleOf<Embedding> {
 public:
  Embedding(std::size_t num_rows, std::size_t channels, Rng& rng, double standard_deviation = 1,
            const Placement& placement = {}, std::size_t padding = 0);

  Variable forward(const Variable& tokens) override { return forward(tokens, {}); }
  // Adds the positions' rows.
  Variable forward(const Variable& tokens, const Variable& positions) const {
    return embedding(tokens.value(), weight(), positions, num_rows());
  }
  const Variable& weight() const { return own_parameters()[0].second; }
  std::size_t num_rows() const { return unpadded(0).size(0); }

  std::string type_name() const override { return "Embedding"; }
  std::string extra_text() const override;
};

// Normalises the last dimension. Parameters: "weight" (ones) and "bias" (zeros), [features].
// Throws Error{Usage} for 0 features; in forward as layer_norm().
class LayerNorm final : public ModuleOf<LayerNorm> {
 public:
  explicit LayerNorm(std::size_t features, double epsilon = 1e-5, const Placement& placement = {});

  Variable forward(const Variable& x) override {
    return layer_norm(x, own_parameters()[0].second, own_parameters()[1].second, epsilon_);
  }

  std::string type_name() const override { return "LayerNorm"; }
  std::string extra_text() const override;

 private:
  double epsilon_;
};

// Applies a layer to the last dimension of x [batch, length, in], row by row.
Variable over_rows(const Linear& layer, const Variable& x,
                   Activation activation = Activation::none);

// y = c_proj(attention(c_attn(x))) as in GPT-2, with one layer for queries, keys and values.
// Children: "c_attn" [3 * channels, channels], "c_proj" [channels, channels].
// Throws Error{Usage} unless heads divide channels.
class CausalSelfAttention final : public ModuleOf<CausalSelfAttention> {
 public:
  // residual_deviation: the initial standard deviation of c_proj's weights.
  CausalSelfAttention(std::size_t channels, std::size_t heads, Rng& rng, double deviation,
                      double residual_deviation, const Placement& placement = {});

  Variable forward(const Variable& x) override {
    return over_rows(c_proj_, attention(over_rows(c_attn_, x), heads_));
  }
  std::size_t heads() const { return heads_; }

  std::string type_name() const override { return "CausalSelfAttention"; }
  std::string extra_text() const override;

 private:
  std::size_t heads_;
  Linear c_attn_;
  Linear c_proj_;
};

}  // namespace lockstep::nn
