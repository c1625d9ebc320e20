#include "tutorials/acted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/slow_motion/machine.h"

namespace lockstep::tutorial {
namespace {

using data::LabelledTensors;
using predict::Strategy;

constexpr int kRehearsedSteps = 2;
constexpr double kShortestStep = 4e-3;  // here, so that waking up in time is little of it
constexpr double kHeadroom = 2.5;       // the cores are at work for less than half of the time
constexpr double kPatientSteps = 3;     // who is late in one part of a step makes up for it
constexpr double kMostPutOff = 0.01;
constexpr int kMostTries = 3;

predict::Workload workload_of(const Training& training, const predict::DeviceProfile& device) {
  const std::vector<std::size_t> sizes = nn::parse_mlp(training.model).sizes;
  const double rows = 1.0 * training.batch / training.num_devices;
  predict::Workload workload;
  double parameter_bytes = 0;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    const predict::LayerShape layer{rows, static_cast<double>(sizes[i]),
                                    static_cast<double>(sizes[i + 1])};
    workload.layers.push_back(predict::dense_layer(
        device, std::to_string(2 * i), layer,
        i == 0 ? predict::InputGradient::not_needed : predict::InputGradient::needed));
    parameter_bytes += layer.parameter_bytes();
  }
  workload.optimizer_seconds = predict::update_seconds(device, parameter_bytes);
  workload.fixed_seconds = 2 * device.launch_seconds;  // the loss, each way
  workload.input_bytes = rows * static_cast<double>(sizes[0] * sizeof(float));
  return workload;
}

slow_motion::MachineOptions machine_options(const predict::Topology& topology,
                                            const ActedTraining& training) {
  slow_motion::MachineOptions options;
  options.topology = topology;
  for (int i = 0; i < training.num_devices; ++i) options.devices.push_back(i);
  return options;
}

void give_inputs(slow_motion::Machine& machine, const ActedTraining& training) {
  for (const Tensor& input : training.inputs) {
    const TensorView x = input.view();
    machine.give(input.device().index, {x.data, x.num_bytes()});
  }
}

struct StepLength {
  double here = 0;
  double modelled = 0;
};

// The last of a few unpaced steps.
StepLength rehearse(const predict::Topology& topology, const ActedTraining& training) {
  slow_motion::MachineOptions options = machine_options(topology, training);
  options.pace = slow_motion::Pace::none;
  slow_motion::Machine machine(options);
  const slow_motion::InstalledMachine installed(machine);
  give_inputs(machine, training);
  runtime::Time here = runtime::now(), modelled = machine.end();
  StepLength last;
  training.train(kRehearsedSteps, [&] {
    last = {runtime::to_seconds(runtime::now() - here),
            runtime::to_seconds(machine.end() - modelled)};
    here = runtime::now(), modelled = machine.end();
  });
  return last;
}

// The fraction of the step that these spans of a device cover; they don't overlap.
double covered_fraction(const ActedSteps& acted, int device,
                        bool (*is_meant)(const trace::Span& span)) {
  std::int64_t covered = 0;
  for (const trace::Span& span : acted.recording.spans) {
    if (span.rank != device || !is_meant(span)) continue;
    covered += std::max<std::int64_t>(
        0, std::min(span.end_ns, acted.step.end_ns) - std::max(span.begin_ns, acted.step.begin_ns));
  }
  return 1e-9 * static_cast<double>(covered) / acted.step_seconds;
}

void take_times(int num_devices, ActedSteps& acted) {
  // The first device's, without its very first step, which takes memory and settles DDP's buckets.
  std::vector<trace::Span> spans = acted.recording.spans;
  std::erase_if(spans, [](const trace::Span& span) {
    const bool is_first = span.category == trace::Category::step && span.sequence == 0;
    return span.rank != 0 || span.thread != trace::kDeviceThread || is_first;
  });
  const trace::Span* const step = trace::median_step_span(spans, /*rank=*/0);
  require(step != nullptr, ErrorCode::State, "act_out", "the first device recorded no second step");
  acted.step = *step;
  acted.step_seconds = 1e-9 * static_cast<double>(step->end_ns - step->begin_ns);
  acted.breakdown = trace::step_breakdown(spans, acted.step);
  for (int device = 0; device < num_devices; ++device) {
    acted.busy.push_back(covered_fraction(acted, device, slow_motion::is_kernel));
    const double put_off = covered_fraction(acted, device, slow_motion::is_late);
    acted.put_off = std::max(acted.put_off, put_off);
  }
  std::vector<double> busy = acted.busy;
  std::ranges::sort(busy);
  acted.busy_fraction = (busy[(busy.size() - 1) / 2] + busy[busy.size() / 2]) / 2;
}

std::string_view describe_links(const predict::Topology& topology) {
  const auto is_nvlink = [](const predict::Link& link) {
    return link.kind == predict::LinkKind::nvlink;
  };
  const auto is_switch = [](const predict::Node& node) {
    return node.kind == predict::NodeKind::nvswitch;
  };
  if (std::ranges::any_of(topology.nodes, is_switch)) return "NVLink through NVSwitch";
  return std::ranges::any_of(topology.links, is_nvlink) ? "NVLink and PCIe" : "PCIe";
}

}  // namespace

predict::PredictedStep predict_training(const predict::Topology& topology,
                                        const Training& training) {
  predict::Network network(topology);
  predict::StepOptions options;
  options.strategy = training.num_devices == 1 ? Strategy::single : training.strategy;
  options.num_devices = training.num_devices;
  options.bucket_byte_limits = training.ddp.reducer_options().bucket_byte_limits;
  options.own_plan = plan::AllReducePlan::automatic;
  return predict::predict_step(network, workload_of(training, topology.device), options);
}

ActedSteps act_out(const predict::Topology& topology, const Training& training, int num_steps) {
  const std::vector<LabelledTensors> rows = make_rows(training);
  ActedTraining acted;
  acted.num_devices = training.num_devices;
  for (const LabelledTensors& batch : rows) acted.inputs.push_back(batch.x);
  acted.train = [&](int steps, const std::function<void()>& after_step) {
    return train(training, rows, steps, after_step);
  };
  return act_out(topology, acted, num_steps);
}

ActedSteps act_out(const predict::Topology& topology, const ActedTraining& training,
                   int num_steps) {
  const StepLength rehearsed = rehearse(topology, training);
  ActedSteps acted;
  double here = std::max(kShortestStep, kHeadroom * rehearsed.here);
  for (int i = 0; i < kMostTries; ++i, here *= 2) {
    acted = {};
    acted.factor = here / rehearsed.modelled;
    slow_motion::MachineOptions options = machine_options(topology, training);
    options.factor = acted.factor;
    options.patience = runtime::from_seconds(kPatientSteps * here);
    slow_motion::Machine machine(options);
    const slow_motion::InstalledMachine installed(machine);
    give_inputs(machine, training);
    trace::start({.times_slower = acted.factor});
    acted.weights = training.train(num_steps, {});
    runtime::record_device_spans();
    trace::stop();
    acted.recording = trace::collect();
    take_times(training.num_devices, acted);
    if (acted.put_off < kMostPutOff) break;
  }
  return acted;
}

std::string describe_slow_motion(const predict::Topology& topology) {
  return fmt::format(
      "Slow motion on {} ({} x {}, {}): CPU devices train for real, but each kernel and message "
      "takes as long as it would there, times a factor by which all times are divided.",
      topology.name, topology.gpus.size(), topology.device.name, describe_links(topology));
}

int count_nvlink_peers(const predict::Topology& topology, int num_devices) {
  const auto are_linked = [&](std::size_t a, std::size_t b) {
    return std::ranges::any_of(topology.links, [&](const predict::Link& link) {
      return link.kind == predict::LinkKind::nvlink &&
             ((link.a == a && link.b == b) || (link.a == b && link.b == a));
    });
  };
  const auto is_reached = [&](std::size_t peer) {
    if (are_linked(topology.gpus[0], peer)) return true;
    for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
      if (topology.nodes[node].kind == predict::NodeKind::nvswitch &&
          are_linked(topology.gpus[0], node) && are_linked(node, peer)) {
        return true;
      }
    }
    return false;
  };
  return static_cast<int>(
      std::count_if(topology.gpus.begin() + 1, topology.gpus.begin() + num_devices, is_reached));
}

bool has_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& left, const Tensor& right) {
    const std::vector<float> x = left.to_vector<float>(), y = right.to_vector<float>();
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

}  // namespace lockstep::tutorial
