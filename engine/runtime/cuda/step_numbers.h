// The number of the step, in the memory of each device of a graph that asks for it
// (captured_step_number of step_graph.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/storage.h"

namespace lockstep::runtime::cuda {

class StepNumbers {
 public:
  // Of a device, made when it is first asked for.
  const std::int64_t* of(Device device);
  // Enqueues ThreadContext::step for all that were asked for.
  void write(const CudaStream& stream) const;
  void clear() { numbers_.clear(); }

 private:
  std::map<Device, std::shared_ptr<Storage>> numbers_;  // an int64 each
};

// Lets captured_step_number() find them, on this thread.
class StepNumbersScope {
 public:
  explicit StepNumbersScope(StepNumbers& numbers);
  ~StepNumbersScope();
  StepNumbersScope(const StepNumbersScope&) = delete;
  StepNumbersScope& operator=(const StepNumbersScope&) = delete;
};

}  // namespace lockstep::runtime::cuda
