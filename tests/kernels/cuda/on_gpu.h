// Helpers of the CUDA kernels' tests: values in device memory, beside the CPU's answer in
// double.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "engine/runtime/cuda_device.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/storage.h"
#include "tests/kernels/reference.h"

namespace lockstep::kernels {

// Around the widths of warps, vectors and blocks; the last one fills many blocks.
inline constexpr std::size_t kGpuSizes[] = {0, 1, 3, 31, 33, 1000, 1'000'003};

// Skips where there is no GPU, and says why.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime::physical_gpus().empty()) GTEST_SKIP() << runtime::no_gpu_reason();
  }
};
template <typename T>
class TypedGpuTest : public GpuTest {};

inline Backend& gpu() {
  return backend(DeviceType::cuda);
}
inline runtime::LogicalDevice& gpu_device() {
  return runtime::logical_device({DeviceType::cuda, 0});
}
inline Stream& gpu_stream() {
  return gpu_device().compute_stream();
}
inline Stream& cpu_stream() {
  return stream_with(1);
}

// A vector of values in the GPU's memory.
template <typename T>
class OnGpu {
 public:
  // skew: elements by which the first one misses the alignment of the memory.
  explicit OnGpu(const std::vector<T>& values, std::size_t skew = 0)
      : size_(values.size()),
        block_(gpu_device().memory().allocate((values.size() + skew) * sizeof(T) + 64)),
        data_(static_cast<T*>(block_.data) + skew) {
    if (size_ == 0) return;
    runtime::copy_between({gpu_device(), data_},
                          {runtime::logical_device({DeviceType::cpu, 0}), values.data()},
                          size_ * sizeof(T));
  }
  explicit OnGpu(std::size_t size, T value = T(0)) : OnGpu(std::vector<T>(size, value)) {}
  explicit OnGpu(const Array<T>& array, std::size_t skew = 0) : OnGpu(array.values, skew) {}
  ~OnGpu() { gpu_device().memory().release(block_, {gpu_stream().record()}); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  TensorView view() const { return {data_, dtype_of<T>, size_}; }
  T* data() const { return data_; }

  // After all work of the device; throws what a kernel found wrong.
  std::vector<T> values() const {
    std::vector<T> result(size_);
    if (size_ == 0) {
      gpu_stream().synchronize();
      return result;
    }
    runtime::copy_between({runtime::logical_device({DeviceType::cpu, 0}), result.data()},
                          {gpu_device(), data_}, size_ * sizeof(T));
    return result;
  }
  std::vector<double> as_double() const {
    const std::vector<T> result = values();
    return {result.begin(), result.end()};
  }

 private:
  std::size_t size_;
  runtime::MemoryPool::Block block_;
  T* data_;
};

// A Grid (a matrix with a margin) in the GPU's memory.
template <typename T>
class GridOnGpu {
 public:
  explicit GridOnGpu(const Grid<T>& grid, std::size_t skew = 0)
      : grid_(grid), memory_(grid.values, skew) {}

  MatrixView view() const {
    return {memory_.data(),          dtype_of<T>, grid_.rows,         grid_.cols,
            grid_.leading_dimension, 1,           grid_.values.size()};
  }
  // As it is now.
  Grid<T> grid() const {
    Grid<T> result = grid_;
    result.values = memory_.values();
    return result;
  }

 private:
  Grid<T> grid_;
  OnGpu<T> memory_;
};

// The same values in double, for the reference.
template <typename T>
Array<double> in_double(const Array<T>& array) {
  return Array<double>(std::vector<double>(array.values.begin(), array.values.end()));
}
template <typename T>
Grid<double> in_double(const Grid<T>& grid) {
  Grid<double> result(grid.rows, grid.cols);
  for (std::size_t i = 0; i < grid.rows; ++i) {
    for (std::size_t j = 0; j < grid.cols; ++j) result(i, j) = static_cast<double>(grid(i, j));
  }
  return result;
}

// y = the sum of each column of x: a layer's bias gradient.
inline void sum_columns(Backend& backend, Stream& stream, const ConstMatrixView& x, TensorView y) {
  const auto nothing = [&](std::size_t rows) { return matrix_view(x.data, x.dtype, rows, 0); };
  backend.linear_backward(stream, nothing(x.rows), nothing(x.cols), x, {}, {}, y);
}

}  // namespace lockstep::kernels
