// Losses. Cross-entropy: forward reads the logits twice, the second time from the cache, and writes
// the probabilities once. Backward reads the probabilities and writes the gradient. The mean
// squared error: forward reads x and target once, backward also writes the gradient.
#include <cmath>
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kManyClasses = 4096;  // for which a block takes a row of logits

// The divisor of a loss's sum: the number of terms for the mean.
double divisor(Reduction reduction, std::size_t num_terms) {
  return reduction == Reduction::mean ? static_cast<double>(num_terms) : 1.0;
}

// A NaN need not be the maximum: it then shows up in the sum.
template <typename T>
__device__ T larger(T a, T b) {
  return b > a ? b : a;
}

// exp(x); for logits of a half type within 1e-5, in five instructions instead of eight.
template <typename X, typename T = ArithmeticOf<X>>
__device__ T exp_of_logit(T x) {
  if constexpr (is_half<X>) return exp2f(x * 1.44269504f);
  return exp_of(x);
}

// For j, j + step, ...: reads kPieces pieces of kWide columns of a row, step apart, and then calls
// use(j, pieces). Returns the first j that fewer pieces have.
template <std::size_t kWide, std::size_t kPieces, typename X, typename Use>
__device__ std::size_t take_pieces(const X* row, std::size_t j, std::size_t end, std::size_t step,
                                   const Use& use) {
  for (; j + (kPieces - 1) * step + kWide <= end; j += kPieces * step) {
    Vector<X, kWide> pieces[kPieces];
#pragma unroll
    for (std::size_t i = 0; i < kPieces; ++i) pieces[i] = load_vector<kWide>(row + j + i * step);
    use(j, pieces);
  }
  return j;
}

// Calls use(j, pieces) for all columns of a row, which kGroup threads share. is_wide: in pieces of
// 16 bytes.
template <unsigned kGroup, typename X, typename Use>
__device__ void take_columns(const X* row, std::size_t cols, bool is_wide, const Use& use) {
  constexpr std::size_t kWide = kWidth<X>;
  const unsigned lane = threadIdx.x % kGroup;
  const std::size_t in_pieces = is_wide ? cols / kWide * kWide : 0;
  const auto j = take_pieces<kWide, 2>(row, lane * kWide, in_pieces, kGroup * kWide, use);
  take_pieces<kWide, 1>(row, j, in_pieces, kGroup * kWide, use);
  const auto k = take_pieces<1, 4>(row, in_pieces + lane, cols, kGroup, use);
  take_pieces<1, 1>(row, k, cols, kGroup, use);
}

// to[j] = result(j, number(from[j])) for all columns of a row; to may be from.
template <unsigned kGroup, typename X, typename Result>
__device__ void map_columns(const X* from, X* to, std::size_t cols, const Result& result) {
  const bool is_wide = is_aligned(from) && is_aligned(to);
  take_columns<kGroup>(from, cols, is_wide, [&](std::size_t j, auto& pieces) {
#pragma unroll
    for (auto& piece : pieces) {
      constexpr std::size_t kWide = sizeof(piece) / sizeof(X);
      const auto of_piece = [&](std::size_t i, auto value) { return result(j + i, value); };
      store_vector(to + j, mapped<X, kWide>(of_piece, piece));
      j += kGroup * kWide;
    }
  });
}

// combine(value) over kGroup threads, a warp or a block, in all of them; combine does so for a
// warp. neutral: the value of missing warps.
template <unsigned kGroup, typename T, typename Combine>
__device__ T over_group(T value, T neutral, const Combine& combine) {
  value = combine(value);
  if constexpr (kGroup > kWarp) {
    __shared__ T warps[kGroup / kWarp];
    const unsigned lane = threadIdx.x % kWarp;
    if (lane == 0) warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = combine(lane < kGroup / kWarp ? warps[lane] : neutral);
    __syncthreads();  // the next call may overwrite `warps`
  }
  return value;
}

template <unsigned kGroup>
__device__ void meet() {
  kGroup > kWarp ? __syncthreads() : __syncwarp();
}

// kGroup threads, a warp or a block, read a row for its maximum and sum, and again for the result.
// It works in place, so it must not write earlier. divisor: of the loss, rows for the mean, else 1.
// From bfloat16 probabilities the label's 1 is subtracted here, because one near 1 has no bits for
// its distance.
template <unsigned kGroup, typename X, typename T = ArithmeticOf<X>>
__global__ void __launch_bounds__(kGroup > kWarp ? kGroup : kThreads)
    forward_kernel(std::size_t rows, std::size_t classes, Rows<const X> logit_rows,
                   const std::int64_t* labels, Rows<X> probability_rows, T* result, double divisor,
                   DeviceFault* fault, Workspace workspace) {
  const T lowest = -static_cast<T>(INFINITY);
  // The subtrahend of exponents: exp(-infinity - largest) is 0 even where all are -infinity so far.
  const auto base_of = [=](T largest) { return largest == lowest ? T(0) : largest; };
  double loss = 0;
  for_rows<kGroup>(rows, [&](std::size_t row, unsigned lane) {
    const X* const logits = logit_rows[row];
    X* const p = probability_rows[row];
    const std::int64_t label = labels[row];
    const bool is_good = is_within(label, classes);
    const T at_label = lane == 0 && is_good ? number(logits[label]) : T(0);
    T largest = lowest;  // of the thread so far
    double sum = 0;      // of exp(logit - base_of(largest))
    take_columns<kGroup>(logits, classes, is_aligned(logits), [&](std::size_t, auto& pieces) {
      const T before = largest;
      for (const auto& piece : pieces) {
        for (const X logit : piece.at) largest = larger(largest, number(logit));
      }
      const T base = base_of(largest);
      sum *= static_cast<double>(exp_of_logit<X>(before - base));
      for (const auto& piece : pieces) {
        T part = T(0);
        for (const X logit : piece.at) part += exp_of_logit<X>(number(logit) - base);
        sum += static_cast<double>(part);
      }
    });
    const T of_thread = largest;
    largest = over_group<kGroup>(largest, lowest, largest_in_all_lanes<T>);
    sum *= static_cast<double>(exp_of(of_thread - base_of(largest)));
    sum = over_group<kGroup>(sum, 0.0, sum_in_all_lanes);
    if (lane == 0) {
      if (!is_good) report_fault(fault, FaultKind::label, label, classes);
      loss +=
          is_good ? log(sum) - static_cast<double>(at_label - largest) : static_cast<double>(NAN);
    }
    const T inverse = static_cast<T>(1 / sum);
    const auto result_of = [&](T logit) { return exp_of_logit<X>(logit - largest) * inverse; };
    meet<kGroup>();
    map_columns<kGroup>(logits, p, classes, [&](std::size_t, T logit) { return result_of(logit); });
    if constexpr (is_half<X>) {
      meet<kGroup>();
      if (lane == 0 && is_good) p[label] = static_cast<X>(result_of(at_label) - 1);
    }
  });
  sum_over_launch(loss, workspace,
                  [&](double total) { *result = static_cast<T>(total / divisor); });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_forward(Stream& stream,
                                                const SoftmaxCrossEntropyForward& call) {
  const auto* name = "cross_entropy";
  for_activations(call.logits.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    const auto start = [&]<unsigned kGroup>(const LaunchShape& shape) {
      launch(stream, name, shape, forward_kernel<kGroup, X>, call.logits.rows, call.logits.cols,
             rows_of<X>(call.logits), data_of<std::int64_t>(call.labels),
             rows_of<X>(call.probabilities), data_of<T>(call.loss),
             divisor(call.reduction, call.logits.rows), runtime::cuda::cuda_stream(stream).fault(),
             workspace_of(stream));
    };
    // A block for a row, and few of them, so that the cache keeps their rows for the second time.
    constexpr unsigned kBlock = 512;
    if (call.logits.cols < kManyClasses) {
      start.template operator()<kWarp>(covering(call.logits.rows * kWarp, kThreads, 4096));
    } else {
      start.template operator()<kBlock>(covering(call.logits.rows * kBlock, kBlock, 256));
    }
  });
}

namespace {

// Columns that a warp reads at once.
template <typename X>
constexpr std::size_t kTile = 2 * kWarp* kWidth<X>;

// A bad label has no gradient.
template <typename X, typename T = ArithmeticOf<X>>
__global__ void backward_kernel(std::size_t rows, std::size_t classes, Rows<const X> probabilities,
                                const std::int64_t* labels, const T* grad_loss, double divisor,
                                Rows<X> grad_logits, DeviceFault* fault) {
  const T factor = static_cast<T>(*grad_loss / divisor);
  for_row_tiles<kTile<X>>(rows, classes, [&](std::size_t row, std::size_t begin, std::size_t end) {
    const std::int64_t label = labels[row];
    const bool is_good = is_within(label, classes);
    if (!is_good && begin == 0 && threadIdx.x % kWarp == 0) {
      report_fault(fault, FaultKind::label, label, classes);
    }
    const std::size_t to_label = static_cast<std::size_t>(label) - begin;
    const unsigned hit = static_cast<unsigned>(to_label < kTile<X> ? to_label : kTile<X>);
    map_columns<kWarp>(
        probabilities[row] + begin, grad_logits[row] + begin, end - begin, [&](std::size_t j, T p) {
          const T target = !is_half<X> && static_cast<unsigned>(j) == hit ? T(1) : T(0);
          return is_good ? (p - target) * factor : T(0);
        });
  });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_backward(Stream& stream,
                                                 const SoftmaxCrossEntropyBackward& call) {
  const auto* name = "cross_entropy backward";
  const std::size_t rows = call.probabilities.rows;
  const std::size_t classes = call.probabilities.cols;
  if (rows == 0) return;
  for_activations(call.probabilities.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    launch(stream, name, row_tiles(rows, classes, kTile<X>), backward_kernel<X>, rows, classes,
           rows_of<X>(call.probabilities), data_of<std::int64_t>(call.labels),
           data_of<T>(call.grad_loss), divisor(call.reduction, rows), rows_of<X>(call.grad_logits),
           runtime::cuda::cuda_stream(stream).fault());
  });
}

// The mean squared error: forward reads x and target once, backward also writes the gradient.

namespace {

template <typename T>
struct SquaredDifference {
  __device__ double operator()(T x, T target) const {
    const double difference = static_cast<double>(x) - static_cast<double>(target);
    return difference * difference;
  }
};

template <typename T>
struct SquaredGradient {
  const T* grad_loss;
  double divisor;
  T factor;  // 2 * grad_loss[0] / divisor

  __device__ void load() { factor = static_cast<T>(2 * *grad_loss / divisor); }
  __device__ T operator()(T x, T target) const { return factor * (x - target); }
};

}  // namespace

void CudaBackend::mse_forward(Stream& stream, const MseForward& call) {
  for_floating(call.x.dtype, "mse", [&]<typename T>() {
    launch_reduce(stream, "mse", data_of<T>(call.loss), call.x.num_elements,
                  divisor(call.reduction, call.x.num_elements), SquaredDifference<T>{},
                  data_of<T>(call.x), data_of<T>(call.target));
  });
}

void CudaBackend::mse_backward(Stream& stream, const MseBackward& call) {
  const auto* name = "mse backward";
  for_floating(call.x.dtype, name, [&]<typename T>() {
    launch_elementwise(stream, name, data_of<T>(call.grad_x), call.grad_x.num_elements,
                       SquaredGradient<T>{data_of<T>(call.grad_loss),
                                          divisor(call.reduction, call.x.num_elements), T(0)},
                       data_of<T>(call.x), data_of<T>(call.target));
  });
}

}  // namespace lockstep::kernels::cuda
