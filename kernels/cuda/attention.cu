// Causal attention without a matrix of scores. Four threads of a warp share a query (in backward
// also a key): each holds a quarter of its channels in registers. A block of threads goes through
// the keys, or queries, in tiles of shared memory. Every sum has one order, and there are no
// atomics.
// Source: Dao et al., "FlashAttention", NeurIPS 2022.
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned kLanes = 4;                  // threads of a query or key
constexpr unsigned kWarpRows = kWarp / kLanes;  // queries or keys of a warp
constexpr unsigned kRows = 32;                  // queries or keys of a block
// Rows of a tile: two tiles of the largest heads are 32 KiB.
template <typename T>
constexpr unsigned kTile = 128 / sizeof(T);

template <typename T>
struct Attention {
  const T* qkv;
  T* y;
  T* log_sums;
  const T* grad_y;
  T* grad_qkv;
  T* projections;  // [batch, heads, length]: grad_y * y of each row
  unsigned length, heads, head_size, channels, blocks_per_head;
  T scale;
  bool takes_bfloat16;
};

// A thread's channel number e. A thread has 16 bytes at a time, one read of shared memory.
template <typename T>
__device__ unsigned channel_of(unsigned e, unsigned lane) {
  constexpr unsigned kWide = kWidth<T>;
  return (e / kWide * kLanes + lane) * kWide + e % kWide;
}

// The block's head of one sequence, and its first query or key. kPer: channels of a thread; those
// beyond the head's are zero.
template <typename T, unsigned kPer>
struct Head {
  std::size_t qkv_at, y_at, row_at;  // where the head's elements begin
  std::size_t qkv_stride, y_stride;
  unsigned first, row, lane, length, size;
  bool takes_bfloat16;

  __device__ explicit Head(const Attention<T>& call)
      : qkv_stride(3 * std::size_t{call.channels}),
        y_stride(call.channels),
        length(call.length),
        size(call.head_size),
        takes_bfloat16(call.takes_bfloat16) {
    const unsigned index = blockIdx.x / call.blocks_per_head;
    const std::size_t first_row = std::size_t{index / call.heads} * call.length;
    const std::size_t column = std::size_t{index % call.heads} * call.head_size;
    qkv_at = first_row * qkv_stride + column;
    y_at = first_row * y_stride + column;
    row_at = std::size_t{index} * call.length;
    first = blockIdx.x % call.blocks_per_head * kRows;
    // Neighbouring threads read the same channels of a tile, so one read serves them all.
    row = first + threadIdx.x / kWarp * kWarpRows + threadIdx.x % kWarpRows;
    lane = threadIdx.x % kWarp / kWarpRows;
  }
  __device__ T taken(T value) const {
    if constexpr (std::is_same_v<T, float>) {
      if (takes_bfloat16) return static_cast<float>(Bfloat16(value));
    }
    return value;
  }
  // This thread's channels of a row.
  __device__ void load(const T* from, std::size_t stride, unsigned at, T (&to)[kPer]) const {
#pragma unroll
    for (unsigned e = 0; e < kPer; ++e) {
      const unsigned channel = channel_of<T>(e, lane);
      to[e] = at < length && channel < size ? taken(from[at * stride + channel]) : T(0);
    }
  }
  __device__ void store(T* to, std::size_t stride, unsigned at, const T (&from)[kPer]) const {
    if (at >= length) return;
#pragma unroll
    for (unsigned e = 0; e < kPer; ++e) {
      const unsigned channel = channel_of<T>(e, lane);
      if (channel < size) to[at * stride + channel] = from[e];
    }
  }
  // All threads of the block load the rows of a tile, from `begin` on.
  __device__ void load_tile(const T* from, std::size_t stride, unsigned begin,
                            T (&tile)[kTile<T>][kPer * kLanes]) const {
    constexpr unsigned kWide = kPer * kLanes;
    for (unsigned i = threadIdx.x; i < kTile<T> * kWide; i += blockDim.x) {
      const unsigned at = begin + i / kWide;
      const unsigned channel = i % kWide;
      tile[i / kWide][channel] =
          at < length && channel < size ? taken(from[at * stride + channel]) : T(0);
    }
  }
};

// The sum over the threads of a row, in all of them. REQUIRES: a whole warp calls it.
template <typename T>
__device__ T sum_over_lanes(T value) {
  value += __shfl_xor_sync(kAllLanes, value, kWarpRows);
  value += __shfl_xor_sync(kAllLanes, value, 2 * kWarpRows);
  return value;
}

template <unsigned kPer, typename T>
__device__ T dot(const T (&mine)[kPer], const T* row, unsigned lane) {
  T sum = T(0);
#pragma unroll
  for (unsigned e = 0; e < kPer; ++e) sum += mine[e] * row[channel_of<T>(e, lane)];
  return sum_over_lanes(sum);
}

template <unsigned kPer, typename T>
__device__ void add_times(T (&to)[kPer], T factor, const T* row, unsigned lane) {
#pragma unroll
  for (unsigned e = 0; e < kPer; ++e) to[e] += factor * row[channel_of<T>(e, lane)];
}

template <typename T, unsigned kPer>
__global__ void attention_kernel(Attention<T> call) {
  alignas(16) __shared__ T keys[kTile<T>][kPer * kLanes];
  alignas(16) __shared__ T values[kTile<T>][kPer * kLanes];
  const Head<T, kPer> head(call);
  const T* const q_rows = call.qkv + head.qkv_at;
  T q[kPer];
  T sum[kPer] = {};
  head.load(q_rows, head.qkv_stride, head.row, q);
  T largest = -static_cast<T>(INFINITY);
  T total = T(0);
  for (unsigned key = 0; key < head.first + kRows && key < head.length; key += kTile<T>) {
    __syncthreads();
    head.load_tile(q_rows + call.channels, head.qkv_stride, key, keys);
    head.load_tile(q_rows + 2 * std::size_t{call.channels}, head.qkv_stride, key, values);
    __syncthreads();
    T scores[kTile<T>];
    T top = largest;
#pragma unroll
    for (unsigned j = 0; j < kTile<T>; ++j) {
      const T score = call.scale * dot(q, keys[j], head.lane);
      scores[j] = key + j <= head.row ? score : -static_cast<T>(INFINITY);
      top = scores[j] > top ? scores[j] : top;
    }
    const T kept = exp_of(largest - top);
    total *= kept;
#pragma unroll
    for (unsigned e = 0; e < kPer; ++e) sum[e] *= kept;
#pragma unroll
    for (unsigned j = 0; j < kTile<T>; ++j) {
      const T p = exp_of(scores[j] - top);
      total += p;
      add_times(sum, p, values[j], head.lane);
    }
    largest = top;
  }
#pragma unroll
  for (unsigned e = 0; e < kPer; ++e) sum[e] *= T(1) / total;
  head.store(call.y + head.y_at, head.y_stride, head.row, sum);
  if (head.lane == 0 && head.row < head.length) {
    call.log_sums[head.row_at + head.row] = largest + log_of(total);
  }
}

// The gradient of queries, and the projections for that of keys and values.
template <typename T, unsigned kPer>
__global__ void query_gradient_kernel(Attention<T> call) {
  alignas(16) __shared__ T keys[kTile<T>][kPer * kLanes];
  alignas(16) __shared__ T values[kTile<T>][kPer * kLanes];
  const Head<T, kPer> head(call);
  const T* const q_rows = call.qkv + head.qkv_at;
  T q[kPer];
  T grad_y[kPer];
  T grad_q[kPer] = {};
  head.load(q_rows, head.qkv_stride, head.row, q);
  head.load(call.grad_y + head.y_at, head.y_stride, head.row, grad_y);
  const bool is_row = head.row < head.length;
  T product = T(0);
  {
    T y[kPer];
    head.load(call.y + head.y_at, head.y_stride, head.row, y);
#pragma unroll
    for (unsigned e = 0; e < kPer; ++e) product += grad_y[e] * y[e];
  }
  const T projection = sum_over_lanes(product);
  if (is_row && head.lane == 0) call.projections[head.row_at + head.row] = projection;
  const T log_sum = is_row ? call.log_sums[head.row_at + head.row] : T(0);
  for (unsigned key = 0; key < head.first + kRows && key < head.length; key += kTile<T>) {
    __syncthreads();
    head.load_tile(q_rows + call.channels, head.qkv_stride, key, keys);
    head.load_tile(q_rows + 2 * std::size_t{call.channels}, head.qkv_stride, key, values);
    __syncthreads();
    for (unsigned j = 0; j < kTile<T>; ++j) {
      const T score = call.scale * dot(q, keys[j], head.lane);
      const T grad_p = dot(grad_y, values[j], head.lane);
      if (key + j > head.row || !is_row) continue;
      const T p = exp_of(score - log_sum);
      add_times(grad_q, call.scale * p * (grad_p - projection), keys[j], head.lane);
    }
  }
  head.store(call.grad_qkv + head.qkv_at, head.qkv_stride, head.row, grad_q);
}

template <typename T, unsigned kPer>
__global__ void key_gradient_kernel(Attention<T> call) {
  alignas(16) __shared__ T queries[kTile<T>][kPer * kLanes];
  alignas(16) __shared__ T grads[kTile<T>][kPer * kLanes];
  const Head<T, kPer> head(call);
  const T* const q_rows = call.qkv + head.qkv_at;
  T k[kPer];
  T v[kPer];
  T grad_k[kPer] = {};
  T grad_v[kPer] = {};
  head.load(q_rows + call.channels, head.qkv_stride, head.row, k);
  head.load(q_rows + 2 * std::size_t{call.channels}, head.qkv_stride, head.row, v);
  for (unsigned query = head.first; query < head.length; query += kTile<T>) {
    __syncthreads();
    head.load_tile(q_rows, head.qkv_stride, query, queries);
    head.load_tile(call.grad_y + head.y_at, head.y_stride, query, grads);
    __syncthreads();
    for (unsigned j = 0; j < kTile<T>; ++j) {
      const T score = call.scale * dot(k, queries[j], head.lane);
      const T grad_p = dot(v, grads[j], head.lane);
      if (query + j >= head.length || query + j < head.row) continue;
      const std::size_t at = head.row_at + query + j;
      const T p = exp_of(score - call.log_sums[at]);
      add_times(grad_v, p, grads[j], head.lane);
      add_times(grad_k, call.scale * p * (grad_p - call.projections[at]), queries[j], head.lane);
    }
  }
  T* const grad_rows = call.grad_qkv + head.qkv_at;
  head.store(grad_rows + call.channels, head.qkv_stride, head.row, grad_k);
  head.store(grad_rows + 2 * std::size_t{call.channels}, head.qkv_stride, head.row, grad_v);
}

template <typename T>
Attention<T> attention_of(const AttentionShape& shape, const ConstTensorView& qkv) {
  Attention<T> call{};
  call.qkv = data_of<T>(qkv);
  call.length = static_cast<unsigned>(shape.length);
  call.heads = static_cast<unsigned>(shape.heads);
  call.head_size = static_cast<unsigned>(shape.head_size);
  call.channels = static_cast<unsigned>(shape.channels());
  call.blocks_per_head = static_cast<unsigned>((shape.length + kRows - 1) / kRows);
  call.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(shape.head_size)));
  call.takes_bfloat16 = takes_bfloat16();
  return call;
}

LaunchShape blocks_of(const AttentionShape& shape) {
  const std::size_t per_head = (shape.length + kRows - 1) / kRows;
  return {dim3(static_cast<unsigned>(shape.batch * shape.heads * per_head)), dim3(kRows * kLanes)};
}

// Calls function.operator()<kPer>() with the channels of a thread, rounded up.
template <typename Function>
void for_channels(std::size_t head_size, Function&& function) {
  if (head_size <= 4 * kLanes) return function.template operator()<4u>();
  if (head_size <= 8 * kLanes) return function.template operator()<8u>();
  if (head_size <= 16 * kLanes) return function.template operator()<16u>();
  function.template operator()<32u>();
}

}  // namespace

void CudaBackend::attention_forward(Stream& stream, const AttentionForward& call) {
  if (call.y.num_elements == 0) return;
  for_floating(call.qkv.dtype, "attention", [&]<typename T>() {
    Attention<T> work = attention_of<T>(call.shape, call.qkv);
    work.y = data_of<T>(call.y);
    work.log_sums = data_of<T>(call.log_sums);
    for_channels(call.shape.head_size, [&]<unsigned kPer>() {
      launch(stream, "attention", blocks_of(call.shape), attention_kernel<T, kPer>, work);
    });
  });
}

void CudaBackend::attention_backward(Stream& stream, const AttentionBackward& call) {
  if (call.y.num_elements == 0) return;
  const auto* name = "attention backward";
  for_floating(call.qkv.dtype, name, [&]<typename T>() {
    Attention<T> work = attention_of<T>(call.shape, call.qkv);
    work.y = const_cast<T*>(data_of<T>(call.y));
    work.log_sums = const_cast<T*>(data_of<T>(call.log_sums));
    work.grad_y = data_of<T>(call.grad_y);
    work.grad_qkv = data_of<T>(call.grad_qkv);
    work.projections = data_of<T>(call.scratch);
    for_channels(call.shape.head_size, [&]<unsigned kPer>() {
      launch(stream, name, blocks_of(call.shape), query_gradient_kernel<T, kPer>, work);
      launch(stream, name, blocks_of(call.shape), key_gradient_kernel<T, kPer>, work);
    });
  });
}

// The plain version keeps all scores: a warp per row.

namespace {

template <typename T>
__global__ void causal_softmax_kernel(const T* scores, std::size_t rows, std::size_t cols,
                                      std::size_t length, T scale, T* p) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const T* const from = scores + row * cols;
    T* const to = p + row * cols;
    const std::size_t seen = row % length + 1;
    T top = -static_cast<T>(INFINITY);
    for (std::size_t j = lane; j < seen; j += kWarp) {
      const T score = scale * from[j];
      top = score > top ? score : top;
    }
    top = largest_in_all_lanes(top);
    double sum = 0;
    for (std::size_t j = lane; j < seen; j += kWarp) {
      sum += static_cast<double>(exp_of(scale * from[j] - top));
    }
    sum = sum_in_all_lanes(sum);
    const T inverse = static_cast<T>(1 / sum);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      to[j] = j < seen ? exp_of(scale * from[j] - top) * inverse : T(0);
    }
  });
}

template <typename T>
__global__ void causal_softmax_gradient_kernel(const T* p, const T* grad_p, std::size_t rows,
                                               std::size_t cols, T scale, T* grad_scores) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const T* const share = p + row * cols;
    const T* const grad = grad_p + row * cols;
    double sum = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) {
      sum += static_cast<double>(share[j]) * static_cast<double>(grad[j]);
    }
    sum = sum_in_all_lanes(sum);
    const T projection = static_cast<T>(sum);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      grad_scores[row * cols + j] = scale * share[j] * (grad[j] - projection);
    }
  });
}

}  // namespace

void CudaBackend::causal_softmax_forward(Stream& stream, const CausalSoftmaxForward& call) {
  if (call.scores.num_elements() == 0) return;
  const std::size_t rows = call.scores.batch * call.scores.rows;
  for_floating(call.scores.dtype, "causal_softmax", [&]<typename T>() {
    launch(stream, "causal_softmax", covering(rows * kWarp, kThreads), causal_softmax_kernel<T>,
           data_of<T>(call.scores), rows, call.scores.cols, call.scores.rows,
           static_cast<T>(call.scale), data_of<T>(call.p));
  });
}

void CudaBackend::causal_softmax_backward(Stream& stream, const CausalSoftmaxBackward& call) {
  if (call.p.num_elements() == 0) return;
  const std::size_t rows = call.p.batch * call.p.rows;
  for_floating(call.p.dtype, "causal_softmax backward", [&]<typename T>() {
    launch(stream, "causal_softmax backward", covering(rows * kWarp, kThreads),
           causal_softmax_gradient_kernel<T>, data_of<T>(call.p), data_of<T>(call.grad_p), rows,
           call.p.cols, static_cast<T>(call.scale), data_of<T>(call.grad_scores));
  });
}

}  // namespace lockstep::kernels::cuda
