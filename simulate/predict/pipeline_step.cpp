#include "simulate/predict/step.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "simulate/predict/kernel_cost.h"

namespace lockstep::predict {
namespace {

double seconds_of(const LayerWork& layer) {
  return layer.forward_seconds + layer.backward_seconds;
}

// One device's part of the model, for a micro-batch.
struct Part {
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  double hop = 0;           // to the next part, and of the gradient back from it
  double output_bytes = 0;  // of that hop
};

std::vector<Part> parts_of(Network& network, const Workload& workload, std::size_t num_parts) {
  const std::vector<std::size_t> first = balanced_parts(workload.layers, num_parts);
  const DeviceProfile& device = network.topology().device;
  const double beside = layers_beside(device, num_parts);
  const auto all_bytes = static_cast<double>(workload.gradient_bytes());
  std::vector<Part> parts(num_parts);
  for (std::size_t i = 0; i < num_parts; ++i) {
    Part& part = parts[i];
    double bytes = 0;
    for (std::size_t layer = first[i]; layer < first[i + 1]; ++layer) {
      part.forward += workload.layers[layer].forward_seconds * beside;
      part.backward += workload.layers[layer].backward_seconds * beside;
      part.output_bytes = workload.layers[layer].output_bytes;
      bytes += static_cast<double>(workload.layers[layer].gradient_bytes());
    }
    part.optimizer = update_seconds_beside(device, num_parts, bytes,
                                           workload.optimizer_seconds * bytes / all_bytes);
    if (i + 1 == num_parts) break;
    Traffic traffic(network);
    traffic.add(network.gpu(i), network.gpu(i + 1), part.output_bytes);
    part.hop = traffic.seconds();
  }
  return parts;
}

// When each part passes each micro-batch forward, then all of them back, then updates its weights.
class Schedule {
 public:
  Schedule(const std::vector<Part>& parts, std::size_t num_micro_batches)
      : parts_(parts), free_at_(parts.size(), 0) {
    for (std::size_t i = 0; i < num_micro_batches; ++i) pass_forward();
    for (std::size_t i = 0; i < num_micro_batches; ++i) pass_backward();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      do_next(i, 0, trace::Category::optimizer, "optimizer", parts[i].optimizer);
    }
  }

  double end_of(std::size_t part) const { return free_at_[part]; }
  const std::vector<Work>& work() const { return work_; }
  const std::vector<DoneWork>& times() const { return times_; }

 private:
  void do_next(std::size_t part, double ready, trace::Category category, const char* name,
               double seconds) {
    const double begin = std::max(free_at_[part], ready);
    free_at_[part] = begin + seconds;
    Work work{WorkLane::compute, category, name, seconds};
    work.device = part;
    work_.push_back(std::move(work));
    times_.push_back({begin, free_at_[part]});
  }
  void pass_forward() {
    double arrives = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      do_next(i, arrives, trace::Category::forward, "forward", parts_[i].forward);
      arrives = free_at_[i] + parts_[i].hop;
    }
  }
  void pass_backward() {
    double arrives = 0;
    for (std::size_t i = parts_.size(); i-- > 0;) {
      do_next(i, arrives, trace::Category::backward, "backward", parts_[i].backward);
      arrives = free_at_[i] + (i > 0 ? parts_[i - 1].hop : 0);
    }
  }

  const std::vector<Part>& parts_;
  std::vector<double> free_at_;
  std::vector<Work> work_;
  std::vector<DoneWork> times_;
};

// How many parts it takes when none may take longer.
std::size_t num_parts_within(const std::vector<LayerWork>& layers, double limit) {
  std::size_t count = 1;
  double filled = 0;
  for (const LayerWork& layer : layers) {
    if (filled > 0 && filled + seconds_of(layer) > limit) {
      ++count;
      filled = 0;
    }
    filled += seconds_of(layer);
  }
  return count;
}

}  // namespace

std::vector<std::size_t> balanced_parts(const std::vector<LayerWork>& layers,
                                        std::size_t num_parts) {
  double low = 0;
  double high = 0;
  for (const LayerWork& layer : layers) {
    low = std::max(low, seconds_of(layer));
    high += seconds_of(layer);
  }
  for (int i = 0; i < 60; ++i) {  // the shortest limit that is enough, by halving
    const double middle = (low + high) / 2;
    (num_parts_within(layers, middle) <= num_parts ? high : low) = middle;
  }
  std::vector<std::size_t> first{0};
  double filled = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    // Each part that is still to come needs a layer.
    const bool must_go_on = layers.size() - i == num_parts - first.size();
    const bool is_full = filled > 0 && filled + seconds_of(layers[i]) > high * (1 + 1e-12);
    if (i > first.back() && first.size() < num_parts && (must_go_on || is_full)) {
      first.push_back(i);
      filled = 0;
    }
    filled += seconds_of(layers[i]);
  }
  first.push_back(layers.size());
  return first;
}

void require_layer_for_each(std::size_t num_devices, std::size_t num_layers) {
  require(num_devices <= num_layers, ErrorCode::Usage, "predict",
          "a pipeline has a layer for each device at least: the model has {} layers, {} devices "
          "were asked for; use fewer --devices",
          num_layers, num_devices);
}

PredictedStep predict_pipeline(Network& network, const Workload& workload,
                               const StepOptions& options) {
  const std::size_t num_devices = options.num_devices;
  require_layer_for_each(num_devices, workload.layers.size());
  const std::vector<Part> parts = parts_of(network, workload, num_devices);
  const auto num_batches = static_cast<double>(options.num_micro_batches);
  const Schedule schedule(parts, options.num_micro_batches);
  PredictedStep result;
  trace::StepBreakdown& breakdown = result.breakdown;
  for (std::size_t i = 0; i < num_devices; ++i) {
    const auto share = 1 / static_cast<double>(num_devices);
    breakdown.step = std::max(breakdown.step, schedule.end_of(i));
    breakdown.forward += share * num_batches * parts[i].forward;
    breakdown.backward += share * num_batches * parts[i].backward;
    breakdown.optimizer += share * parts[i].optimizer;
    const double sent = parts[i].output_bytes * (i + 1 < num_devices ? 1 : 0) +
                        (i > 0 ? parts[i - 1].output_bytes : 0);
    result.comm_bytes_per_device = std::max(result.comm_bytes_per_device, num_batches * sent);
  }
  breakdown.host = workload.fixed_seconds *
                   traffic_beside(network.topology().device, num_devices, workload.input_bytes);
  breakdown.step += breakdown.host;
  const double busy = breakdown.forward + breakdown.backward + breakdown.optimizer;
  breakdown.wait = breakdown.step - busy - breakdown.host;
  result.step_seconds = breakdown.step;
  result.busy_fraction = busy / breakdown.step;
  result.work = schedule.work();
  result.times = schedule.times();
  return result;
}

}  // namespace lockstep::predict
