#include <cstdlib>
#include <string_view>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

std::size_t number_from_environment(const char* name, std::size_t value) {
  const char* text = std::getenv(name);
  return text == nullptr ? value : std::strtoull(text, nullptr, 10);
}

bool is_in_environment(const char* name, std::string_view value) {
  const char* text = std::getenv(name);
  return text != nullptr && text == value;
}

State::Peers peers_from_environment() {
  constexpr const char* kName = "LOCKSTEP_EMULATED_PEER_ACCESS";
  if (is_in_environment(kName, "none")) return State::Peers::none;
  return is_in_environment(kName, "refused") ? State::Peers::refused : State::Peers::possible;
}

thread_local cudaError_t the_last_error = cudaSuccess;

}  // namespace

State::State()
    : num_bytes_per_gpu(number_from_environment("LOCKSTEP_EMULATED_MEMORY_MIB", 4096) << 20),
      peers(peers_from_environment()),
      driver_version(
          static_cast<int>(number_from_environment("LOCKSTEP_EMULATED_DRIVER", CUDART_VERSION))),
      loads_kernels_lazily(!is_in_environment("CUDA_MODULE_LOADING", "EAGER")),
      deadlock_after(number_from_environment("LOCKSTEP_EMULATED_DEADLOCK_SECONDS", 20)),
      has_kernels(!is_in_environment("LOCKSTEP_EMULATED_KERNELS", "none")) {
  gpus.resize(number_from_environment("LOCKSTEP_EMULATED_GPUS", 2));
  for (auto& gpu : gpus) gpu = std::make_unique<Gpu>();
}

// Never destroyed: workers may run until the process ends.
State& state() {
  static State& instance = *new State;
  return instance;
}

cudaError_t& last_error() {
  return the_last_error;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) the_last_error = error;
  return error;
}

void fail_next_kernel(cudaStream_t handle, cudaError_t error) {
  const std::lock_guard lock(state().mutex);
  if (const auto stream = find_stream(handle)) stream->next_kernel_fails = error;
}

void clear_faults() {
  const std::lock_guard lock(state().mutex);
  for (auto& gpu : state().gpus) gpu->fault = cudaSuccess;
  for (auto& [handle, stream] : state().streams) stream->next_kernel_fails = cudaSuccess;
  state().num_bytes_until_failure.reset();
  the_last_error = cudaSuccess;
}

void fail_allocations_after(std::size_t num_bytes) {
  const std::lock_guard lock(state().mutex);
  state().num_bytes_until_failure = num_bytes;
}

bool has_context(int gpu) {
  return state().gpus.at(static_cast<std::size_t>(gpu))->has_context;
}

std::size_t num_allocated_bytes() {
  const std::lock_guard lock(state().mutex);
  std::size_t sum = 0;
  for (const auto& gpu : state().gpus) sum += gpu->num_used_bytes;
  return sum;
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

namespace {

bool is_fault_of_current_gpu(cudaError_t error) {
  const auto gpu = static_cast<std::size_t>(current_gpu());
  return error != cudaSuccess && gpu < state().gpus.size() && state().gpus[gpu]->fault == error;
}

}  // namespace

cudaError_t CUDARTAPI cudaGetLastError() {
  const cudaError_t error = last_error();
  // A kernel's damage to its GPU stays the last error.
  if (!is_fault_of_current_gpu(error)) last_error() = cudaSuccess;
  return error;
}
