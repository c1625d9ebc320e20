// Sums, norms and the largest elements of rows: every element is read once, in one launch. The norm
// of more than 192 tensors takes a launch per 192.
#include <cmath>
#include <cstdint>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

struct Itself {
  __device__ double operator()(auto x) const { return static_cast<double>(x); }
};

// A launch of a norm starts afresh, or adds to the squares of the launches before.
enum class Carry { starts, goes_on };

// *y = sqrt(the squares of all launches so far).
template <typename T, typename List, typename Y>
__global__ void norm_kernel(List list, std::size_t elements_per_block, Carry carry, Y* y,
                            Workspace workspace) {
  const Slice slice = slice_of_block(list, elements_per_block);
  const T* x = static_cast<const T*>(list.data[0][slice.tensor]);
  double sum = 0;
  for_steps<8>(slice.begin + threadIdx.x, slice.end, blockDim.x, [&](std::size_t i) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  });
  sum_over_launch(sum, workspace, [&](double total) {
    const double squares = carry == Carry::goes_on ? *workspace.carry + total : total;
    *workspace.carry = squares;
    *y = static_cast<Y>(sqrt(squares));
  });
}

// Gives a launch about a thousand blocks, whose sums fit into the workspace.
std::size_t norm_elements_per_block(std::span<const ConstTensorView> x) {
  constexpr std::size_t kLeast = 4096;
  std::size_t total = 0;
  for (const ConstTensorView& tensor : x) total += tensor.num_elements;
  return (total / 1024 / kLeast + 1) * kLeast;
}

}  // namespace

void CudaBackend::sum(Stream& stream, const Sum& call) {
  for_floating(call.x.dtype, "sum", [&]<typename T>() {
    launch_reduce(stream, "sum", data_of<T>(call.y), call.x.num_elements, 1.0, Itself{},
                  data_of<T>(call.x));
  });
}

void CudaBackend::norm(Stream& stream, const Norm& call) {
  const std::size_t elements_per_block = norm_elements_per_block(call.x);
  const Workspace workspace = workspace_of(stream);
  Carry carry = Carry::starts;
  const auto norm_of = [&]<typename T, typename Y>() {
    const auto entry = [&](std::size_t i) -> TensorEntry<1> {
      if (call.x[i].dtype != dtype_of<T>) return {};
      return {{const_cast<void*>(call.x[i].data)}, call.x[i].num_elements};
    };
    for_tensor_lists<1>(call.x.size(), elements_per_block, entry,
                        [&]<typename List>(const List& list, unsigned num_blocks, bool) {
                          launch(stream, "norm", {dim3(num_blocks), dim3(kThreads)},
                                 norm_kernel<T, List, Y>, list, elements_per_block, carry,
                                 data_of<Y>(call.y), workspace);
                          carry = Carry::goes_on;
                        });
  };
  for (const ConstTensorView& tensor : call.x) require_floating("norm", tensor.dtype);
  for_floating(call.y.dtype, "norm", [&]<typename Y>() {
    norm_of.template operator()<float, Y>();
    norm_of.template operator()<double, Y>();
  });
  if (carry == Carry::starts) fill(stream, {call.y, 0});
}

// A warp finds the largest element of each row.
namespace {

template <typename T>
struct Candidate {
  T value;
  std::int64_t column;  // -1: none
};

// True if b comes before a: if it is larger (a NaN counts as larger than everything), or equal and
// further left.
template <typename T>
__device__ bool is_better(const Candidate<T>& a, const Candidate<T>& b) {
  if (b.column < 0 || a.column < 0) return a.column < 0;
  const bool a_is_nan = a.value != a.value;
  const bool b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return b_is_nan;
  if (!a_is_nan && a.value != b.value) return b.value > a.value;
  return b.column < a.column;
}

template <typename X>
__global__ void argmax_kernel(Rows<const X> x, std::size_t rows, std::size_t cols,
                              std::int64_t* y) {
  using T = ArithmeticOf<X>;
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const X* const values = x[row];
    Candidate<T> best{T(0), -1};
#pragma unroll 4
    for (std::size_t column = lane; column < cols; column += kWarp) {
      const Candidate<T> next{number(values[column]), static_cast<std::int64_t>(column)};
      if (is_better(best, next)) best = next;
    }
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      const Candidate<T> other{__shfl_down_sync(0xffffffffu, best.value, distance),
                               __shfl_down_sync(0xffffffffu, best.column, distance)};
      if (is_better(best, other)) best = other;
    }
    if (lane == 0) y[row] = best.column;
  });
}

}  // namespace

void CudaBackend::argmax_rows(Stream& stream, const ArgmaxRows& call) {
  if (call.x.rows == 0) return;
  for_activations(call.x.dtype, "argmax_rows", [&]<typename T>() {
    launch(stream, "argmax_rows", covering(call.x.rows * kWarp, kThreads), argmax_kernel<T>,
           rows_of<T>(call.x), call.x.rows, call.x.cols, data_of<std::int64_t>(call.y));
  });
}

}  // namespace lockstep::kernels::cuda
