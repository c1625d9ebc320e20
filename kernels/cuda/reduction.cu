// Sums and norms: every element is read once, in one launch. The norm of more than 192 tensors
// takes a launch per 192.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct Itself {
  __device__ double operator()(const T (&x)[1]) const { return static_cast<double>(x[0]); }
};

template <typename T>
struct SumOfColumn {
  static constexpr int kValues = 1;
  const T* x;
  std::size_t leading_dimension;
  T* y;
  Write write;

  __device__ void add(std::size_t row, std::size_t column, double (&sums)[1]) const {
    sums[0] += static_cast<double>(x[row * leading_dimension + column]);
  }
  __device__ void finish(std::size_t column, const double (&totals)[1]) const {
    const double before = write == Write::accumulate ? static_cast<double>(y[column]) : 0.0;
    y[column] = static_cast<T>(before + totals[0]);
  }
};

// Whether a launch of a norm goes on with the squares of the launches before.
enum class Carry { starts, goes_on };

// *y = sqrt(the squares of all launches so far).
template <typename T, typename List, typename Y>
__global__ void norm_kernel(List list, std::size_t elements_per_block, Carry carry, Y* y,
                            Workspace workspace) {
  const Slice slice = slice_of_block(list, elements_per_block);
  const T* x = static_cast<const T*>(list.data[0][slice.tensor]);
  double sum = 0;
  const auto add = [&](T value) { sum += static_cast<double>(value) * static_cast<double>(value); };
  const std::size_t step = blockDim.x * kWidth<T>;
  std::size_t i = slice.begin + threadIdx.x * kWidth<T>;
  if (is_aligned(x)) {
#pragma unroll 4
    for (; i + kWidth<T> <= slice.end; i += step) {
      const Vector<T> values = load_vector<kWidth<T>>(x + i);
#pragma unroll
      for (std::size_t k = 0; k < kWidth<T>; ++k) add(values.at[k]);
    }
  }
  for (; i < slice.end; i += step) {
    for (std::size_t k = i; k < i + kWidth<T> && k < slice.end; ++k) add(x[k]);
  }
  sum_over_launch(sum, workspace, [&](double total) {
    const double squares = carry == Carry::goes_on ? *workspace.carry + total : total;
    *workspace.carry = squares;
    *y = static_cast<Y>(sqrt(squares));
  });
}

// Enough that a launch has about a thousand blocks, whose sums fit the workspace.
std::size_t norm_elements_per_block(std::span<const ConstTensorView> x) {
  constexpr std::size_t kLeast = 4096;
  std::size_t total = 0;
  for (const ConstTensorView& tensor : x) total += tensor.num_elements;
  return (total / 1024 / kLeast + 1) * kLeast;
}

}  // namespace

void CudaBackend::sum(Stream& stream, ConstTensorView x, TensorView y) {
  checks::sum(x, y);
  for_floating(x.dtype, "sum", [&]<typename T>() {
    launch_reduce(stream, "sum", Inputs<T, 1>{{data_of<T>(x)}}, x.num_elements, Itself<T>{},
                  data_of<T>(y), 1.0);
  });
}

void CudaBackend::sum_rows(Stream& stream, ConstMatrixView x, TensorView y, Write write) {
  checks::sum_rows(x, y);
  for_floating(x.dtype, "sum_rows", [&]<typename T>() {
    launch_column_reduce(stream, "sum_rows", x.rows, x.cols,
                         SumOfColumn<T>{data_of<T>(x), x.leading_dimension, data_of<T>(y), write});
  });
}

void CudaBackend::norm(Stream& stream, std::span<const ConstTensorView> x, TensorView y) {
  checks::norm(y);
  const std::size_t elements_per_block = norm_elements_per_block(x);
  const Workspace workspace = workspace_of(stream);
  Carry carry = Carry::starts;
  const auto norm_of = [&]<typename T, typename Y>() {
    const auto entry = [&](std::size_t i) -> TensorEntry<1> {
      if (x[i].dtype != dtype_of<T>) return {};
      return {{const_cast<void*>(x[i].data)}, x[i].num_elements};
    };
    for_tensor_lists<1>(x.size(), elements_per_block, entry,
                        [&]<typename List>(const List& list, unsigned num_blocks) {
                          launch(stream, "norm", {dim3(num_blocks), dim3(kThreads)},
                                 norm_kernel<T, List, Y>, list, elements_per_block, carry,
                                 data_of<Y>(y), workspace);
                          carry = Carry::goes_on;
                        });
  };
  for (const ConstTensorView& tensor : x) require_floating("norm", tensor.dtype);
  for_floating(y.dtype, "norm", [&]<typename Y>() {
    norm_of.template operator()<float, Y>();
    norm_of.template operator()<double, Y>();
  });
  if (carry == Carry::starts) fill(stream, y, 0);
}

}  // namespace lockstep::kernels::cuda
