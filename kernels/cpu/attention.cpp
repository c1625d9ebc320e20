// Causal attention in blocks of queries and keys: the scores of two blocks are one product, which
// stays in the cache. A thread takes whole heads, so bits do not depend on the number of threads.
//
// Forward, a block of queries goes through the blocks of keys up to its own. It holds each query's
// largest score m so far and the sum of exp(score - m); if a block raises m, the sum and the result
// so far are multiplied by exp(old m - new m). Backward computes P = exp(score - log_sum) again,
// block by block.
// Source: Dao et al., "FlashAttention", NeurIPS 2022; the running softmax is Milakov's and
// Gimelshein's (2018).
#include <cmath>
#include <limits>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kBlock = 64;  // queries, and keys, in a block

// One head of one sequence: rows of head_size elements, `stride` apart in qkv and grad_qkv.
template <typename T>
struct Head {
  std::size_t length, size, stride, y_stride;
  T scale;

  explicit Head(const AttentionShape& shape)
      : length(shape.length),
        size(shape.head_size),
        stride(3 * shape.channels()),
        y_stride(shape.channels()),
        scale(T(1) / std::sqrt(static_cast<T>(shape.head_size))) {}

  std::size_t block_rows(std::size_t begin) const { return std::min(kBlock, length - begin); }
  // How many of a block's keys the query sees.
  static std::size_t seen(std::size_t query, std::size_t key, std::size_t num_keys) {
    return std::min(num_keys, query + 1 - key);
  }
};

// scores [queries, keys] = a * b^T of rows of the head.
template <typename T>
void multiply_rows(const Head<T>& head, const T* a, std::size_t a_stride, std::size_t num_queries,
                   const T* b, std::size_t num_keys, T* scores) {
  gemm_in_thread<T>({.a = {a, a_stride},
                     .b = {b, head.stride, Transpose::yes},
                     .c = scores,
                     .leading_dimension = kBlock,
                     .rows = num_queries,
                     .cols = num_keys,
                     .depth = head.size});
}

// to [rows, size] = (or +=) op(scores) * from.
template <typename T>
void multiply_scores(const Head<T>& head, const T* scores, Transpose transpose, std::size_t rows,
                     std::size_t depth, const T* from, std::size_t from_stride, T* to,
                     std::size_t to_stride, Write write) {
  gemm_in_thread<T>({.a = {scores, kBlock, transpose},
                     .b = {from, from_stride},
                     .c = to,
                     .leading_dimension = to_stride,
                     .rows = rows,
                     .cols = head.size,
                     .depth = depth,
                     .write = write});
}

template <typename T>
void multiply_by(T factor, T* row, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t j = 0; j < count; ++j) row[j] *= factor;
}

// The running softmax of a block of queries.
template <typename T>
struct RunningSoftmax {
  T largest[kBlock];
  T sums[kBlock];

  RunningSoftmax() {
    std::fill_n(largest, kBlock, -std::numeric_limits<T>::infinity());
    std::fill_n(sums, kBlock, T(0));
  }
  // Turns the visible scores of query i into exp(scale * score - largest), the others into 0.
  // Returns the factor for earlier results.
  T take(std::size_t i, T scale, T* scores, std::size_t num_seen, std::size_t num_keys) {
    const T before = largest[i];
    largest[i] = std::max(before, scale * max_of(scores, num_seen));
    const T top = largest[i];
    LOCKSTEP_INDEPENDENT
    for (std::size_t j = 0; j < num_seen; ++j) scores[j] = exp_of(scale * scores[j] - top);
    std::fill(scores + num_seen, scores + num_keys, T(0));
    const T kept = exp_of(before - top);
    sums[i] = sums[i] * kept + sum_of(scores, num_seen);
    return kept;
  }
};

template <typename T>
void forward_head(const Head<T>& head, const T* q, const T* k, const T* v, T* y, T* log_sums) {
  T* const scores = thread_scratch<T>(kBlock * kBlock);
  for (std::size_t query = 0; query < head.length; query += kBlock) {
    const std::size_t rows = head.block_rows(query);
    RunningSoftmax<T> softmax;
    T* const to = y + query * head.y_stride;
    for (std::size_t key = 0; key <= query; key += kBlock) {
      const std::size_t keys = head.block_rows(key);
      multiply_rows(head, q + query * head.stride, head.stride, rows, k + key * head.stride, keys,
                    scores);
      for (std::size_t i = 0; i < rows; ++i) {
        const T kept =
            softmax.take(i, head.scale, scores + i * kBlock, head.seen(query + i, key, keys), keys);
        if (key > 0) multiply_by(kept, to + i * head.y_stride, head.size);
      }
      multiply_scores(head, scores, Transpose::no, rows, keys, v + key * head.stride, head.stride,
                      to, head.y_stride, key == 0 ? Write::overwrite : Write::accumulate);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      multiply_by(T(1) / softmax.sums[i], to + i * head.y_stride, head.size);
      log_sums[query + i] = softmax.largest[i] + std::log(softmax.sums[i]);
    }
  }
}

// The memory of one head in the backward pass; q, k and v lie in qkv, and so do their gradients.
template <typename T>
struct HeadGradients {
  const T *q, *k, *v, *y, *log_sums, *grad_y;
  T *grad_q, *grad_k, *grad_v;
  T* projections;  // [length]: grad_y * y of each row
};

// P = exp(scale * scores - log_sum). Then with grad_p, the gradient of P:
//   scores = P,  grad_p = gradient of the products of queries and keys
template <typename T>
void differentiate_block(const Head<T>& head, const HeadGradients<T>& g, std::size_t query,
                         std::size_t rows, std::size_t key, std::size_t keys, T* scores,
                         T* grad_p) {
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t seen = head.seen(query + i, key, keys);
    T* const p = scores + i * kBlock;
    T* const grad = grad_p + i * kBlock;
    const T log_sum = g.log_sums[query + i];
    const T projection = g.projections[query + i];
    LOCKSTEP_INDEPENDENT
    for (std::size_t j = 0; j < seen; ++j) {
      p[j] = exp_of(head.scale * p[j] - log_sum);
      grad[j] = head.scale * p[j] * (grad[j] - projection);
    }
    std::fill(p + seen, p + keys, T(0));
    std::fill(grad + seen, grad + keys, T(0));
  }
}

template <typename T>
void backward_head(const Head<T>& head, const HeadGradients<T>& g) {
  T* const scores = thread_scratch<T>(2 * kBlock * kBlock);
  T* const grad_p = scores + kBlock * kBlock;
  const std::size_t ld = head.stride;
  for (std::size_t i = 0; i < head.length; ++i) {
    g.projections[i] = dot_of(g.grad_y + i * head.y_stride, g.y + i * head.y_stride, head.size);
  }
  for (std::size_t key = 0; key < head.length; key += kBlock) {
    const std::size_t keys = head.block_rows(key);
    for (std::size_t query = key; query < head.length; query += kBlock) {
      const std::size_t rows = head.block_rows(query);
      const T* const grad_y = g.grad_y + query * head.y_stride;
      multiply_rows(head, g.q + query * ld, ld, rows, g.k + key * ld, keys, scores);
      multiply_rows(head, grad_y, head.y_stride, rows, g.v + key * ld, keys, grad_p);
      differentiate_block(head, g, query, rows, key, keys, scores, grad_p);
      const Write to_keys = query == key ? Write::overwrite : Write::accumulate;
      const Write to_queries = key == 0 ? Write::overwrite : Write::accumulate;
      multiply_scores(head, scores, Transpose::yes, keys, rows, grad_y, head.y_stride,
                      g.grad_v + key * ld, ld, to_keys);
      multiply_scores(head, grad_p, Transpose::yes, keys, rows, g.q + query * ld, ld,
                      g.grad_k + key * ld, ld, to_keys);
      multiply_scores(head, grad_p, Transpose::no, rows, keys, g.k + key * ld, ld,
                      g.grad_q + query * ld, ld, to_queries);
    }
  }
}

// Calls body(qkv, y, row) for every head of every sequence, with the places of its first elements.
template <typename Body>
void for_heads(Stream& stream, const AttentionShape& shape, const Body& body) {
  const std::size_t cost = 4 * shape.length * shape.length * shape.head_size / kBlock;
  parallel_blocks(stream, shape.batch * shape.heads, 1, cost,
                  [&](std::size_t index, std::size_t, std::size_t) {
                    const std::size_t first_row = index / shape.heads * shape.length;
                    const std::size_t column = index % shape.heads * shape.head_size;
                    body(first_row * 3 * shape.channels() + column,
                         first_row * shape.channels() + column, index * shape.length);
                  });
}

}  // namespace

void EigenBackend::attention_forward(Stream& stream, const AttentionForward& call) {
  for_floating(call.qkv.dtype, "attention", [&]<typename T>() {
    const Head<T> head(call.shape);
    for_heads(stream, call.shape, [&](std::size_t at_qkv, std::size_t at_y, std::size_t row) {
      const T* const q = data_of<T>(call.qkv) + at_qkv;
      forward_head(head, q, q + call.shape.channels(), q + 2 * call.shape.channels(),
                   data_of<T>(call.y) + at_y, data_of<T>(call.log_sums) + row);
    });
  });
}

void EigenBackend::attention_backward(Stream& stream, const AttentionBackward& call) {
  for_floating(call.qkv.dtype, "attention backward", [&]<typename T>() {
    const Head<T> head(call.shape);
    const std::size_t channels = call.shape.channels();
    for_heads(stream, call.shape, [&](std::size_t at_qkv, std::size_t at_y, std::size_t row) {
      const T* const q = data_of<T>(call.qkv) + at_qkv;
      T* const grad_q = data_of<T>(call.grad_qkv) + at_qkv;
      backward_head<T>(head, {.q = q,
                              .k = q + channels,
                              .v = q + 2 * channels,
                              .y = data_of<T>(call.y) + at_y,
                              .log_sums = data_of<T>(call.log_sums) + row,
                              .grad_y = data_of<T>(call.grad_y) + at_y,
                              .grad_q = grad_q,
                              .grad_k = grad_q + channels,
                              .grad_v = grad_q + 2 * channels,
                              .projections = data_of<T>(call.scratch) + row});
    });
  });
}

// The plain version keeps all scores.

void EigenBackend::causal_softmax_forward(Stream& stream, const CausalSoftmaxForward& call) {
  for_floating(call.scores.dtype, "causal_softmax", [&]<typename T>() {
    const T factor = static_cast<T>(call.scale);
    parallel_rows(stream, call.scores.batch * call.scores.rows, 4 * call.scores.cols,
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t i = begin; i < end; ++i) {
                      const T* const from = data_of<T>(call.scores) + i * call.scores.cols;
                      T* const to = data_of<T>(call.p) + i * call.scores.cols;
                      const std::size_t seen = i % call.scores.rows + 1;
                      const T top = factor * max_of(from, seen);
                      LOCKSTEP_INDEPENDENT
                      for (std::size_t j = 0; j < seen; ++j) to[j] = exp_of(factor * from[j] - top);
                      multiply_by(T(1) / sum_of(to, seen), to, seen);
                      std::fill(to + seen, to + call.scores.cols, T(0));
                    }
                  });
  });
}

void EigenBackend::causal_softmax_backward(Stream& stream, const CausalSoftmaxBackward& call) {
  for_floating(call.p.dtype, "causal_softmax backward", [&]<typename T>() {
    const T factor = static_cast<T>(call.scale);
    parallel_rows(stream, call.p.batch * call.p.rows, 2 * call.p.cols,
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t i = begin; i < end; ++i) {
                      const T* const share = data_of<T>(call.p) + i * call.p.cols;
                      const T* const grad = data_of<T>(call.grad_p) + i * call.p.cols;
                      T* const to = data_of<T>(call.grad_scores) + i * call.p.cols;
                      const T projection = dot_of(share, grad, call.p.cols);
                      LOCKSTEP_INDEPENDENT
                      for (std::size_t j = 0; j < call.p.cols; ++j)
                        to[j] = factor * share[j] * (grad[j] - projection);
                    }
                  });
  });
}

}  // namespace lockstep::kernels
