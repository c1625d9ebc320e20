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
// Blocks that a multiprocessor holds at a time: while one waits for its tiles, the others multiply.
// Larger heads need the registers of all.
template <unsigned kChannels>
constexpr unsigned kBlocks = kChannels <= 64 ? 3 : 1;
template <typename By, unsigned kChannels>
constexpr unsigned kForwardBlocks = sizeof(typename By::Number) == 8   ? 1
                                    : sizeof(typename By::Stored) == 2 ? kBlocks<kChannels> + 1
                                                                       : kBlocks<kChannels>;

// Element: of activations; T: of sums.
template <typename Element>
struct Attention {
  using T = ArithmeticOf<Element>;
  const Element* qkv;
  Element* y;
  T* log_sums;
  const Element* grad_y;
  Element* grad_qkv;
  T* projections;  // [batch, heads, length]: scale * D
  unsigned length, heads, head_size, channels, blocks_per_head;
  T scale;
  T base_scale;  // makes products logarithms to the type's base
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

  // Replaces the scores of keys that come after their query, in a tile that has some.
  template <unsigned kRows>
  __device__ void mask_keys(LaneRows<By, kRows>& scores, unsigned key, T instead) const {
    if (key + kRows <= first + 1) return;
    scores.for_each([&](unsigned i, unsigned j, T& score) {
      if (key + By::column(j) > first + By::row(i)) score = instead;
    });
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

  // A tile, and the rows that are loaded into it.
  template <unsigned kRows>
  struct Filled {
    Tile<Stored, kRows, kChannels>& tile;
    const Element* from;
    std::size_t stride;
  };
  // All threads of the block load a tile, from row `begin` on, element by element.
  template <unsigned kRows>
  __device__ void load_elements(unsigned begin, const Filled<kRows>& to) const {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < kRows * kChannels; i += kBlockThreads) {
      const unsigned at = begin + i / kChannels, channel = i % kChannels;
      const bool is_there = at < call.length && channel < call.head_size;
      const T value = is_there ? number(to.from[at * to.stride + channel]) : T(0);
      to.tile.at[i / kChannels][channel] = static_cast<Stored>(By::rounded(value));
    }
  }
  // The same for two tiles, by pieces of 16 bytes where that is possible. A thread asks for four
  // before it stores the first, so that it waits for all at once; more would take registers.
  template <unsigned kRows>
  __device__ void load_tiles(unsigned begin, const Filled<kRows>& a, const Filled<kRows>& b) const {
    if (!call.is_wide) {
      load_elements(begin, a);
      return load_elements(begin, b);
    }
    constexpr unsigned kWide = kWidth<Element>, kRowPieces = kChannels / kWide;
    constexpr unsigned kPieces = kRows * kRowPieces, kAtOnce = 4;
#pragma unroll 1
    for (unsigned start = threadIdx.x; start < kPieces; start += kAtOnce / 2 * kBlockThreads) {
      // As whole words: the compiler would take a vector of halves apart.
      Vector<unsigned> pieces[kAtOnce];
#pragma unroll
      for (unsigned n = 0; n < kAtOnce; ++n) {
        const auto& [tile, from, stride] = n % 2 == 0 ? a : b;
        const unsigned i = start + n / 2 * kBlockThreads;
        const unsigned at = begin + i / kRowPieces, channel = i % kRowPieces * kWide;
        const bool is_there = i < kPieces && at < call.length && channel < call.head_size;
        const auto* const piece = reinterpret_cast<const unsigned*>(from + at * stride + channel);
        pieces[n] = is_there ? load_vector<4>(piece) : Vector<unsigned>{};
      }
#pragma unroll
      for (unsigned n = 0; n < kAtOnce; ++n) {
        const unsigned i = start + n / 2 * kBlockThreads;
        if (i >= kPieces) break;
        put(&(n % 2 == 0 ? a : b).tile.at[i / kRowPieces][i % kRowPieces * kWide],
            __builtin_bit_cast(Vector<Element>, pieces[n]));
      }
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
      load_tiles<kRows>(key, {keys, rows + call.channels, qkv_stride},
                        {values, rows + 2 * std::size_t{call.channels}, qkv_stride});
      __syncthreads();
      const Span seen = keys_seen(key, kRows);
      if (!seen.is_empty()) body(key, seen);
    }
  }
};

template <typename Wanted, typename Element, unsigned kChannels>
__global__ void __launch_bounds__(kBlockThreads, kForwardBlocks<Available<Wanted>, kChannels>)
    attention_kernel(Attention<Element> call) {
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
    head.mask_keys(scores, key, -static_cast<T>(INFINITY));
    softmax.take(scores, call.base_scale, y);
    By::multiply_columns(y, By::factor(scores), values, seen);
  });
  T sum[By::kLaneRows];
#pragma unroll
  for (unsigned i = 0; i < By::kLaneRows; ++i) {
    sum[i] = sum_over_row<By>(softmax.sum[i]);
    head.store_number(call.log_sums, i,
                      static_cast<T>(kLogOfBase<T>) * softmax.largest[i] + log_of(sum[i]));
    sum[i] = T(1) / sum[i];
  }
  y.for_each([&](unsigned i, unsigned, T& value) { value *= sum[i]; });
  head.store(call.y + head.y_at, head.y_stride, y);
}

// Reads the log-sums of the warp's queries, as logarithms to the base, and computes scale * D,
// which is also kept for the pass over keys. D takes the factors that the products take, rounded as
// they are.
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
    projections[i] = head.call.scale * sum_over_row<By>(projections[i]);
    head.store_number(head.call.projections, i, projections[i]);
    const unsigned at = head.first + By::row(i);
    log_sums[i] = at < head.call.length
                      ? static_cast<T>(1 / kLogOfBase<T>) * head.call.log_sums[head.row_at + at]
                      : T(0);
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
      const T p = power_of(call.base_scale * score - log_sums[i]);
      score = p * (call.scale * grad_p.at[i][j] - projections[i]);
    });
    head.mask_keys(scores, key, T(0));
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
    head.template load_tiles<kRows>(query, {queries, rows, head.qkv_stride},
                                    {grads, call.grad_y + head.y_at, head.y_stride});
    if (threadIdx.x < kRows) {
      const bool is_row = query + threadIdx.x < call.length;
      const std::size_t at = head.row_at + query + threadIdx.x;
      log_sums[threadIdx.x] = is_row ? static_cast<T>(1 / kLogOfBase<T>) * call.log_sums[at]
                                     : static_cast<T>(INFINITY);  // P = 0
      projections[threadIdx.x] = is_row ? call.projections[at] : T(0);
    }
    __syncthreads();
    const Span seeing = head.queries_seeing(query, kRows);
    if (seeing.is_empty()) continue;
    LaneRows<By, kRows> scores{}, grad_p{};
    By::multiply_rows(scores, k, queries, seeing);
    scores.for_each([&](unsigned, unsigned j, T& score) {
      score = power_of(call.base_scale * score - log_sums[By::column(j)]);
    });
    if (head.first + kWarpRows > query + 1) {  // some key comes after its query
      scores.for_each([&](unsigned i, unsigned j, T& score) {
        if (head.first + By::row(i) > query + By::column(j)) score = T(0);
      });
    }
    By::multiply_columns(grad_v, By::factor(scores), grads, seeing);
    By::multiply_rows(grad_p, v, grads, seeing);
    scores.for_each([&](unsigned i, unsigned j, T& p) {
      p *= call.scale * grad_p.at[i][j] - projections[By::column(j)];
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
  using T = ArithmeticOf<Element>;
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  call.scale = static_cast<T>(scale);
  call.base_scale = static_cast<T>(scale / kLogOfBase<T>);
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
