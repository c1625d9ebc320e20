// Training steps on a machine that is not here: predicted (simulate/predict), and acted out in slow
// motion by devices of the CPU (simulate/slow_motion). The same figures of that machine go into
// both.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/trace/breakdown.h"
#include "engine/trace/recorder.h"
#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"
#include "tutorials/training.h"

namespace lockstep::tutorial {

// The machine of all slow motion in the course, so that figures of two programs compare. A program
// takes another one where the difference is its lesson.
inline constexpr const char* kMachine = "dgx-a100";

// predict::predict_step() for this training; DDP all-reduces beside backward, by the engine's
// plans. Throws Error{Usage} for more devices than there are.
predict::PredictedStep predict_training(const predict::Topology& topology,
                                        const Training& training);

// How the training went. Every time is that of the acted machine.
struct ActedSteps {
  trace::Span step;                // the median one of the first device, without the very first
  double step_seconds = 0;         // its length
  std::vector<double> busy;        // fraction of it in which each device ran kernels
  double busy_fraction = 0;        // the median device's
  double put_off = 0;              // fraction in which kernels waited for this machine's cores
  double factor = 1;               // how many times slower it ran here
  trace::StepBreakdown breakdown;  // the first device's
  trace::Recording recording;
  std::vector<Tensor> weights;  // the first device's, after the last step
};

// Trains num_steps steps, two or more, and before them two to see how slow the motion has to be.
// Repeats the steps at half the speed if the cores could not keep up.
ActedSteps act_out(const predict::Topology& topology, const Training& training, int num_steps);

// The same for any other training by the devices cpu:0 ... cpu:num_devices - 1, in the form of
// train(). record_step() marks its steps.
struct ActedTraining {
  int num_devices = 1;
  std::vector<Tensor> inputs;  // which are on their devices when they are needed
  std::function<std::vector<Tensor>(int num_steps, const std::function<void()>& after_step)> train;
};
ActedSteps act_out(const predict::Topology& topology, const ActedTraining& training, int num_steps);

// The sentence that explains slow motion where a program first shows it, the same in all.
std::string describe_slow_motion(const predict::Topology& topology);

// How many of the devices 1 ... num_devices - 1 device 0 reaches by NVLink: by a link of its own or
// through NVSwitch.
int count_nvlink_peers(const predict::Topology& topology, int num_devices);

// For float32 tensors.
bool has_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace lockstep::tutorial
