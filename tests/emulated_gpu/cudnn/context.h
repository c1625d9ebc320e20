// Behind cudnnHandle_t; the name is the library's.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

struct cudnnContext {
  int gpu;
  cudaStream_t stream = nullptr;  // null: the default stream, which this project does not use
  std::atomic<bool> is_in_use{false};
};
