// Embedding: rows of a table by number, and their gradient. One thread adds the rows that read one
// row of the table, in their order, so bits do not depend on the number of threads.
#include <cstdint>

#include "engine/core/error.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels {
namespace {

// The numbers of the rows of each token, one token after the other: a counting sort, which keeps
// the order of a token's rows.
struct RowsByToken {
  std::vector<std::size_t> rows;
  std::vector<std::size_t> begins;  // token v has rows[begins[v]] ... rows[begins[v + 1] - 1]

  RowsByToken(const std::int64_t* tokens, std::size_t num_rows, std::size_t vocabulary)
      : rows(num_rows), begins(vocabulary + 1) {
    for (std::size_t i = 0; i < num_rows; ++i) ++begins[static_cast<std::size_t>(tokens[i]) + 1];
    for (std::size_t v = 0; v < vocabulary; ++v) begins[v + 1] += begins[v];
    std::vector<std::size_t> next(begins.begin(), begins.end() - 1);
    for (std::size_t i = 0; i < num_rows; ++i)
      rows[next[static_cast<std::size_t>(tokens[i])]++] = i;
  }
};

void require_tokens(const std::int64_t* tokens, std::size_t num_rows, std::size_t vocabulary) {
  for (std::size_t i = 0; i < num_rows; ++i) {
    require(tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < vocabulary, ErrorCode::Shape,
            "embedding", "token {} at position {} is outside the vocabulary of {}", tokens[i], i,
            vocabulary);
  }
}

}  // namespace

void EigenBackend::embedding_forward(Stream& stream, const EmbeddingForward& call) {
  const auto* token = data_of<std::int64_t>(call.tokens);
  require_tokens(token, call.y.rows, call.weight.rows);
  for_floating(call.weight.dtype, "embedding", [&]<typename T>() {
    parallel_rows(stream, call.y.rows, call.y.cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const T* const from = row_of<T>(call.weight, static_cast<std::size_t>(token[i]));
        T* const to = row_of<T>(call.y, i);
        if (!call.positions.data) {
          std::copy_n(from, call.y.cols, to);
          continue;
        }
        const T* const place = row_of<T>(call.positions, i % call.positions.rows);
        LOCKSTEP_INDEPENDENT
        for (std::size_t j = 0; j < call.y.cols; ++j) to[j] = from[j] + place[j];
      }
    });
  });
}

void EigenBackend::embedding_backward(Stream& stream, const EmbeddingBackward& call) {
  const auto* token = data_of<std::int64_t>(call.tokens);
  for_floating(call.grad_y.dtype, "embedding backward", [&]<typename T>() {
    const auto add_row = [&](std::size_t row, T* to) {
      const T* const from = row_of<T>(call.grad_y, row);
      LOCKSTEP_INDEPENDENT
      for (std::size_t j = 0; j < call.grad_y.cols; ++j) to[j] += from[j];
    };
    if (call.grad_weight.data) {
      require_tokens(token, call.grad_y.rows, call.grad_weight.rows);
      const RowsByToken by_token(token, call.grad_y.rows, call.grad_weight.rows);
      parallel_rows(stream, call.grad_weight.rows, call.grad_weight.cols,
                    [&](std::size_t begin, std::size_t end) {
                      for (std::size_t v = begin; v < end; ++v) {
                        T* const to = row_of<T>(call.grad_weight, v);
                        std::fill_n(to, call.grad_weight.cols, T(0));
                        for (std::size_t k = by_token.begins[v]; k < by_token.begins[v + 1]; ++k) {
                          add_row(by_token.rows[k], to);
                        }
                      }
                    });
    }
    if (call.grad_positions.data) {
      parallel_rows(stream, call.grad_positions.rows, call.grad_positions.cols,
                    [&](std::size_t begin, std::size_t end) {
                      for (std::size_t t = begin; t < end; ++t) {
                        T* const to = row_of<T>(call.grad_positions, t);
                        std::fill_n(to, call.grad_positions.cols, T(0));
                        for (std::size_t i = t; i < call.grad_y.rows;
                             i += call.grad_positions.rows) {
                          add_row(i, to);
                        }
                      }
                    });
    }
  });
}

}  // namespace lockstep::kernels
