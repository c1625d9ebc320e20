#include "engine/audit/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/audit/calls.h"
#include "engine/audit/event.h"
#include "engine/audit/losses.h"
#include "engine/audit/rank.h"

namespace lockstep::audit {
namespace {

// Steps that are told one by one, and how often after them: every rank tells the same ones.
constexpr std::uint64_t kToldSteps = 256;
constexpr std::uint64_t kToldLater = 64;

struct Optimizer {
  std::uint64_t id = 0;
  std::uint64_t num_steps = 0;
  std::uint64_t last_event = 0;
};

struct Optimizers {
  std::mutex mutex;
  std::uint64_t count = 0;
  std::unordered_map<const void*, Optimizer> all;
};

Optimizers& optimizers() {
  static auto& instance = *new Optimizers;  // outlives every thread
  return instance;
}

// Of the calling thread, since its last step.
thread_local bool was_clipped = false;
thread_local std::map<const void*, std::uint64_t> buffers;

std::string json_of(const LossTaken& taken) {
  const Loss& loss = *taken.loss;
  return fmt::format(
      "{{\"rows\":{},\"mean\":{},\"upstream\":{:.17g},\"value\":{},\"hashes\":{},\"labels\":{}}}",
      loss.num_rows, loss.mean == Mean::yes, taken.upstream,
      list_of(std::vector<double>{loss.value}), list_of(loss.rows), list_of(loss.labels));
}

std::string json_of(const Part& part) {
  return fmt::format("{{\"pass\":{},\"sketch\":{}}}", part.pass, list_of(part.gradient));
}

std::string with_comma(const std::string& list) {
  return list.empty() ? "" : list + ",";
}

// since: number of the event of the step before.
std::string json_of(const SteppedParameter& parameter, const LeafGradient& gradient,
                    std::uint64_t since) {
  const std::uint32_t group = current_group();
  const int rank = current_rank().rank;
  const Touched touched =
      touched_since(group, rank, std::max(since, gradient.begun), parameter.gradient);
  const Touched weight = touched_since(group, rank, since, parameter.value);
  std::string parts;
  for (const Part& part : gradient.parts) parts = with_comma(parts) + json_of(part);
  return fmt::format(
      "{{\"leaf\":{},\"shape\":{},\"elements\":{},\"has_gradient\":{},\"before\":{},\"used\":{},"
      "\"arrived\":{},\"discarded\":{},\"stale\":{},\"moved\":{},\"unfinished\":{},"
      "\"weight_moved\":{},\"parts\":[{}]}}",
      address_of(parameter.leaf), json_text(parameter.shape), parameter.num_elements,
      parameter.has_gradient, hash_of(parameter.value), list_of(sketch_of(parameter.gradient)),
      gradient.arrived, gradient.was_discarded, gradient.holds_used_one, touched.number,
      touched.unfinished, weight.number, parts);
}

}  // namespace

void note_optimizer(const void* optimizer) {
  const std::lock_guard lock(optimizers().mutex);
  optimizers().all[optimizer] = {++optimizers().count, 0, next_number()};
}

void note_clipping() {
  was_clipped = true;
}

void note_buffer(ConstTensorView buffer) {
  if (buffer.data != nullptr) buffers[buffer.data] = hash_of(buffer);
}

StepScope::StepScope(Step step) : step_(std::move(step)) {
  {
    const std::lock_guard lock(optimizers().mutex);
    Optimizer& optimizer = optimizers().all[step_.optimizer];
    optimizer_ = optimizer.id;
    number_ = optimizer.num_steps++;
    since_ = optimizer.last_event;
  }
  is_told_ = number_ < kToldSteps || number_ % kToldLater == 0;
  std::set<std::uint64_t> passes;
  for (const SteppedParameter& parameter : step_.parameters) {
    std::optional<LeafGradient> gradient;
    if (parameter.has_gradient) gradient = take_gradient(parameter.leaf);
    if (!is_told_) continue;
    const LeafGradient found = gradient.value_or(LeafGradient{});
    for (const Part& part : found.parts) passes.insert(part.pass);
    parameters_ = with_comma(parameters_) + json_of(parameter, found, since_);
  }
  for (const std::uint64_t pass : passes) add_pass(pass);
}

void StepScope::add_pass(std::uint64_t pass) {
  std::string losses;
  for (const LossTaken& taken : losses_of(pass)) losses = with_comma(losses) + json_of(taken);
  losses_ = with_comma(losses_) + fmt::format("{{\"pass\":{},\"losses\":[{}]}}", pass, losses);
  for (const ReachedLeaf& reached : leaves_of(pass)) {
    const bool is_stepped = std::ranges::find(step_.parameters, reached.leaf,
                                              &SteppedParameter::leaf) != step_.parameters.end();
    if (is_stepped) continue;
    reached_ = with_comma(reached_) +
               fmt::format("[{},{}]", address_of(reached.leaf), reached.num_elements);
  }
}

StepScope::~StepScope() {
  const bool clipped = std::exchange(was_clipped, false);
  const auto held = std::exchange(buffers, {});
  const std::uint64_t number = next_number();
  {
    const std::lock_guard lock(optimizers().mutex);
    optimizers().all[step_.optimizer].last_event = number;
  }
  if (!is_told_) return;
  std::vector<std::uint64_t> after;
  for (const SteppedParameter& parameter : step_.parameters) {
    after.push_back(hash_of(parameter.value));
  }
  std::vector<std::uint64_t> buffer_hashes;
  for (const auto& [memory, hash] : held) buffer_hashes.push_back(hash);
  std::ranges::sort(buffer_hashes);
  const Traffic traffic = traffic_since(current_group(), current_rank().rank, since_);
  Event("step")
      .add("optimizer", optimizer_)
      .add("step", number_)
      .add("learning_rate", step_.learning_rate)
      .add("device", step_.device)
      .add_json("clipped", clipped ? "true" : "false")
      .add("collective_bytes", traffic.collective_bytes)
      .add("sent_bytes", traffic.sent_bytes)
      .add_json("buffers", list_of(buffer_hashes))
      .add_json("after", list_of(after))
      .add_json("passes", "[" + losses_ + "]")
      .add_json("reached", "[" + reached_ + "]")
      .add_json("parameters", "[" + parameters_ + "]");
}

}  // namespace lockstep::audit
