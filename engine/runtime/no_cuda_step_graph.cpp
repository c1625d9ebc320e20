// What stands for engine/runtime/cuda/step_graph.cpp in a build without CUDA.
#include "engine/core/error.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::runtime {

struct StepGraph::Parts {};

StepGraph::StepGraph(std::vector<Device>) {
  fail(ErrorCode::Usage, "graph", "a step is captured on CUDA devices: {}", no_gpu_reason());
}
StepGraph::~StepGraph() = default;
void StepGraph::run(const std::function<void()>&) {}
bool StepGraph::is_captured() const {
  return false;
}
std::size_t StepGraph::num_nodes() const {
  return 0;
}
std::size_t StepGraph::longest_chain() const {
  return 0;
}

const std::int64_t* captured_step_number(Device) {
  return nullptr;
}

bool is_capturing_step() {
  return false;
}

}  // namespace lockstep::runtime
