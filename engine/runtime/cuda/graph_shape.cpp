#include "engine/runtime/cuda/graph_shape.h"

#include <algorithm>
#include <map>
#include <vector>

#include "engine/runtime/cuda/check.h"

namespace lockstep::runtime::cuda {
namespace {

cudaError_t get_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                      std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, nullptr, count);
#else
  return cudaGraphGetEdges(graph, from, to, count);
#endif
}

// Nodes without a predecessor first, then those whose predecessors have all been seen.
std::size_t longest_chain(const std::vector<cudaGraphNode_t>& nodes,
                          const std::vector<cudaGraphNode_t>& from,
                          const std::vector<cudaGraphNode_t>& to) {
  std::map<cudaGraphNode_t, std::vector<cudaGraphNode_t>> after;
  std::map<cudaGraphNode_t, std::size_t> num_missing;
  std::map<cudaGraphNode_t, std::size_t> length;  // of the longest chain that ends there
  for (std::size_t edge = 0; edge < from.size(); ++edge) {
    after[from[edge]].push_back(to[edge]);
    ++num_missing[to[edge]];
  }
  std::vector<cudaGraphNode_t> ready;
  std::ranges::copy_if(nodes, std::back_inserter(ready),
                       [&](cudaGraphNode_t node) { return !num_missing.contains(node); });
  std::size_t longest = 0;
  while (!ready.empty()) {
    const cudaGraphNode_t node = ready.back();
    ready.pop_back();
    const std::size_t here = length[node] + 1;
    longest = std::max(longest, here);
    for (const cudaGraphNode_t next : after[node]) {
      length[next] = std::max(length[next], here);
      if (--num_missing[next] == 0) ready.push_back(next);
    }
  }
  return longest;
}

}  // namespace

GraphShape shape_of(cudaGraph_t graph) {
  std::size_t num_nodes = 0;
  CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &num_nodes));
  std::size_t num_edges = 0;
  CUDA_CHECK(get_edges(graph, nullptr, nullptr, &num_edges));
  std::vector<cudaGraphNode_t> from(num_edges);
  std::vector<cudaGraphNode_t> to(num_edges);
  if (num_edges > 0) CUDA_CHECK(get_edges(graph, from.data(), to.data(), &num_edges));
  return {num_nodes, longest_chain(nodes, from, to)};
}

}  // namespace lockstep::runtime::cuda
