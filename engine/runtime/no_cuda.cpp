// Replaces engine/runtime/cuda in a build without CUDA.
#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::runtime {

const std::vector<PhysicalGpu>& physical_gpus() {
  static const std::vector<PhysicalGpu> none;
  return none;
}

const std::string& no_gpu_reason() {
  static const std::string reason = "this build has no CUDA; use cpu, or build the cuda preset";
  return reason;
}

bool has_peer_access(int from, int to) {
  return from == to;
}

DeviceParts make_cuda_parts(LogicalDevice&, int) {
  fail(ErrorCode::Device, "device", "{}", no_gpu_reason());
}

std::unique_ptr<MemoryPool> make_cuda_memory_pool(std::string, int, MemoryPool*) {
  fail(ErrorCode::Device, "device", "{}", no_gpu_reason());
}

MemoryPool& pinned_memory_pool() {
  static MemoryPool& pool = *make_host_memory_pool("host staging").release();
  return pool;
}

void copy_on_cuda_stream(Stream&, void*, const void*, std::size_t) {
  fail(ErrorCode::Device, "copy", "{}", no_gpu_reason());
}

void copy_between(Destination, Source, std::size_t) {
  fail(ErrorCode::Device, "copy", "{}", no_gpu_reason());
}

bool is_pinned(int, const void*) {
  return false;
}

// The functions of cuda/step_graph.cpp in a build without CUDA.

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

const std::int64_t* captured_step_number(Device) {
  return nullptr;
}

bool is_capturing_step() {
  return false;
}

}  // namespace lockstep::runtime
