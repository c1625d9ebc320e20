// Shared by the tests of the emulated GPU: owned streams and device arrays, and launches.
//
// For test sources with kernels: include it first, it brings the device language.
#pragma once

#include <gtest/gtest.h>

#include "tests/emulated_gpu/simt.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>
#include <future>
#include <type_traits>
#include <vector>

#include "engine/runtime/cuda/launch_kernel.h"
#include "tests/emulated_gpu/control.h"

#define EXPECT_CUDA(expected, ...) \
  EXPECT_STREQ(cudaGetErrorName(__VA_ARGS__), cudaGetErrorName(expected))
#define EXPECT_OK(...) EXPECT_CUDA(cudaSuccess, __VA_ARGS__)

namespace emulated_gpu::testing {

// These tests launch kernels behind gates; faults_test.cpp shows what happens without this.
inline const int kLoadsKernelsEarly = setenv("CUDA_MODULE_LOADING", "EAGER", 1);

class Stream {
 public:
  Stream() { EXPECT_OK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle_; }
  void wait() const { EXPECT_OK(cudaStreamSynchronize(handle_)); }

 private:
  cudaStream_t handle_ = nullptr;
};

// An array on the current GPU.
template <typename T>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size) {
    EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)));
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    EXPECT_OK(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    EXPECT_OK(cudaDeviceSynchronize());
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() const { return data_; }
  std::size_t num_bytes() const { return size_ * sizeof(T); }

  // Waits for the current GPU.
  std::vector<T> values() const {
    std::vector<T> result(size_);
    EXPECT_OK(cudaDeviceSynchronize());
    EXPECT_OK(cudaMemcpy(result.data(), data_, num_bytes(), cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

template <typename... Parameters>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  return lockstep::runtime::cuda::launch_kernel<Parameters...>(kernel, config, arguments...);
}

// A stream stops at a gate until it is opened: what is asynchronous can be told from what is not.
class Gate {
 public:
  ~Gate() { open(); }
  void block(cudaStream_t stream) {
    // The stream may come to it when the gate is gone.
    const auto wait = [](void* opened) {
      static_cast<std::shared_future<void>*>(opened)->wait();
      delete static_cast<std::shared_future<void>*>(opened);
    };
    EXPECT_OK(cudaLaunchHostFunc(stream, wait, new std::shared_future<void>(opened_)));
  }
  void open() {
    if (!is_open_) open_.set_value();
    is_open_ = true;
  }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  bool is_open_ = false;
};

}  // namespace emulated_gpu::testing
