#include "tools/doctor/record/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep::record {
namespace {

using trace::Moment;
using trace::OptimizerStep;

// Steps that are told one by one, and how often after them: every rank tells the same ones.
constexpr std::uint64_t kToldSteps = 256;
constexpr std::uint64_t kToldLater = 64;
constexpr int kMostScheduled = 1000;  // learning rates that a thread asked for

// The calling thread's, since its last step.
thread_local bool was_clipped = false;
thread_local std::map<const void*, std::uint64_t> buffers;

// The objects of the replicas that the calling thread is inside of, as they were before.
using Objects = std::vector<std::vector<std::byte>>;
thread_local std::vector<Objects> replicas;

std::string json_of(const LossTaken& taken) {
  const Loss& loss = *taken.loss;
  return fmt::format(
      "{{\"rows\":{},\"mean\":{},\"upstream\":{:.17g},\"value\":{},\"hashes\":{},\"labels\":{}}}",
      loss.num_rows, loss.is_mean, taken.upstream, list_of(std::vector<double>{loss.value}),
      list_of(loss.rows), list_of(loss.labels));
}

std::string json_of(const Part& part) {
  return fmt::format("{{\"pass\":{},\"sketch\":{}}}", part.pass, list_of(part.gradient));
}

std::string with_comma(const std::string& list) {
  return list.empty() ? "" : list + ",";
}

std::string absolute(std::string_view path) {
  std::error_code ignored;
  return std::filesystem::absolute(path, ignored).lexically_normal().string();
}

}  // namespace

void Recorder::batch(ConstTensorView rows, std::size_t num_rows) {
  Gradients::begin_batch(rows, num_rows);
}

void Recorder::buffer(ConstTensorView values) {
  if (values.data != nullptr) buffers[values.data] = hash_of(values);
}

std::shared_ptr<const void> Recorder::loss(const trace::Loss& loss) {
  return Gradients::take_loss(loss);
}

void Recorder::loss_backward(std::uint64_t pass, const std::shared_ptr<const void>& loss,
                             ConstTensorView upstream) {
  gradients_.begin_backward(pass, std::static_pointer_cast<const Loss>(loss), upstream);
}

void Recorder::leaf_gradient(const trace::LeafGradient& gradient) {
  gradients_.arrive(gradient);
}

void Recorder::step(const OptimizerStep& step, Moment moment) {
  if (moment == Moment::made) {  // maybe at the address of one that is gone
    const std::lock_guard lock(mutex_);
    optimizers_[step.optimizer] = {++num_optimizers_, 0, next_number(), {}};
  } else if (moment == Moment::begins) {
    begin_step(step);
  } else {
    end_step(step);
  }
}

Recorder::Optimizer& Recorder::optimizer(const void* address) {
  const std::lock_guard lock(mutex_);
  return optimizers_[address];
}

std::string Recorder::parameter_json(const OptimizerStep::Parameter& parameter,
                                     const LeafGradient& gradient, std::uint64_t since) const {
  const Rank me = current_rank();
  const Calls::Touched touched =
      calls_.touched_since(me, std::max(since, gradient.begun), parameter.gradient);
  const Calls::Touched weight = calls_.touched_since(me, since, parameter.value);
  std::string parts;
  for (const Part& part : gradient.parts) parts = with_comma(parts) + json_of(part);
  return fmt::format(
      "{{\"leaf\":{},\"shape\":{},\"elements\":{},\"has_gradient\":{},\"before\":{},\"used\":{},"
      "\"arrived\":{},\"discarded\":{},\"stale\":{},\"moved\":{},\"unfinished\":{},"
      "\"weight_moved\":{},\"parts\":[{}]}}",
      trace::address_of(parameter.leaf), json_text(parameter.shape), parameter.num_elements,
      parameter.has_gradient, hash_of(parameter.value), list_of(sketch_of(parameter.gradient)),
      gradient.arrived, gradient.was_discarded, gradient.holds_used_one, touched.number,
      touched.unfinished, weight.number, parts);
}

void Recorder::begin_step(const OptimizerStep& step) {
  Optimizer& its = optimizer(step.optimizer);
  Begun begun;
  begun.number = its.num_steps++;
  begun.since = its.last_event;
  begun.is_told = begun.number < kToldSteps || begun.number % kToldLater == 0;
  std::set<std::uint64_t> passes;
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    std::optional<LeafGradient> gradient;
    if (parameter.has_gradient) gradient = gradients_.take_gradient(parameter.leaf);
    if (!begun.is_told) continue;
    const LeafGradient found = gradient.value_or(LeafGradient{});
    for (const Part& part : found.parts) passes.insert(part.pass);
    begun.parameters = with_comma(begun.parameters) + parameter_json(parameter, found, begun.since);
  }
  for (const std::uint64_t pass : passes) add_pass(step, pass, begun);
  its.begun = std::move(begun);
}

void Recorder::add_pass(const OptimizerStep& step, std::uint64_t pass, Begun& begun) const {
  std::string losses;
  for (const LossTaken& taken : gradients_.losses_of(pass)) {
    losses = with_comma(losses) + json_of(taken);
  }
  begun.losses =
      with_comma(begun.losses) + fmt::format("{{\"pass\":{},\"losses\":[{}]}}", pass, losses);
  for (const ReachedLeaf& reached : gradients_.leaves_of(pass)) {
    const bool is_stepped =
        std::ranges::find(step.parameters, reached.leaf, &OptimizerStep::Parameter::leaf) !=
        step.parameters.end();
    if (is_stepped) continue;
    begun.reached = with_comma(begun.reached) +
                    fmt::format("[{},{}]", trace::address_of(reached.leaf), reached.num_elements);
  }
}

void Recorder::end_step(const OptimizerStep& step) {
  Optimizer& its = optimizer(step.optimizer);
  const bool clipped = std::exchange(was_clipped, false);
  const auto held = std::exchange(buffers, {});
  const Begun begun = std::exchange(its.begun, {});
  its.last_event = next_number();
  if (!begun.is_told) return;
  std::vector<std::uint64_t> after;
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    after.push_back(hash_of(parameter.value));
  }
  std::vector<std::uint64_t> buffer_hashes;
  for (const auto& [memory, hash] : held) buffer_hashes.push_back(hash);
  std::ranges::sort(buffer_hashes);
  const Calls::Traffic traffic = calls_.traffic_since(current_rank(), begun.since);
  Event("step")
      .add("optimizer", its.id)
      .add("step", begun.number)
      .add("learning_rate", step.learning_rate)
      .add("device", step.device)
      .add_json("clipped", clipped ? "true" : "false")
      .add("collective_bytes", traffic.collective_bytes)
      .add("sent_bytes", traffic.sent_bytes)
      .add_json("buffers", list_of(buffer_hashes))
      .add_json("after", list_of(after))
      .add_json("passes", "[" + begun.losses + "]")
      .add_json("reached", "[" + begun.reached + "]")
      .add_json("parameters", "[" + begun.parameters + "]");
}

std::string Recorder::new_group_name() {
  return record::new_group_name();
}

std::uint32_t Recorder::group_made(const trace::RankGroup& group) {
  return register_group(group);
}

void Recorder::group_left(std::uint32_t group, int rank) {
  calls_.leave(group, rank);
}

void Recorder::call(const trace::Call& call, Moment moment) {
  if (moment == Moment::begins) calls_.begin(call);
  if (moment == Moment::ends) calls_.end(call);
  if (moment == Moment::waited) calls_.wait(call.memory.data, call.sequence);
}

// Parameters, buffers and children stand outside of an object, so what differs afterwards is a
// member that forward() writes: it is lost with the replica.
void Recorder::replica(Device device, std::span<const trace::ReplicaModule> modules,
                       Moment moment) {
  if (moment == Moment::begins) {
    Objects& objects = replicas.emplace_back();
    for (const auto& module : modules) {
      objects.emplace_back(module.object.begin(), module.object.end());
    }
    return;
  }
  const Objects before = std::move(replicas.back());
  replicas.pop_back();
  for (std::size_t m = 0; m < modules.size(); ++m) {
    const std::span<const std::byte> now = modules[m].object;
    std::uint64_t num_changed = 0;
    for (std::size_t i = 0; i < now.size(); ++i) num_changed += now[i] != before[m][i] ? 1 : 0;
    if (num_changed == 0) continue;
    Event("member")
        .add("module", modules[m].type_name)
        .add("device", to_string(device))
        .add("bytes", num_changed);
  }
}

void Recorder::fact(std::string_view name, std::initializer_list<trace::Field> fields) {
  if (name == "clipped") {  // part of the next step
    was_clipped = true;
    return;
  }
  thread_local int num_scheduled = 0;
  if (name == "schedule" && ++num_scheduled > kMostScheduled) return;
  Event event(name);
  for (const trace::Field& field : fields) {
    if (field.key == "path") {
      event.add(field.key, absolute(std::get<std::string_view>(field.value)));
    } else {
      event.add(field);
    }
  }
}

namespace {

bool install() {
  if (!is_wanted()) return false;
  static Recorder& recorder = *new Recorder;  // outlives every thread
  trace::set_observer(&recorder);
  return true;
}

}  // namespace
}  // namespace lockstep::record

// recorder.h says who asks for it.
extern "C" {
bool lockstep_recorder = lockstep::record::install();
}
