// Lets a test make the emulated cuDNN absent, of another version, or refuse.
#pragma once

#include <cudnn.h>

#include <cstddef>

namespace emulated_gpu::cudnn {

enum class Pass { forward, data, filter };

struct Wishes {
  bool is_absent = false;
  int major = CUDNN_MAJOR;
  // Statuses of the calls that describe a convolution's arithmetic, that ask for algorithms, that
  // run one, and of cudnnCreate.
  cudnnStatus_t describing = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t finding = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t running = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t creating = CUDNN_STATUS_SUCCESS;
  // By pass; false: no algorithm gives the same bits in every run.
  bool has_deterministic[3] = {true, true, true};
};

// REQUIRES: no convolution is being enqueued.
void wish(const Wishes& wishes);
const Wishes& wishes();

// Passes enqueued or captured since the process began.
std::size_t num_run(Pass pass);

}  // namespace emulated_gpu::cudnn
