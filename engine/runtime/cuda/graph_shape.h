// How many nodes a CUDA graph has, and how many of them must follow each other.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::runtime::cuda {

struct GraphShape {
  std::size_t num_nodes = 0;
  std::size_t longest_chain = 0;  // nodes of the longest path
};
GraphShape shape_of(cudaGraph_t graph);

}  // namespace lockstep::runtime::cuda
