// A whole training step as one CUDA graph: captured once, then launched by one call.
//
// A small step is a dozen kernels of a few microseconds each, and launching them one by one takes
// the host longer than running them takes the GPU. A graph holds all of them, with their
// dependencies:
//
//   StepGraph graph({Device{DeviceType::cuda, 0}});
//   for (...) {
//     ... write the batch into tensors that stay the same ...
//     graph.run([&] { forward(); backward(); optimizer.step(); });
//   }
//
// The first calls run the step for real, to find memory, kernels and the fastest products; the next
// one captures it, and all later ones launch the graph and never call the step again. So anything
// that changes from step to step must be read from device memory that does not move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/core/device.h"

namespace lockstep::runtime {

class StepGraph {
 public:
  static constexpr std::size_t kNumWarmUps = 3;

  // devices: all that the step uses; the first one's compute stream leads.
  // Throws Error{Usage} unless they are different CUDA devices.
  explicit StepGraph(std::vector<Device> devices);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Runs the step as described above. It follows all work of the devices' compute streams, and
  // precedes all their later work. Tensors that the step makes come from memory that no other
  // tensor gets; once the step is captured, the device's statistics count all of that memory as
  // held.
  // REQUIRES: only the calling thread issues the step, which waits for nothing on the host and
  // reads no pageable memory.
  // Throws the step's own exceptions; Error{State} or Error{Cuda} for a step that cannot be
  // captured. After an error the streams work as before, and the next call of run() continues where
  // this one failed.
  void run(const std::function<void()>& step);

  bool is_captured() const;
  // Kernels, copies and fills of one step. REQUIRES: is_captured().
  std::size_t num_nodes() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The address of a word from which kernels of a device read ThreadContext::step of the thread that
// launches the graph; it is written before every launch. For steps that draw random numbers by
// step. nullptr outside of the capturing call of StepGraph::run. REQUIRES: a device of the graph.
const std::int64_t* captured_step_number(Device device);

}  // namespace lockstep::runtime
