#include "tools/run/slow_motion.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/recorder.h"
#include "simulate/slow_motion/machine.h"
#include "tools/run/interruption.h"
#include "tools/run/placement.h"
#include "tools/run/step_statistics.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

constexpr double kMaxFactor = 1e9;

slow_motion::MachineOptions machine_options(const TrainingTask& task,
                                            const DevicePlacement& placement) {
  slow_motion::MachineOptions options;
  options.topology = task.slow_motion->topology;
  for (const Device device : placement.devices) options.devices.push_back(device.index);
  options.tracks =
      has_ranks(placement.mode) ? slow_motion::Tracks::ranks : slow_motion::Tracks::devices;
  return options;
}

// The time of one or several steps, here and on the modelled machine.
struct StepTime {
  double real_seconds = 0;
  double modelled_seconds = 0;
  double num_kernels = 0;
};

// The mean of a few steps that run unpaced.
template <typename Train>
StepTime rehearse(TrainingTask task, const DevicePlacement& placement, const Train& train) {
  constexpr std::size_t kMostSteps = 6;
  slow_motion::MachineOptions options = machine_options(task, placement);
  options.pace = slow_motion::Pace::none;
  slow_motion::Machine machine(options);
  const slow_motion::InstalledMachine installed(machine);
  task.checkpoints.reset();
  const std::size_t first_step = task.first_step();
  task.num_steps = std::min(task.num_steps, first_step + kMostSteps);
  const runtime::Time begin = runtime::now();
  const auto so_far = [&] {
    return StepTime{runtime::to_seconds(runtime::now() - begin),
                    runtime::to_seconds(machine.end() - begin),
                    static_cast<double>(machine.num_kernels())};
  };
  StepTime first = so_far();
  StepTime last;
  TrainingObserver observer;
  observer.on_step = [&](std::size_t num_done) {
    last = so_far();
    // The first one finds memory and threads.
    if (num_done == first_step + 1 && task.num_steps > num_done) first = last;
  };
  train(task, observer);
  throw_if_interrupted();  // before all of these steps
  const auto steps = static_cast<double>(std::max<std::size_t>(2, task.num_steps - first_step) - 1);
  return {(last.real_seconds - first.real_seconds) / steps,
          (last.modelled_seconds - first.modelled_seconds) / steps,
          (last.num_kernels - first.num_kernels) / steps};
}

// Makes the factor so large that the cores work about half of the time; two digits, rounded up: "1
// : 40".
double choose_factor(const StepTime& step) {
  constexpr double kHeadroom = 2.5;
  constexpr double kWakeSeconds = 30e-6;  // a kernel's thread needs so long to sleep and wake up
  constexpr double kShortestStep = 5e-3;  // in so long a step, a late thread does not matter
  const auto cores = static_cast<double>(runtime::num_cores());
  const double real = std::max(
      kShortestStep, kHeadroom * (step.real_seconds + step.num_kernels * kWakeSeconds / cores));
  const double factor = std::clamp(real / step.modelled_seconds, 1e-3, kMaxFactor);
  const double digit = std::pow(10.0, std::floor(std::log10(factor)) - 1);
  return std::ceil(factor / digit) * digit;
}

double seconds_of(const trace::Span& span) {
  return 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
}

// The times at which the devices worked on such spans.
template <typename IsMeant>
trace::IntervalSet device_times(const trace::Recording& recording, const IsMeant& is_meant) {
  std::vector<trace::Interval> times;
  for (const trace::Span& span : recording.spans) {
    if (span.thread == trace::kDeviceThread && is_meant(span)) {
      times.push_back({span.begin_ns, span.end_ns});
    }
  }
  return trace::union_of(std::move(times));
}

// The share of a step that lies in a set.
double share_of(const trace::Span& step, const trace::IntervalSet& set) {
  const trace::IntervalSet inside = trace::part_inside(set, {step.begin_ns, step.end_ns});
  return 1e-9 * static_cast<double>(trace::total_ns(inside)) / seconds_of(step);
}

std::vector<trace::Span> steps_of(const trace::Recording& recording, int track) {
  std::vector<trace::Span> steps;
  std::ranges::copy_if(recording.spans, std::back_inserter(steps), [&](const trace::Span& span) {
    return span.thread == trace::kDeviceThread && span.rank == track &&
           span.category == trace::Category::step;
  });
  return steps;
}

void take_simulated_times(const TrainingTask& task, const DevicePlacement& placement,
                          const trace::Recording& recording, TrainingResult& result) {
  const trace::IntervalSet late = device_times(recording, slow_motion::is_late);
  const std::vector<int> tracks = tracks_of(placement);
  const std::vector<trace::Span> steps = steps_of(recording, tracks[0]);
  const double typical_seconds = seconds_of(*trace::median_step_span(steps, tracks[0]));
  // An epoch is as long as its steps: work between them, such as a check, does not belong to it. A
  // step in which the cores could not keep up counts as a typical one, and so does the first, which
  // also makes the optimizer's state.
  std::vector<double> epochs, late_shares;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % task.steps_per_epoch() == 0) epochs.push_back(0);
    late_shares.push_back(share_of(steps[i], late));
    const bool is_own = i > 0 && late_shares.back() == 0;
    epochs.back() += is_own ? seconds_of(steps[i]) : typical_seconds;
  }
  result.simulated->lag = median(late_shares);
  if (recording.num_dropped == 0) {
    if (result.unfinished_epoch_seconds) {
      result.unfinished_epoch_seconds = epochs.back();
      epochs.pop_back();
    }
    result.epoch_seconds = epochs;
  }
  result.busy_fraction.clear();
  for (const int track : tracks) {
    const trace::IntervalSet kernels = device_times(recording, [&](const trace::Span& span) {
      return span.rank == track && slow_motion::is_kernel(span);
    });
    // Each rank begins its steps when it can; DataParallel's devices share the same steps.
    const int track_of_steps = has_ranks(placement.mode) ? track : tracks[0];
    const std::vector<trace::Span> own = steps_of(recording, track_of_steps);
    const trace::Span& typical = *trace::median_step_span(own, track_of_steps);
    result.busy_fraction.push_back(share_of(typical, kernels));
  }
}

}  // namespace

std::shared_ptr<const SlowMotion> read_slow_motion(const TrainingFlags& flags) {
  if (flags.act_as.empty()) return nullptr;
  const auto refuse = [](bool is_refused, std::string_view why) {
    require(!is_refused, ErrorCode::Usage, "--act-as", "{}", why);
  };
  refuse(flags.device == "cuda",
         "simulates a machine on devices of the CPU; leave out --device cuda");
  refuse(flags.ranks == "processes",
         "simulates ranks that are threads of one process; leave out --ranks processes");
  refuse(flags.graph, "paces kernels one by one, and --graph launches them as one; leave one out");
  refuse(!flags.link.empty(), "has links of its own; leave out --link");
  refuse(!flags.comm.empty() && flags.comm != "own",
         "simulates the project's own collectives; leave out --comm");
  auto motion = std::make_shared<SlowMotion>();
  motion->topology = predict::find_topology(flags.act_as);
  motion->is_live = flags.live;
  if (flags.slow_motion != "auto") {
    const char* const end = flags.slow_motion.data() + flags.slow_motion.size();
    double factor = 0;
    const auto [rest, problem] = std::from_chars(flags.slow_motion.data(), end, factor);
    const bool is_number = problem == std::errc{} && rest == end;
    require(is_number && factor > 0 && factor <= kMaxFactor, ErrorCode::Usage, "--slow-motion",
            "expected auto or a factor such as 40, above 0 and at most {:g}, found '{}'",
            kMaxFactor, flags.slow_motion);
    motion->factor = factor;
  }
  return motion;
}

void require_simulated_devices(const TrainingFlags& flags, const std::vector<Device>& devices) {
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
      "simulated in slow motion: {} ({}); times are those of that machine, not of this one",
      topology.name, topology.device.name);
}

Run train_in_slow_motion(
    const TrainingTask& task, const DevicePlacement& placement, const TrainingObserver& observer,
    const std::function<Run(const TrainingTask&, const TrainingObserver&)>& train) {
  const bool is_recorded = trace::recording();
  trace::stop();
  slow_motion::MachineOptions options = machine_options(task, placement);
  const StepTime step = rehearse(task, placement, train);
  options.factor = task.slow_motion->factor.value_or(choose_factor(step));
  // A thread that is late in one part of a step catches up in another part, or in the next steps.
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
  at_full_speed.on_line = [&](LoggedStep line) {
    line.seconds /= options.factor;
    line.labels_per_second *= options.factor;
    observer.on_line(line);
  };
  Run run;
  {
    const slow_motion::InstalledMachine installed(machine);
    std::optional<LaneWatch> watch;
    if (task.slow_motion->is_live) watch.emplace(machine);
    if (is_recorded) trace::start({.times_slower = options.factor});
    run = train(task, at_full_speed);
  }
  TrainingResult& result = run.result;
  for (double& seconds : result.epoch_seconds) seconds /= options.factor;
  if (result.unfinished_epoch_seconds) *result.unfinished_epoch_seconds /= options.factor;
  result.simulated =
      Simulation{options.topology.name, options.topology.device.name, options.factor};
  if (is_recorded) take_simulated_times(task, placement, run.recording, result);
  return run;
}

}  // namespace lockstep::tools
