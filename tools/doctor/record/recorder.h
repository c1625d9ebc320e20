// Records what a program does, for `lockstep doctor` to judge: an observer of the engine
// (engine/trace/observer.h), installed if LOCKSTEP_AUDIT names a folder when the program starts.
//
// The doctor examines any program that links the engine, so each of them must contain this code.
// The build sees to that, not the engine's sources:
//   CMakeLists.txt   compiles this folder into the library lockstep_trace, which all of the engine
//                    links, and makes every program ask the linker for lockstep_recorder
//   recorder.cpp     defines that symbol, and so installs the recorder before main()
//
// An optimizer's step tells most: for each parameter, hashes of its weight before and after, the
// sketches of the gradient that it used and of the gradient from each backward pass of this rank,
// and the communication that moved it since the step before. So the records of all ranks show if
// the gradient came from all their rows.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "engine/trace/observer.h"
#include "tools/doctor/record/history.h"

namespace lockstep::record {

class Recorder final : public trace::Observer {
 public:
  void batch(ConstTensorView rows, std::size_t num_rows) override;
  void buffer(ConstTensorView values) override;
  std::shared_ptr<const void> loss(const trace::Loss& loss) override;
  void loss_backward(std::uint64_t pass, const std::shared_ptr<const void>& loss,
                     ConstTensorView upstream) override;
  void leaf_gradient(const trace::LeafGradient& gradient) override;
  void step(const trace::OptimizerStep& step, trace::Moment moment) override;
  std::string new_group_name() override;
  std::uint32_t group_made(const trace::RankGroup& group) override;
  void group_left(std::uint32_t group, int rank) override;
  void call(const trace::Call& call, trace::Moment moment) override;
  void replica(Device device, std::span<const trace::ReplicaModule> modules,
               trace::Moment moment) override;
  void fact(std::string_view name, std::initializer_list<trace::Field> fields) override;

 private:
  struct Optimizer {
    std::uint64_t id = 0;
    std::uint64_t num_steps = 0;
    std::uint64_t last_event = 0;  // of the step before
    bool is_told = true;           // false if the current step is not recorded
    StepRecord begun;
  };

  Optimizer& optimizer(const void* address);
  void begin_step(const trace::OptimizerStep& step);
  void end_step(const trace::OptimizerStep& step);
  ParameterRecord record_of(const trace::OptimizerStep::Parameter& parameter,
                            const LeafGradient& gradient, std::uint64_t since) const;

  Calls calls_;
  Gradients gradients_;
  std::mutex mutex_;  // guards the members below, except the entry of an optimizer that is stepping
  std::uint64_t num_optimizers_ = 0;
  std::unordered_map<const void*, Optimizer> optimizers_;  // entries stay where they are
};

}  // namespace lockstep::record
