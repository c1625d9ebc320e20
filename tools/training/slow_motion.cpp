#include "tools/training/slow_motion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/recorder.h"
#include "simulate/slow_motion/machine.h"
#include "tools/cli/numbers.h"
#include "tools/report/status_line.h"
#include "tools/report/step_statistics.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kRehearsedSteps = 6;
// What the cores are busy of the time, and what it costs them to sleep and wake up once.
constexpr double kHeadroom = 2.5;
constexpr double kWakeSeconds = 30e-6;
constexpr double kMaxFactor = 1e9;
// No step is shorter here, so that what a thread is late by does not count.
constexpr double kShortestStep = 5e-3;

// Up, to two digits: "1 : 40".
double round_up(double factor) {
  const double digit = std::pow(10.0, std::floor(std::log10(factor)) - 1);
  return std::ceil(factor / digit) * digit;
}

slow_motion::MachineOptions machine_options(const TrainingTask& task,
                                            const DevicePlacement& placement) {
  slow_motion::MachineOptions options;
  options.topology = task.slow_motion->topology;
  for (const Device device : placement.devices) options.devices.push_back(device.index);
  options.tracks =
      placement.mode == Mode::ddp ? slow_motion::Tracks::ranks : slow_motion::Tracks::devices;
  return options;
}

// A step, once as it is and once as it would be on the modelled machine.
struct RehearsedStep {
  double real_seconds = 0;
  double modelled_seconds = 0;
  double num_kernels = 0;
};

template <typename Train>
RehearsedStep rehearse(TrainingTask task, const DevicePlacement& placement, const Train& train) {
  slow_motion::MachineOptions options = machine_options(task, placement);
  options.pace = slow_motion::Pace::none;
  slow_motion::Machine machine(options);
  const slow_motion::OnStage on_stage(machine);
  task.num_steps = std::min(task.num_steps, kRehearsedSteps);
  struct Sample {
    runtime::Time real{};
    runtime::Time modelled{};
    std::size_t num_kernels = 0;
  };
  const auto sample = [&] { return Sample{runtime::now(), machine.end(), machine.num_kernels()}; };
  const Sample begin = sample();
  std::vector<Sample> samples;
  TrainingObserver observer;
  observer.on_step = [&](std::size_t) { samples.push_back(sample()); };
  train(task, observer);
  // The first step finds memory and threads; where there is no other, it has to do.
  const Sample first = samples.size() > 1 ? samples.front() : begin;
  const Sample& last = samples.back();
  const double steps = static_cast<double>(std::max<std::size_t>(1, samples.size() - 1));
  return {runtime::to_seconds(last.real - first.real) / steps,
          runtime::to_seconds(last.modelled - first.modelled) / steps,
          static_cast<double>(last.num_kernels - first.num_kernels) / steps};
}

double choose_factor(const RehearsedStep& step) {
  const double cores = static_cast<double>(runtime::num_cores());
  const double real = std::max(
      kShortestStep, kHeadroom * (step.real_seconds + step.num_kernels * kWakeSeconds / cores));
  return round_up(std::clamp(real / step.modelled_seconds, 1e-3, kMaxFactor));
}

double seconds_of(const trace::Interval& interval) {
  return 1e-9 * static_cast<double>(interval.end_ns - interval.begin_ns);
}

trace::Interval interval_of(const trace::Span& span) {
  return {span.begin_ns, span.end_ns};
}

// When devices did what is meant.
template <typename IsMeant>
trace::IntervalSet device_times(const trace::Recording& recording, const IsMeant& is_meant) {
  std::vector<trace::Interval> times;
  for (const trace::Span& span : recording.spans) {
    if (span.thread == trace::kDeviceThread && is_meant(span)) times.push_back(interval_of(span));
  }
  return trace::union_of(std::move(times));
}

// The share of an interval that lies in a set.
double share_of(const trace::Interval& interval, const trace::IntervalSet& set) {
  const trace::IntervalSet inside = trace::part_inside(set, interval);
  return 1e-9 * static_cast<double>(trace::total_ns(inside)) / seconds_of(interval);
}

// The steps of a device, by time.
class StepTimes {
 public:
  // `late`: when the cores could not follow, whichever device it was.
  StepTimes(const trace::Recording& recording, int track, const trace::IntervalSet& late)
      : track_(track) {
    for (const trace::Span& span : recording.spans) {
      const bool is_step = span.thread == trace::kDeviceThread && span.rank == track &&
                           span.category == trace::Category::step;
      if (!is_step) continue;
      steps_.push_back(span);
      late_.push_back(share_of(interval_of(span), late));
    }
  }

  double put_off() const { return median(late_); }

  // Of each epoch: all steps, each as long as the mean of those in which no device was late, if
  // there are such. Some begin with what is no part of them, such as a check.
  std::vector<double> epoch_seconds(std::size_t steps_per_epoch) const {
    std::vector<double> epochs;
    for (std::size_t begin = 0; begin < steps_.size(); begin += steps_per_epoch) {
      const std::size_t end = std::min(begin + steps_per_epoch, steps_.size());
      const std::vector<trace::Span> steps = punctual_steps(begin, end);
      double total = 0;
      for (const trace::Span& step : steps) total += seconds_of(interval_of(step));
      epochs.push_back(total / static_cast<double>(steps.size()) *
                       static_cast<double>(end - begin));
    }
    return epochs;
  }

  // The one of median length among those in which no device was late. REQUIRES: there are steps.
  trace::Interval median_step() const {
    const std::vector<trace::Span> steps = punctual_steps(0, steps_.size());
    return interval_of(*trace::median_step_span(steps, track_));
  }

 private:
  // Those of [begin, end) in which no device was late; all, if there is none.
  std::vector<trace::Span> punctual_steps(std::size_t begin, std::size_t end) const {
    std::vector<trace::Span> punctual;
    for (std::size_t i = begin; i < end; ++i) {
      if (late_[i] == 0) punctual.push_back(steps_[i]);
    }
    if (!punctual.empty()) return punctual;
    return {steps_.begin() + static_cast<std::ptrdiff_t>(begin),
            steps_.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  const int track_;
  std::vector<trace::Span> steps_;
  std::vector<double> late_;
};

void take_acted_times(const TrainingTask& task, const DevicePlacement& placement,
                      TrainingResult& result) {
  const bool is_ddp = placement.mode == Mode::ddp;
  std::vector<int> tracks;
  for (const Device device : placement.devices) {
    tracks.push_back(is_ddp ? static_cast<int>(tracks.size()) : device.index);
  }
  const trace::Recording recording = trace::collect();
  const trace::IntervalSet late = device_times(recording, slow_motion::is_late);
  const StepTimes first_steps(recording, tracks[0], late);
  result.acted->put_off = first_steps.put_off();
  if (recording.num_dropped == 0) {
    result.epoch_seconds = first_steps.epoch_seconds(task.steps_per_epoch());
  }
  result.busy_fraction.clear();
  for (const int track : tracks) {
    const auto is_its_kernel = [&](const trace::Span& span) {
      return span.rank == track && slow_motion::is_kernel(span);
    };
    const trace::IntervalSet kernels = device_times(recording, is_its_kernel);
    // Of a median step: some wait for what is between steps, such as a check, and behind that each
    // rank begins its own when it can.
    const StepTimes steps = is_ddp ? StepTimes(recording, track, late) : first_steps;
    result.busy_fraction.push_back(share_of(steps.median_step(), kernels));
  }
}

}  // namespace

std::shared_ptr<const SlowMotion> read_slow_motion(const TrainingFlags& flags) {
  if (flags.act_as.empty()) return nullptr;
  const auto refuse = [](bool is_refused, std::string_view why) {
    require(!is_refused, ErrorCode::Usage, "--act-as", "{}", why);
  };
  refuse(flags.device == "cuda",
         "acts a machine out on devices of the CPU; leave out --device cuda");
  refuse(flags.ranks == "processes",
         "acts out ranks that are threads of one process; leave out --ranks processes");
  refuse(flags.graph, "paces kernels one by one, and --graph launches them as one; leave one out");
  refuse(!flags.link.empty(), "has links of its own; leave out --link");
  refuse(!flags.comm.empty() && flags.comm != "own",
         "acts out the project's own collectives; leave out --comm");
  auto motion = std::make_shared<SlowMotion>();
  motion->topology = predict::find_topology(flags.act_as);
  motion->is_watched = flags.watch;
  if (flags.slow_motion != "auto") {
    motion->factor =
        parse_number("--slow-motion", flags.slow_motion, "auto or a factor such as 40");
    require(*motion->factor > 0 && *motion->factor <= kMaxFactor, ErrorCode::Usage, "--slow-motion",
            "expected auto or a factor between 0 and {:g}, found {}", kMaxFactor,
            flags.slow_motion);
  }
  return motion;
}

void require_on_stage(const TrainingFlags& flags, const std::vector<Device>& devices) {
  if (flags.act_as.empty()) return;
  const predict::Topology topology = predict::find_topology(flags.act_as);
  for (const Device device : devices) {
    require(static_cast<std::size_t>(device.index) < topology.gpus.size(), ErrorCode::Usage,
            "--act-as", "'{}' has {} devices, and {} was asked for; a cluster is NAME*HOSTS@100gbe",
            topology.name, topology.gpus.size(), to_string(device));
  }
}

std::string slow_motion_note(const TrainingTask& task) {
  if (!task.slow_motion) return {};
  const predict::Topology& topology = task.slow_motion->topology;
  return fmt::format(
      "acted out in slow motion: {} ({}); times are of that machine, as modelled, not of this one",
      topology.name, topology.device.name);
}

TrainingResult act_out(
    const TrainingTask& task, const DevicePlacement& placement, const TrainingObserver& observer,
    const std::function<TrainingResult(const TrainingTask&, const TrainingObserver&)>& train) {
  const bool is_recorded = trace::recording();
  trace::stop();
  slow_motion::MachineOptions options = machine_options(task, placement);
  const RehearsedStep step = rehearse(task, placement, train);
  options.factor = task.slow_motion->factor.value_or(choose_factor(step));
  // What a thread is late by in one part of a step it makes up for in another, or in the next ones.
  constexpr double kPatientSteps = 3;
  options.patience =
      std::max(options.patience,
               runtime::from_seconds(kPatientSteps * options.factor * step.modelled_seconds));
  slow_motion::Machine machine(options);
  TrainingObserver at_full_speed = observer;
  if (observer.on_epoch) {
    at_full_speed.on_epoch = [&](std::size_t epoch, double seconds, double loss) {
      observer.on_epoch(epoch, seconds / options.factor, loss);
    };
  }
  TrainingResult result;
  {
    const slow_motion::OnStage on_stage(machine);
    const LaneWatch watch(machine, task.slow_motion->is_watched);
    if (is_recorded) trace::start({.times_slower = options.factor});
    result = train(task, at_full_speed);
  }
  for (double& seconds : result.epoch_seconds) seconds /= options.factor;
  result.acted = ActedOut{options.topology.name, options.topology.device.name, options.factor};
  if (is_recorded) take_acted_times(task, placement, result);
  return result;
}

}  // namespace lockstep::tools
