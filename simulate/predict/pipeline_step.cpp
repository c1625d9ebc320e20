#include "simulate/predict/step.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "simulate/predict/kernel_cost.h"

namespace lockstep::predict {
namespace {

std::vector<std::size_t> even_parts(const std::vector<LayerWork>& layers, std::size_t num_parts) {
  std::vector<double> seconds;
  for (const LayerWork& layer : layers) {
    seconds.push_back(layer.forward_seconds + layer.backward_seconds);
  }
  return plan::balanced_parts(seconds, num_parts);
}

// To add a gradient, two are read and one is written.
constexpr double kAddPasses = 3;

// A part of the model, for a micro-batch.
struct Part {
  double forward = 0;
  double backward = 0;
  double again = 0;  // a backward pass that adds to gradients
  double optimizer = 0;
  double hop = 0;           // to the next part, and of the gradient back from it
  double output_bytes = 0;  // that hop's output
};

std::vector<Part> parts_of(Network& network, const Workload& workload, const StepOptions& options) {
  const std::size_t num_devices = options.num_devices;
  const std::size_t num_parts = num_devices * options.num_chunks;
  const std::vector<std::size_t> first =
      options.parts.empty() ? even_parts(workload.layers, num_parts) : options.parts;
  const DeviceProfile& device = network.topology().device;
  const auto all_bytes = static_cast<double>(workload.gradient_bytes());
  std::vector<Part> parts(num_parts);
  for (std::size_t i = 0; i < num_parts; ++i) {
    Part& part = parts[i];
    double bytes = 0;
    for (std::size_t layer = first[i]; layer < first[i + 1]; ++layer) {
      part.forward += workload.layers[layer].forward_seconds;
      part.backward += workload.layers[layer].backward_seconds;
      part.output_bytes = workload.layers[layer].output_bytes;
      bytes += static_cast<double>(workload.layers[layer].gradient_bytes());
      for (const std::size_t tensor : workload.layers[layer].tensor_bytes) {
        part.again += traffic_seconds(device, kAddPasses * static_cast<double>(tensor));
      }
    }
    part.optimizer = workload.optimizer_seconds * bytes / all_bytes;
    if (i + 1 == num_parts) break;
    Traffic traffic(network);
    if (num_devices == 1) continue;  // its chunks pass on what they have
    traffic.add(network.gpu(i % num_devices), network.gpu((i + 1) % num_devices),
                part.output_bytes);
    part.hop = traffic.seconds();
  }
  return parts;
}

}  // namespace

void require_layer_for_each(std::size_t num_devices, std::size_t num_layers) {
  require(num_devices <= num_layers, ErrorCode::Usage, "predict",
          "a pipeline has a layer for each device at least: the model has {} layers, {} devices "
          "were asked for; use fewer devices",
          num_layers, num_devices);
}

PredictedStep predict_pipeline(Network& network, const Workload& workload,
                               const StepOptions& options) {
  const std::size_t num_devices = options.num_devices;
  const std::size_t num_parts = num_devices * options.num_chunks;
  require_layer_for_each(num_parts, workload.layers.size());
  const std::vector<Part> parts = parts_of(network, workload, options);
  const plan::PipelinePlan plan = plan::pipeline_plan(
      options.schedule, num_devices, options.num_micro_batches, options.num_chunks);
  plan::PipelineCosts costs;
  for (const Part& part : parts) {
    costs.forward.push_back(part.forward);
    costs.backward.push_back(part.backward);
    costs.hop.push_back(part.hop);
    costs.again.push_back(part.again);
  }
  const plan::PipelineTimes times = plan::time_pipeline(plan, costs);
  const auto num_batches = static_cast<double>(options.num_micro_batches);
  PredictedStep result;
  trace::StepBreakdown& breakdown = result.breakdown;
  const auto add = [&](std::size_t device, trace::Category category, const std::string& name,
                       double begin, double end) {
    result.work.push_back({WorkLane::compute, category, trace::intern(name), end - begin});
    result.work.back().device = device;
    result.times.push_back({begin, end});
  };
  for (std::size_t i = 0; i < num_devices; ++i) {
    for (std::size_t k = 0; k < plan.stages[i].size(); ++k) {
      const plan::PipelineWork& work = plan.stages[i][k];
      const bool is_forward = work.pass == plan::PipelineWork::Pass::forward;
      add(i, is_forward ? trace::Category::forward : trace::Category::backward,
          plan::describe(plan, work), times.begin[i][k], times.end[i][k]);
    }
    double optimizer = 0;
    double sent = 0;
    for (std::size_t p = i; p < num_parts; p += num_devices) {
      const auto share = 1 / static_cast<double>(num_devices);
      breakdown.forward += share * num_batches * parts[p].forward;
      breakdown.backward +=
          share * (num_batches * parts[p].backward + (num_batches - 1) * parts[p].again);
      breakdown.optimizer += share * parts[p].optimizer;
      optimizer += parts[p].optimizer;
      sent +=
          (p + 1 < num_parts ? parts[p].output_bytes : 0) + (p > 0 ? parts[p - 1].output_bytes : 0);
    }
    const double end = times.end[i].back();
    add(i, trace::Category::optimizer, "optimizer", end, end + optimizer);
    breakdown.step = std::max(breakdown.step, end + optimizer);
    if (num_devices > 1) {
      result.comm_bytes_per_device = std::max(result.comm_bytes_per_device, num_batches * sent);
    }
  }
  breakdown.host = num_batches * workload.fixed_seconds;
  breakdown.step += breakdown.host;
  const double busy = breakdown.forward + breakdown.backward + breakdown.optimizer;
  breakdown.wait = breakdown.step - busy - breakdown.host;
  result.step_seconds = breakdown.step;
  result.busy_fraction = busy / breakdown.step;
  return result;
}

}  // namespace lockstep::predict
