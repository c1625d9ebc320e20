// Causal attention in tiles, without a matrix of scores: FlashAttention-2.
//
// For a head with queries Q, keys K and values V, attention is
//   S = scale * Q K^T,   P = softmax of each row of S,   Y = P V,
// where row i sees the columns 0 ... i. S and P have length x length elements. If memory holds
// them, then reading and writing them is most of the time; so here they never leave the registers
// in which they are made.
//
// Forward, a warp keeps 16 queries. It goes through the keys in tiles: scores of one tile, their
// exponentials, and at once their product with the tile's values. A softmax needs the largest score
// of its row, which is known only at the end. But it may be corrected: with m the largest score so
// far, the warp keeps
//   sum = sum of exp(s - m)   and   y = sum of exp(s - m) * value.
// If a tile raises m to m', both are multiplied by exp(m - m'). At the end y / sum is the result,
// and m + log(sum), the only number that is kept of each row of scores, is for backward.
//
// Backward makes P again, P = exp(S - log_sum), and with the gradients' formulas
//   grad_V = P^T grad_Y,   grad_P = grad_Y V^T,   grad_S = P * (grad_P - D),
//   grad_Q = scale * grad_S K,   grad_K = scale * grad_S^T Q
// it needs of a whole row only D = row sum of P * grad_P. That is also the row sum of
// grad_Y * Y, because Y = P V: one product of two short rows. There are two passes. In the first a
// warp keeps 16 queries with their grad_Q, and meets the keys; in the second it keeps 16 keys with
// their grad_K and grad_V, and meets the queries. So a sum belongs to one warp, which adds in one
// order; a single pass would have to add to the gradients of others, by atomics.
//
// Work: with n = length^2 / 2 * head size, 2 n multiplications forward and 7 n backward (a single
// pass would have 5 n). Memory: all rows, and for each 64 of them the rows that they see.
// Source: Dao, "FlashAttention-2", 2023; the running softmax is Milakov's and Gimelshein's (2018).
#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/product.h"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned kBlockThreads = 128;
constexpr unsigned kBlockRows = kBlockThreads / kWarp * kWarpRows;

// Rows of a tile: two tiles are at most 34 KiB, of the 48 KiB that every GPU gives a block. The
// backward passes have fewer, because their warps keep the products of two tiles in registers.
// float64, with which gradients are checked, has small ones, which compile quickly.
template <typename By, unsigned kChannels>
constexpr unsigned kTile = sizeof(typename By::Number) == 8
                               ? 16u
                               : std::min(64u, 16384u / unsigned{kChannels *
                                                                 sizeof(typename By::Stored)});
template <typename By, unsigned kChannels>
constexpr unsigned kBackwardTile = std::min(32u, kTile<By, kChannels>);
// Blocks of a backward pass that a multiprocessor holds at a time: while one waits for its tiles,
// the others multiply. Larger heads need the registers of all.
template <unsigned kChannels>
constexpr unsigned kBlocks = kChannels <= 64 ? 3 : 1;

// Element: of activations; T: of sums.
template <typename Element>
struct Attention {
  using T = ArithmeticOf<Element>;
  const Element* qkv;
  Element* y;
  T* log_sums;
  const Element* grad_y;
  Element* grad_qkv;
  T* projections;  // [batch, heads, length]: D
  unsigned length, heads, head_size, channels, blocks_per_head;
  T scale;
  bool is_wide;  // rows of heads can be read 16 bytes at a time
};

enum class Order { first_block_first, last_block_first };

__device__ unsigned smaller(unsigned a, unsigned b) {
  return a < b ? a : b;
}

// One head of one sequence, and the queries or keys of it that the calling warp keeps, from `first`
// on. Channels beyond the head's and rows beyond the sequence's are zero.
template <typename By, typename Element, unsigned kChannels>
struct Head {
  using T = typename By::Number;
  using Stored = typename By::Stored;
  using Rows = LaneRows<By, kChannels>;
  const Attention<Element>& call;
  std::size_t qkv_at, y_at, row_at;  // where the head's elements begin
  std::size_t qkv_stride, y_stride;
  unsigned block_first, first;  // rows of the block, of the warp

  // The blocks with most work go first, so that the last to start are short.
  __device__ Head(const Attention<Element>& of, Order order)
      : call(of), qkv_stride(3 * std::size_t{of.channels}), y_stride(of.channels) {
    const unsigned index = blockIdx.x / call.blocks_per_head;
    const unsigned block = blockIdx.x % call.blocks_per_head;
    const std::size_t first_row = std::size_t{index / call.heads} * call.length;
    const std::size_t column = std::size_t{index % call.heads} * call.head_size;
    qkv_at = first_row * qkv_stride + column;
    y_at = first_row * y_stride + column;
    row_at = std::size_t{index} * call.length;
    const bool is_last_first = order == Order::last_block_first;
    block_first = kBlockRows * (is_last_first ? call.blocks_per_head - 1 - block : block);
    first = block_first + threadIdx.x / kWarp * kWarpRows;
  }

  // The keys of a tile that some query of the warp sees, and the queries that see some of its keys.
  __device__ Span keys_seen(unsigned tile, unsigned tile_rows) const {
    const unsigned end = first < call.length ? smaller(call.length, first + kWarpRows) : 0;
    return {0, end > tile ? smaller(tile_rows, end - tile) : 0};
  }
  __device__ Span queries_seeing(unsigned tile, unsigned tile_rows) const {
    if (first >= call.length) return {0, 0};
    return {first > tile ? first - tile : 0, smaller(tile_rows, call.length - tile)};
  }

  // The warp's rows of a matrix of which the lane has columns `column_of(j)`.
  template <typename Columns>
  __device__ Rows load(const Element* from, std::size_t stride, const Columns& column_of) const {
    Rows rows;
    rows.for_each([&](unsigned i, unsigned j, T& value) {
      const unsigned at = first + By::row(i);
      const unsigned channel = column_of(j);
      const bool is_there = at < call.length && channel < call.head_size;
      value = is_there ? number(from[at * stride + channel]) : T(0);
    });
    return rows;
  }
  __device__ auto factor(const Element* from, std::size_t stride) const {
    return By::factor(load(from, stride, By::factor_column));
  }
  __device__ void store(Element* to, std::size_t stride, Rows& rows) const {
    rows.for_each([&](unsigned i, unsigned j, T& value) {
      const unsigned at = first + By::row(i);
      const unsigned channel = By::column(j);
      const bool is_there = at < call.length && channel < call.head_size;
      if (is_there) to[at * stride + channel] = static_cast<Element>(value);
    });
  }
  // A number for each of the warp's rows. All lanes of a row have the same one.
  __device__ void store_number(T* to, unsigned i, T value) const {
    const unsigned at = first + By::row(i);
    if (By::column(0) == 0 && at < call.length) to[row_at + at] = value;
  }

  __device__ static void put(Stored* to, const Vector<Element>& values) {
    if constexpr (std::is_same_v<Element, T>) {
      store_vector(to, By::stored(values));
    } else if constexpr (std::is_same_v<Element, Stored>) {
      store_vector(to, values);
    } else {  // bfloat16 where there are no tensor cores
      for (unsigned e = 0; e < kWidth<Element>; ++e) to[e] = number(values.at[e]);
    }
  }

  // All threads of the block load the rows of a tile, from `begin` on.
  template <unsigned kRows>
  __device__ void load_tile(const Element* from, std::size_t stride, unsigned begin,
                            Tile<Stored, kRows, kChannels>& tile) const {
    constexpr unsigned kWide = kWidth<Element>;
    constexpr unsigned kPieces = kChannels / kWide;
#pragma unroll
    for (unsigned i = threadIdx.x; i < kRows * kPieces; i += kBlockThreads) {
      const unsigned at = begin + i / kPieces;
      const unsigned channel = i % kPieces * kWide;
      const Element* const piece = from + at * stride + channel;
      Vector<Element> values{};
      if (at < call.length && channel < call.head_size) {
        if (call.is_wide) {
          values = load_vector<kWide>(piece);
        } else {
          for (unsigned e = 0; e < kWide; ++e) {
            if (channel + e < call.head_size) values.at[e] = piece[e];
          }
        }
      }
      put(&tile.at[i / kPieces][channel], values);
    }
  }

  // Goes through the keys that the block's queries see, with their values, in tiles. Calls
  // body(key, seen) for the tiles of which the warp sees rows; `key` is a tile's first row.
  template <unsigned kRows, typename Body>
  __device__ void for_keys(Tile<Stored, kRows, kChannels>& keys,
                           Tile<Stored, kRows, kChannels>& values, const Body& body) const {
    const Element* const rows = call.qkv + qkv_at;
    for (unsigned key = 0; key < smaller(call.length, block_first + kBlockRows); key += kRows) {
      __syncthreads();
      load_tile(rows + call.channels, qkv_stride, key, keys);
      load_tile(rows + 2 * std::size_t{call.channels}, qkv_stride, key, values);
      __syncthreads();
      const Span seen = keys_seen(key, kRows);
      if (!seen.is_empty()) body(key, seen);
    }
  }
};

// op(... op(a, b) ...) over the lanes of a row, in all of them.
template <typename By, typename T, typename Op>
__device__ T over_row(T value, const Op& op) {
#pragma unroll
  for (unsigned distance = By::kRowLanes / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}
template <typename By, typename T>
__device__ T sum_over_row(T value) {
  return over_row<By>(value, [](T a, T b) { return a + b; });
}

// The softmax of the warp's queries over the tiles so far.
template <typename By>
struct RunningSoftmax {
  using T = typename By::Number;
  T largest[By::kLaneRows];  // scores
  T sum[By::kLaneRows];      // of exp(score - largest) over the lane's own columns

  __device__ RunningSoftmax() {
    for (unsigned i = 0; i < By::kLaneRows; ++i) {
      largest[i] = -static_cast<T>(INFINITY);
      sum[i] = T(0);
    }
  }

  // Turns scores into exp(score - largest), and scales y to the largest score that is now known.
  template <unsigned kRows, unsigned kChannels>
  __device__ void take(LaneRows<By, kRows>& scores, LaneRows<By, kChannels>& y) {
    T top[By::kLaneRows], kept[By::kLaneRows];
    for (unsigned i = 0; i < By::kLaneRows; ++i) top[i] = largest[i];
    scores.for_each(
        [&](unsigned i, unsigned, T& score) { top[i] = score > top[i] ? score : top[i]; });
#pragma unroll
    for (unsigned i = 0; i < By::kLaneRows; ++i) {
      top[i] = over_row<By>(top[i], [](T a, T b) { return b > a ? b : a; });
      kept[i] = exp_of(largest[i] - top[i]);
      largest[i] = top[i];
      sum[i] *= kept[i];
    }
    scores.for_each([&](unsigned i, unsigned, T& score) {
      score = exp_of(score - top[i]);
      sum[i] += score;
    });
    y.for_each([&](unsigned i, unsigned, T& value) { value *= kept[i]; });
  }
};

template <typename Wanted, typename Element, unsigned kChannels>
__global__ void __launch_bounds__(kBlockThreads) attention_kernel(Attention<Element> call) {
  using By = Available<Wanted>;
  using T = typename By::Number;
  constexpr unsigned kRows = kTile<By, kChannels>;
  __shared__ Tile<typename By::Stored, kRows, kChannels> keys, values;
  const Head<By, Element, kChannels> head(call, Order::last_block_first);
  const auto q = head.factor(call.qkv + head.qkv_at, head.qkv_stride);
  LaneRows<By, kChannels> y{};
  RunningSoftmax<By> softmax;
  head.for_keys(keys, values, [&](unsigned key, Span seen) {
    LaneRows<By, kRows> scores{};
    By::multiply_rows(scores, q, keys, seen);
    scores.for_each([&](unsigned i, unsigned j, T& score) {
      const bool is_seen = key + By::column(j) <= head.first + By::row(i);
      score = is_seen ? call.scale * score : -static_cast<T>(INFINITY);
    });
    softmax.take(scores, y);
    By::multiply_columns(y, By::factor(scores), values, seen);
  });
  T sum[By::kLaneRows];
#pragma unroll
  for (unsigned i = 0; i < By::kLaneRows; ++i) {
    sum[i] = sum_over_row<By>(softmax.sum[i]);
    head.store_number(call.log_sums, i, softmax.largest[i] + log_of(sum[i]));
    sum[i] = T(1) / sum[i];
  }
  y.for_each([&](unsigned i, unsigned, T& value) { value *= sum[i]; });
  head.store(call.y + head.y_at, head.y_stride, y);
}

// Reads the log-sums of the warp's queries and computes their D, which is also kept for the pass
// over keys. D takes the factors that the products take, rounded as they are.
template <typename By, typename Element, unsigned kChannels, typename T>
__device__ void project(const Head<By, Element, kChannels>& head, T (&log_sums)[By::kLaneRows],
                        T (&projections)[By::kLaneRows]) {
  auto products = head.load(head.call.grad_y + head.y_at, head.y_stride, By::column);
  const auto y = head.load(head.call.y + head.y_at, head.y_stride, By::column);
  for (unsigned i = 0; i < By::kLaneRows; ++i) projections[i] = T(0);
  products.for_each([&](unsigned i, unsigned j, T& grad_y) {
    projections[i] += By::rounded(grad_y) * y.at[i][j];
  });
#pragma unroll
  for (unsigned i = 0; i < By::kLaneRows; ++i) {
    projections[i] = sum_over_row<By>(projections[i]);
    head.store_number(head.call.projections, i, projections[i]);
    const unsigned at = head.first + By::row(i);
    log_sums[i] = at < head.call.length ? head.call.log_sums[head.row_at + at] : T(0);
  }
}

template <typename Wanted, typename Element, unsigned kChannels>
__global__ void __launch_bounds__(kBlockThreads, kBlocks<kChannels>)
    query_gradient_kernel(Attention<Element> call) {
  using By = Available<Wanted>;
  using T = typename By::Number;
  constexpr unsigned kRows = kBackwardTile<By, kChannels>;
  __shared__ Tile<typename By::Stored, kRows, kChannels> keys, values;
  const Head<By, Element, kChannels> head(call, Order::last_block_first);
  T log_sums[By::kLaneRows], projections[By::kLaneRows];
  project(head, log_sums, projections);
  const auto q = head.factor(call.qkv + head.qkv_at, head.qkv_stride);
  const auto grad_y = head.factor(call.grad_y + head.y_at, head.y_stride);
  LaneRows<By, kChannels> grad_q{};
  head.for_keys(keys, values, [&](unsigned key, Span seen) {
    LaneRows<By, kRows> scores{}, grad_p{};
    By::multiply_rows(scores, q, keys, seen);
    By::multiply_rows(grad_p, grad_y, values, seen);
    scores.for_each([&](unsigned i, unsigned j, T& score) {
      const bool is_seen = key + By::column(j) <= head.first + By::row(i);
      const T p = is_seen ? exp_of(call.scale * score - log_sums[i]) : T(0);
      score = call.scale * p * (grad_p.at[i][j] - projections[i]);
    });
    By::multiply_columns(grad_q, By::factor(scores), keys, seen);
  });
  head.store(call.grad_qkv + head.qkv_at, head.qkv_stride, grad_q);
}

// Here the rows of scores are keys, and their columns queries.
template <typename Wanted, typename Element, unsigned kChannels>
__global__ void __launch_bounds__(kBlockThreads, kBlocks<kChannels>)
    key_gradient_kernel(Attention<Element> call) {
  using By = Available<Wanted>;
  using T = typename By::Number;
  constexpr unsigned kRows = kBackwardTile<By, kChannels>;
  __shared__ Tile<typename By::Stored, kRows, kChannels> queries, grads;
  __shared__ T log_sums[kRows], projections[kRows];
  const Head<By, Element, kChannels> head(call, Order::first_block_first);
  const Element* const rows = call.qkv + head.qkv_at;
  const auto k = head.factor(rows + call.channels, head.qkv_stride);
  const auto v = head.factor(rows + 2 * std::size_t{call.channels}, head.qkv_stride);
  LaneRows<By, kChannels> grad_k{}, grad_v{};
  for (unsigned query = head.block_first; query < call.length; query += kRows) {
    __syncthreads();
    head.load_tile(rows, head.qkv_stride, query, queries);
    head.load_tile(call.grad_y + head.y_at, head.y_stride, query, grads);
    if (threadIdx.x < kRows) {
      const bool is_row = query + threadIdx.x < call.length;
      const std::size_t at = head.row_at + query + threadIdx.x;
      log_sums[threadIdx.x] = is_row ? call.log_sums[at] : static_cast<T>(INFINITY);  // P = 0
      projections[threadIdx.x] = is_row ? call.projections[at] : T(0);
    }
    __syncthreads();
    const Span seeing = head.queries_seeing(query, kRows);
    if (seeing.is_empty()) continue;
    LaneRows<By, kRows> scores{}, grad_p{};
    By::multiply_rows(scores, k, queries, seeing);
    scores.for_each([&](unsigned i, unsigned j, T& score) {
      const bool is_seen = head.first + By::row(i) <= query + By::column(j);
      score = is_seen ? exp_of(call.scale * score - log_sums[By::column(j)]) : T(0);
    });
    By::multiply_columns(grad_v, By::factor(scores), grads, seeing);
    By::multiply_rows(grad_p, v, grads, seeing);
    scores.for_each([&](unsigned i, unsigned j, T& p) {
      p *= call.scale * (grad_p.at[i][j] - projections[By::column(j)]);
    });
    By::multiply_columns(grad_k, By::factor(scores), queries, seeing);
  }
  Element* const grad_rows = call.grad_qkv + head.qkv_at;
  head.store(grad_rows + call.channels, head.qkv_stride, grad_k);
  head.store(grad_rows + 2 * std::size_t{call.channels}, head.qkv_stride, grad_v);
}

template <typename Element>
Attention<Element> attention_of(const AttentionShape& shape, const ConstTensorView& qkv) {
  Attention<Element> call{};
  call.qkv = data_of<Element>(qkv);
  call.length = static_cast<unsigned>(shape.length);
  call.heads = static_cast<unsigned>(shape.heads);
  call.head_size = static_cast<unsigned>(shape.head_size);
  call.channels = static_cast<unsigned>(shape.channels());
  call.blocks_per_head = static_cast<unsigned>((shape.length + kBlockRows - 1) / kBlockRows);
  call.scale =
      static_cast<ArithmeticOf<Element>>(1 / std::sqrt(static_cast<double>(shape.head_size)));
  call.is_wide = shape.head_size % kWidth<Element> == 0 && is_aligned(qkv.data);
  return call;
}

LaunchShape blocks_of(const AttentionShape& shape) {
  const std::size_t per_head = (shape.length + kBlockRows - 1) / kBlockRows;
  return {dim3(static_cast<unsigned>(shape.batch * shape.heads * per_head)), dim3(kBlockThreads)};
}

// Calls function.operator()<kChannels>() with the channels of a head, rounded up.
template <typename Function>
void for_channels(std::size_t head_size, Function&& function) {
  if (head_size <= 16) return function.template operator()<16u>();
  if (head_size <= 32) return function.template operator()<32u>();
  if (head_size <= 64) return function.template operator()<64u>();
  function.template operator()<128u>();
}

// Calls function.operator()<By, Element>() with the type that multiplies elements of this dtype in
// the precision in force.
template <typename Function>
void for_products(DType dtype, const char* operation, Function&& function) {
  if (dtype == DType::bfloat16) {
    return function.template operator()<TensorCores<Bfloat16>, Bfloat16>();
  }
  const FactorType factors = dtype == DType::float32 ? factor_type() : FactorType::float32;
  if (factors == FactorType::tf32) return function.template operator()<TensorCores<Tf32>, float>();
  if (factors == FactorType::bfloat16) {
    return function.template operator()<TensorCores<Bfloat16>, float>();
  }
  for_floating(dtype, operation, [&]<typename T>() { function.template operator()<Fma<T>, T>(); });
}

}  // namespace

void CudaBackend::attention_forward(Stream& stream, const AttentionForward& call) {
  if (call.y.num_elements == 0) return;
  const auto* name = "attention";
  for_products(call.qkv.dtype, name, [&]<typename By, typename Element>() {
    using T = ArithmeticOf<Element>;
    Attention<Element> work = attention_of<Element>(call.shape, call.qkv);
    work.y = data_of<Element>(call.y);
    work.log_sums = data_of<T>(call.log_sums);
    for_channels(call.shape.head_size, [&]<unsigned kChannels>() {
      launch(stream, name, blocks_of(call.shape), attention_kernel<By, Element, kChannels>, work);
    });
  });
}

void CudaBackend::attention_backward(Stream& stream, const AttentionBackward& call) {
  if (call.y.num_elements == 0) return;
  const auto* name = "attention backward";
  for_products(call.qkv.dtype, name, [&]<typename By, typename Element>() {
    using T = ArithmeticOf<Element>;
    Attention<Element> work = attention_of<Element>(call.shape, call.qkv);
    work.y = const_cast<Element*>(data_of<Element>(call.y));
    work.log_sums = const_cast<T*>(data_of<T>(call.log_sums));
    work.grad_y = data_of<Element>(call.grad_y);
    work.grad_qkv = data_of<Element>(call.grad_qkv);
    work.projections = data_of<T>(call.scratch);
    work.is_wide = work.is_wide && is_aligned(work.grad_y);
    for_channels(call.shape.head_size, [&]<unsigned kChannels>() {
      launch(stream, name, blocks_of(call.shape), query_gradient_kernel<By, Element, kChannels>,
             work);
      launch(stream, name, blocks_of(call.shape), key_gradient_kernel<By, Element, kChannels>,
             work);
    });
  });
}

}  // namespace lockstep::kernels::cuda
