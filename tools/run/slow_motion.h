// Acts a training out: --act-as TOPOLOGY, --slow-motion FACTOR and --live.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "simulate/predict/topology.h"
#include "tools/run/loop.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// The meaning of these flags.
struct SlowMotion {
  predict::Topology topology;
  std::optional<double> factor;  // absent: the smallest that the cores here can follow
  bool is_live = false;
};

// nullptr without --act-as. Throws Error{Usage} for flags that cannot be acted out, and as
// predict::find_topology() does.
std::shared_ptr<const SlowMotion> read_slow_motion(const TrainingFlags& flags);

// Throws Error{Usage} for a device that the topology lacks.
void require_on_stage(const TrainingFlags& flags, const std::vector<Device>& devices);

// "acted out: 8 x TITAN X (Pascal) of titanx-pascal-dual-root-8, ...": a note that goes with the
// times; empty without --act-as.
std::string slow_motion_note(const TrainingTask& task);

// Runs train(task, observer) while the machine is acted out, and divides its times by the factor.
// If the task has no factor, a few unpaced steps first show how long the cores need for the
// machine's work; the factor then lets them work about half of the time.
TrainingResult act_out(
    const TrainingTask& task, const DevicePlacement& placement, const TrainingObserver& observer,
    const std::function<TrainingResult(const TrainingTask&, const TrainingObserver&)>& train);

}  // namespace lockstep::tools
