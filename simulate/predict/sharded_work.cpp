// ZeRO: the devices share the update, and in its third stage the parameters.
//
// A reduce-scatter and an all-gather are the halves of an all-reduce, and cost half of it each.
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020 (stages 1 and 3: as many bytes as DDP, one and a half times as many).
#include <algorithm>

#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/step_work.h"

namespace lockstep::predict {
namespace {

// How many layers ahead parameters are gathered: what PyTorch's FSDP allows with limit_all_gathers.
constexpr std::size_t kLayersAhead = 2;

}  // namespace

void StepWork::prepare_shards() {
  AllReduceCost cost(network_, num_devices(), options_.own_plan, options_.ranks);
  for (const LayerWork& layer : workload_.layers) {
    share_seconds_.push_back(cost.seconds(layer.gradient_bytes()) / 2);
  }
  const auto ranks = static_cast<double>(num_devices());
  const double halves = options_.strategy == Strategy::zero3 ? 3 : 2;
  comm_bytes_ = halves * (ranks - 1) / ranks * gradient_bytes();
}

std::size_t StepWork::add_gather_of(std::size_t layer, std::vector<std::size_t> after) {
  return add({WorkLane::comm, trace::Category::communication, "all-gather", share_seconds_[layer],
              workload_.layers[layer].gradient_bytes(), std::move(after)});
}

std::size_t StepWork::add_scatter_of(std::size_t layer, std::size_t after) {
  return add({WorkLane::comm,
              trace::Category::communication,
              "reduce-scatter",
              share_seconds_[layer],
              workload_.layers[layer].gradient_bytes(),
              {after}});
}

void StepWork::add_sharded_forward() {
  std::vector<std::size_t> forward;
  for (std::size_t i = 0; i < workload_.layers.size(); ++i) {
    std::vector<std::size_t> after = gate_;
    if (i >= kLayersAhead) after.push_back(forward[i - kLayersAhead]);
    const std::size_t gathered = add_gather_of(i, std::move(after));
    forward.push_back(add({WorkLane::compute,
                           trace::Category::forward,
                           names_[i],
                           workload_.layers[i].forward_seconds * layers_beside_,
                           0,
                           {gathered}}));
  }
  gate_ = {forward.back()};
}

// The last layer's parameters are still there. The next gather goes ahead of the sum behind it, so
// that no layer waits for its parameters longer than it must.
std::vector<std::size_t> StepWork::add_sharded_backward() {
  const std::size_t num_layers = workload_.layers.size();
  std::vector<std::size_t> backward(num_layers);
  std::size_t gathered = gate_[0];
  sums_.clear();
  for (std::size_t i = num_layers; i-- > 0;) {
    const LayerWork& layer = workload_.layers[i];
    backward[i] = add({WorkLane::compute,
                       trace::Category::backward,
                       names_[i],
                       layer.backward_seconds * layers_beside_ + copy_seconds(layer),
                       0,
                       {gathered}});
    if (i > 0) {
      const std::size_t ahead = i + 1 < num_layers ? backward[i + 1] : gate_[0];
      gathered = add_gather_of(i - 1, {ahead});
    }
    sums_.push_back(add_scatter_of(i, backward[i]));
  }
  return backward;
}

// Each device its share; in the first stage all get all of it, before the next step.
void StepWork::update_shards(const std::vector<std::size_t>& backward) {
  std::vector<std::size_t> summed = sums_;
  if (options_.strategy == Strategy::zero1) {
    for (std::size_t i = workload_.layers.size(); i-- > 0;) {
      summed.push_back(add_scatter_of(i, backward[i]));
    }
  }
  ends_.push_back(
      add({WorkLane::compute, trace::Category::optimizer, "optimizer",
           optimizer_seconds(1 / static_cast<double>(num_devices())), 0, std::move(summed)}));
  gate_ = {ends_.back()};
  if (options_.strategy != Strategy::zero1) return;
  for (std::size_t i = 0; i < workload_.layers.size(); ++i) {
    gate_.push_back(add_gather_of(i, {ends_.back()}));
  }
}

}  // namespace lockstep::predict
