// Trains in slow motion, as another machine would: --act-as TOPOLOGY, --slow-motion FACTOR, --live.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "simulate/predict/topology.h"
#include "tools/run/ranks.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// The meaning of these flags.
struct SlowMotion {
  predict::Topology topology;
  std::optional<double> factor;  // absent: the smallest that the cores here can follow
  bool is_live = false;
};

// nullptr without --act-as. Throws Error{Usage} for flags that do not go with it, and as
// predict::find_topology() does.
std::shared_ptr<const SlowMotion> read_slow_motion(const TrainingFlags& flags);

// Throws Error{Usage} for a device that the topology lacks.
void require_simulated_devices(const TrainingFlags& flags, const std::vector<Device>& devices);

// "simulated in slow motion: titanx-pascal-dual-root-8 (TITAN X), ...": a note that goes with the
// times; empty without --act-as.
std::string slow_motion_note(const TrainingTask& task);

// Runs train(task, observer) at the simulated machine's pace, and divides its times by the factor.
// If the task has no factor, a few unpaced steps first show how long the cores need for the
// machine's work; the factor then lets them work about half of the time.
Run train_in_slow_motion(
    const TrainingTask& task, const DevicePlacement& placement, const TrainingObserver& observer,
    const std::function<Run(const TrainingTask&, const TrainingObserver&)>& train);

}  // namespace lockstep::tools
