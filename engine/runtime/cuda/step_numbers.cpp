#include "engine/runtime/cuda/step_numbers.h"

#include "engine/core/thread_context.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::runtime::cuda {
namespace {

// Of the graph that the calling thread captures; nullptr outside.
StepNumbers*& current_numbers() {
  thread_local StepNumbers* numbers = nullptr;
  return numbers;
}

}  // namespace

const std::int64_t* StepNumbers::of(Device device) {
  std::shared_ptr<Storage>& number = numbers_[device];
  if (number == nullptr) {
    LogicalDevice& owner = logical_device(device);
    number = std::make_shared<Storage>(owner, sizeof(std::int64_t), owner.own_memory());
  }
  return static_cast<const std::int64_t*>(number->data());
}

// The call takes so few bytes from the host's memory at once, and waits for nothing.
void StepNumbers::write(const CudaStream& stream) const {
  const auto step = static_cast<std::int64_t>(thread_context().step);
  for (const auto& [device, number] : numbers_) {
    CUDA_CHECK(cudaMemcpyAsync(number->data(), &step, sizeof(step), cudaMemcpyHostToDevice,
                               stream.handle()));
  }
}

StepNumbersScope::StepNumbersScope(StepNumbers& numbers) {
  current_numbers() = &numbers;
}

StepNumbersScope::~StepNumbersScope() {
  current_numbers() = nullptr;
}

}  // namespace lockstep::runtime::cuda

namespace lockstep::runtime {

const std::int64_t* captured_step_number(Device device) {
  cuda::StepNumbers* const numbers = cuda::current_numbers();
  return numbers == nullptr ? nullptr : numbers->of(device);
}

}  // namespace lockstep::runtime
