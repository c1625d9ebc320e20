// What the tests of the GPU's matrix products share: copies of host matrices on cuda:0, and the
// error of a result against the CPU in double.
#pragma once

#include <cmath>

#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/storage.h"
#include "engine/runtime/transfer.h"
#include "tests/kernels/reference.h"

namespace lockstep::kernels {

inline runtime::LogicalDevice& gpu(int index = 0) {
  return runtime::logical_device({DeviceType::cuda, index});
}
inline Backend& cuda_kernels() {
  return backend(DeviceType::cuda);
}

// Skips the tests of a fixture on a machine without a GPU.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime::physical_gpus().empty()) GTEST_SKIP() << runtime::no_gpu_reason();
  }
};

// Device memory that holds what a host vector held.
template <typename T>
class OnDevice {
 public:
  // `offset`: elements before the first one, which then is not at the start of a block.
  explicit OnDevice(const std::vector<T>& values, std::size_t offset = 0)
      : num_elements_(values.size()), storage_(gpu(), (values.size() + offset + 1) * sizeof(T)) {
    data_ = static_cast<T*>(storage_.data()) + offset;
    if (values.empty()) return;
    runtime::copy_between({gpu(), data_}, {host(), values.data()}, num_elements_ * sizeof(T));
  }
  T* data() const { return data_; }
  std::size_t size() const { return num_elements_; }
  std::vector<T> values() const {
    std::vector<T> result(num_elements_);
    if (num_elements_ > 0) {
      runtime::copy_between({host(), result.data()}, {gpu(), data_}, num_elements_ * sizeof(T));
    }
    return result;
  }

 private:
  static runtime::LogicalDevice& host() { return runtime::logical_device({}); }

  std::size_t num_elements_;
  runtime::Storage storage_;
  T* data_ = nullptr;
};

// A matrix on the device, with the margins of the host's.
template <typename T>
class DeviceGrid {
 public:
  explicit DeviceGrid(const Grid<T>& grid, std::size_t offset = 0)
      : host_(grid), memory_(grid.values, offset) {}
  MatrixView view() const {
    MatrixView view = Grid<T>(host_).view();
    view.data = memory_.data();
    return view;
  }
  // As it is now.
  Grid<T> grid() const {
    Grid<T> result = host_;
    result.values = memory_.values();
    return result;
  }

 private:
  Grid<T> host_;
  OnDevice<T> memory_;
};

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const Array<T>& array, std::size_t offset = 0)
      : memory_(array.values, offset) {}
  TensorView view() const { return {memory_.data(), dtype_of<T>, memory_.size()}; }
  std::vector<T> values() const { return memory_.values(); }

 private:
  OnDevice<T> memory_;
};

inline Grid<double> widened(const Grid<float>& grid) {
  Grid<double> result(grid.rows, grid.cols);
  for (std::size_t i = 0; i < grid.rows; ++i) {
    for (std::size_t j = 0; j < grid.cols; ++j) result(i, j) = static_cast<double>(grid(i, j));
  }
  return result;
}
inline Grid<double> widened(const Grid<double>& grid) {
  Grid<double> result(grid.rows, grid.cols);
  result.values = grid.content();
  return result;
}
template <typename T>
Array<double> widened(const Array<T>& array) {
  return Array<double>(std::vector<double>(array.values.begin(), array.values.end()));
}

// |actual - expected| / |expected|, as vectors; 0 for nothing.
template <typename T>
double relative_error(const std::vector<T>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double error = static_cast<double>(actual[i]) - expected[i];
    difference += error * error;
    norm += expected[i] * expected[i];
  }
  if (std::isnan(difference)) return kInfinity;
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

template <typename T>
inline constexpr double kRelativeError = sizeof(T) == 4 ? 1e-5 : 1e-13;

}  // namespace lockstep::kernels
