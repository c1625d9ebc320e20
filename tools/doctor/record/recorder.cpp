#include "tools/doctor/record/recorder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep::record {
namespace {

using nlohmann::json;
using trace::Moment;
using trace::OptimizerStep;

// Each of the first kToldSteps steps is recorded, later every kToldLater-th: the same on every
// rank.
constexpr std::uint64_t kToldSteps = 256;
constexpr std::uint64_t kToldLater = 64;
constexpr int kMostScheduled = 1000;  // learning rates per thread

// The calling thread's, since its last step.
thread_local bool was_clipped = false;
thread_local std::map<const void*, std::uint64_t> buffers;

// The objects of the replicas that the calling thread is running, as they were before.
using Objects = std::vector<std::vector<std::byte>>;
thread_local std::vector<Objects> replicas;

std::string absolute(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::absolute(path, ignored).lexically_normal().string();
}

struct ToJson {
  json operator()(std::span<const std::string> texts) const {
    return std::vector<std::string>(texts.begin(), texts.end());
  }
  json operator()(std::span<const void* const> pointers) const {
    json addresses = json::array();
    for (const void* pointer : pointers) addresses.push_back(trace::address_of(pointer));
    return addresses;
  }
  template <typename Value>
  json operator()(Value value) const {
    return value;
  }
};

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
  gradients_.begin_backward(pass, *std::static_pointer_cast<const LossRecord>(loss), upstream);
}

void Recorder::leaf_gradient(const trace::LeafGradient& gradient) {
  gradients_.arrive(gradient);
}

void Recorder::step(const OptimizerStep& step, Moment moment) {
  if (moment == Moment::made) {  // it may be at the address of one that is gone
    for (const OptimizerStep::Parameter& parameter : step.parameters) {
      if (!parameter.has_gradient) gradients_.forget(parameter.leaf);
    }
    const std::lock_guard lock(mutex_);
    optimizers_[step.optimizer] = {++num_optimizers_, 0, next_number(), false, {}};
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

ParameterRecord Recorder::record_of(const OptimizerStep::Parameter& parameter,
                                    const LeafGradient& gradient, std::uint64_t since) const {
  const Rank me = current_rank();
  const Calls::Touched touched =
      calls_.touched_since(me, std::max(since, gradient.begun), parameter.gradient);
  ParameterRecord record;
  record.leaf = trace::address_of(parameter.leaf);
  record.shape = parameter.shape;
  record.num_elements = parameter.num_elements;
  record.has_gradient = parameter.has_gradient;
  record.before = hash_of(parameter.value);
  record.used = sketch_of(parameter.gradient);
  record.arrived = gradient.arrived;
  record.moved = touched.number;
  record.unfinished = touched.unfinished;
  record.weight_moved = calls_.touched_since(me, since, parameter.value).number;
  record.was_discarded = gradient.was_discarded;
  record.holds_used_one = gradient.holds_used_one;
  record.parts = gradient.parts;
  return record;
}

void Recorder::begin_step(const OptimizerStep& step) {
  Optimizer& its = optimizer(step.optimizer);
  StepRecord begun;
  begun.optimizer = its.id;
  begun.step = its.num_steps++;
  its.is_told = begun.step < kToldSteps || begun.step % kToldLater == 0;
  std::set<const void*> stepped;
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    stepped.insert(parameter.leaf);
    std::optional<LeafGradient> gradient;
    if (parameter.has_gradient) gradient = gradients_.take_gradient(parameter.leaf);
    if (!its.is_told) continue;
    begun.parameters.push_back(
        record_of(parameter, gradient.value_or(LeafGradient{}), its.last_event));
    for (const PartRecord& part : begun.parameters.back().parts) begun.passes[part.pass];
  }
  for (auto& [number, losses] : begun.passes) {
    const Pass pass = gradients_.pass_of(number);
    losses = pass.losses;
    for (const auto& [leaf, num_elements] : pass.leaves) {
      if (!stepped.contains(leaf)) begun.reached[trace::address_of(leaf)] = num_elements;
    }
  }
  its.begun = std::move(begun);
}

void Recorder::end_step(const OptimizerStep& step) {
  Optimizer& its = optimizer(step.optimizer);
  StepRecord record = std::exchange(its.begun, {});
  record.was_clipped = std::exchange(was_clipped, false);
  const auto held = std::exchange(buffers, {});
  const std::uint64_t since = std::exchange(its.last_event, next_number());
  if (!its.is_told) return;
  record.learning_rate = step.learning_rate;
  record.device = step.device;
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    record.after.push_back(hash_of(parameter.value));
  }
  for (const auto& [memory, hash] : held) record.buffers.push_back(hash);
  std::ranges::sort(record.buffers);
  const Calls::Traffic traffic = calls_.traffic_since(current_rank(), since);
  record.collective_bytes = traffic.collective_bytes;
  record.sent_bytes = traffic.sent_bytes;
  write_event("step", record);
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

// Parameters, buffers and children lie outside of an object. So if its bytes differ afterwards,
// forward() wrote to a member, and the value is lost with the replica.
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
    write_event("member", MemberRecord{{}, modules[m].type_name, to_string(device), num_changed});
  }
}

void Recorder::fact(std::string_view name, std::initializer_list<trace::Field> fields) {
  if (name == "clipped") {  // belongs to the next step
    was_clipped = true;
    return;
  }
  thread_local int num_scheduled = 0;
  if (name == "schedule" && ++num_scheduled > kMostScheduled) return;
  json event = json::object();
  for (const trace::Field& field : fields) {
    json& value = event[std::string(field.key)];
    value = std::visit(ToJson{}, field.value);
    if (field.key == "path") value = absolute(value.get<std::string>());
  }
  write_event(std::string(name).c_str(), std::move(event));
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

// recorder.h says what refers to it.
extern "C" {
bool lockstep_recorder = lockstep::record::install();
}
