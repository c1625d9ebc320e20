// Records one step of the training that a program does: listens to the engine
// (engine/trace/observer.h) and turns on its spans. It works for any program whose ranks are
// threads on devices of the CPU.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/trace/observer.h"
#include "tools/watch/recording.h"

namespace lockstep::watch {

enum class Numbers { no, yes };

// The third step of a training is recorded, the last one if there are fewer: in the first step
// buckets have another order, and the optimizer makes its state.
inline constexpr std::size_t kRecordedStep = 2;

// While one lives, it is the process's observer.
class Recorder final : public trace::Observer {
 public:
  // Throws Error{Usage} if the process has an observer already.
  explicit Recorder(Numbers numbers);
  ~Recorder() override;  // REQUIRES: nothing of the engine runs any more
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The step of the last training among those with the most ranks. Throws Error{State} if no
  // training made a step, or on a GPU.
  StepRecording take();

  bool sees_arrivals() const override { return true; }
  void batch(ConstTensorView rows, std::size_t num_rows) override;
  std::shared_ptr<const void> operation(const trace::Operation& operation) override;
  void backward(std::uint64_t pass, const std::shared_ptr<const void>& operation,
                ConstTensorView upstream) override;
  void leaf_gradient(const trace::LeafGradient& gradient) override;
  void step(const trace::OptimizerStep& step, trace::Moment moment) override;
  std::uint32_t group_made(const trace::RankGroup& group) override;
  void call(const trace::Call& call, trace::Moment moment) override;
  void arrived(const trace::Arrival& arrival) override;
  void parameters(std::span<const std::string> names, std::span<const void* const> leaves) override;
  void parameters_freed(ConstTensorView shard) override;
  void fact(std::string_view name, std::initializer_list<trace::Field> fields) override;

 private:
  // A rank's events since its last step, and those of the step that is kept.
  struct Log {
    RankRecord current;
    RankRecord kept;
    std::vector<std::pair<std::uintptr_t, std::string>> names;  // of the module's leaves
    std::size_t num_steps = 0;
    bool has_optimizer = false;
  };
  // A training's ranks are one group of threads, or the devices that one thread drives. Programs
  // that make one training after the other without groups make new optimizers.
  struct Training {
    std::map<int, Log> logs;
    const void* optimizer = nullptr;  // of the devices that one thread drives
  };

  // REQUIRES: mutex_ held.
  Training& training();
  Log& log(int rank) { return training().logs[rank]; }
  void add(Event event);
  void end_step(Log& log);
  std::vector<float> values_of(ConstTensorView view) const;
  std::vector<Parameter> described(const trace::OptimizerStep& step) const;

  const Numbers numbers_;
  bool has_started_trace_ = false;
  bool was_on_gpu_ = false;
  bool is_wrapped_ = false;
  std::mutex mutex_;  // guards the members below
  std::uint32_t num_groups_ = 0;
  std::size_t num_alone_ = 0;  // trainings without a group
  std::map<std::pair<std::uint32_t, std::size_t>, Training> trainings_;  // by group, number
};

}  // namespace lockstep::watch
