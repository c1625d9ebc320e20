// The differentiable operations on sequences [batch, length, channels]. A linear layer works on
// their rows, [batch * length, channels].
#pragma once

#include "engine/autograd/ops/ops.h"

namespace lockstep {

// y[b, t] = weight[tokens[b, t]] + positions[t]. tokens int64 [batch, length], weight [vocabulary,
// channels], positions [length or more, channels] or undefined -> y [batch, length, channels].
// Tokens must be below num_rows; 0: the whole vocabulary.
// Throws Error{Shape} that names the place of a token outside the vocabulary, and for more tokens
// than positions.
Variable embedding(const Tensor& tokens, const Variable& weight, const Variable& positions = {},
                   std::size_t num_rows = 0);

// Normalises the last dimension of x [..., features], then weight * x^ + bias, both [features].
// Source: PyTorch nn.LayerNorm.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    double epsilon = 1e-5);

// Causal self-attention: qkv [batch, length, 3 * channels] has the queries of all heads, then their
// keys, then their values -> y [batch, length, channels]. With Q, K and V [length, channels /
// heads] of a head, its columns of y are softmax(Q * K^T / sqrt(channels / heads)) * V; position t
// only sees positions 0 ... t.
// Throws Error{Shape} if heads do not divide channels.
//
// attention() works in blocks of positions, and keeps one number per position and head for
// backward. plain_attention() follows the formula: it makes and keeps the whole matrix of scores
// [length, length] of each head.
// Source: PyTorch scaled_dot_product_attention(is_causal=True).
Variable attention(const Variable& qkv, std::size_t heads);
Variable plain_attention(const Variable& qkv, std::size_t heads);

}  // namespace lockstep
