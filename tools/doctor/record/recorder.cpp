// Records what a program does, for `lockstep doctor` to judge: an observer of the engine
// (engine/trace/observer.h), installed if LOCKSTEP_AUDIT names a folder when the program starts.
//
// The doctor examines any program that links the engine, so each of them must contain this code.
// The build sees to that, not the engine's sources: CMakeLists.txt compiles this folder into the
// library lockstep_trace, which all of the engine links, and makes every program ask the linker for
// lockstep_recorder, the symbol below that installs the recorder before main().
//
// An optimizer's step tells most: for each parameter, hashes of its weight before and after, the
// sketches of the gradient that it used and of the gradient from each backward pass of this rank,
// and the communication that moved it since the step before. So the records of all ranks show if
// the gradient came from all their rows.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/trace/observer.h"
#include "tools/doctor/record/event.h"
#include "tools/doctor/record/records.h"

namespace lockstep::doctor {
namespace {

using nlohmann::json;
using trace::Moment;
using trace::OptimizerStep;

// Each of the first kRecordedSteps steps is recorded, later every kRecordedLater-th: the same on
// every rank.
constexpr std::uint64_t kRecordedSteps = 256;
constexpr std::uint64_t kRecordedLater = 64;
constexpr int kMostScheduled = 1000;       // learning rates per thread
constexpr std::size_t kMostCalls = 4096;   // calls of a rank that are remembered
constexpr std::size_t kMostPasses = 4096;  // backward passes that are remembered

// The calling thread's, since its last step.
thread_local bool was_clipped = false;
thread_local std::map<const void*, std::uint64_t> buffers;
// The rows of the batch that the calling thread's next losses are of.
thread_local std::vector<std::uint64_t> batch_rows;

// The objects of the replicas that the calling thread is running, as they were before.
using Objects = std::vector<std::vector<std::byte>>;
thread_local std::vector<Objects> replicas;

struct Call {
  std::uint64_t number = 0;
  std::uint64_t sequence = 0;
  ConstTensorView memory;
  std::uint64_t sent_bytes = 0;
  bool is_message = false;  // send or recv
  bool is_waited_for = true;
};

// The calls since an event that moved some memory of the rank.
struct Touched {
  std::uint64_t number = 0;      // of the last call; 0: none
  std::uint64_t unfinished = 0;  // of a call without a wait; 0: none
};

struct LeafGradient {
  std::vector<PartRecord> parts;  // since the gradient was cleared
  std::uint64_t begun = 0;        // number of the first arrival; the memory's earlier use is past
  std::uint64_t arrived = 0;      // of the last one
  bool was_discarded = false;     // some of it was cleared before a step used it
  bool holds_used_one = false;    // true if it was added to a gradient that a step had used
  bool was_used = false;          // true if a step has used it since it was cleared
};

// The losses from which a backward pass began, and the leaves that it reached, with their elements.
struct Pass {
  std::vector<LossRecord> losses;
  std::map<const void*, std::size_t> leaves;
};

struct Optimizer {
  std::uint64_t id = 0;
  std::uint64_t num_steps = 0;
  std::uint64_t last_event = 0;  // of the step before
  bool is_recorded = true;       // false if the current step is not recorded
  StepRecord begun;
};

bool overlap(ConstTensorView a, ConstTensorView b) {
  const auto* const begin_a = static_cast<const std::byte*>(a.data);
  const auto* const begin_b = static_cast<const std::byte*>(b.data);
  return begin_a < begin_b + b.num_bytes() && begin_b < begin_a + a.num_bytes();
}

double scalar_of(ConstTensorView value, double missing) {
  if (value.data == nullptr || value.num_elements != 1) return missing;
  if (value.dtype == DType::float32) return *static_cast<const float*>(value.data);
  if (value.dtype == DType::float64) return *static_cast<const double*>(value.data);
  return missing;
}

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

class Recorder final : public trace::Observer {
 public:
  void batch(ConstTensorView rows, std::size_t num_rows) override;
  void buffer(ConstTensorView values) override;
  std::shared_ptr<const void> operation(const trace::Operation& operation) override;
  void backward(std::uint64_t pass, const std::shared_ptr<const void>& loss,
                ConstTensorView upstream) override;
  void leaf_gradient(const trace::LeafGradient& gradient) override;
  void step(const OptimizerStep& step, Moment moment) override;
  std::string new_group_name() override { return doctor::new_group_name(); }
  std::uint32_t group_made(const trace::RankGroup& group) override { return register_group(group); }
  void group_left(std::uint32_t group, int rank) override;
  void call(const trace::Call& call, Moment moment) override;
  void replica(Device device, std::span<const trace::ReplicaModule> modules,
               Moment moment) override;
  void fact(std::string_view name, std::initializer_list<trace::Field> fields) override;

 private:
  Optimizer& optimizer(const void* address);
  void begin_step(const OptimizerStep& step);
  void end_step(const OptimizerStep& step);
  ParameterRecord record_of(const OptimizerStep::Parameter& parameter, const LeafGradient& gradient,
                            std::uint64_t since);
  std::optional<LeafGradient> take_gradient(const void* leaf);

  // REQUIRES: mutex_ held.
  Pass& pass_of(std::uint64_t number) {
    if (passes_.size() > kMostPasses) passes_.erase(passes_.begin());
    return passes_[number];
  }

  void begin_call(const trace::Call& call);
  void end_wait(const trace::Call& call);
  std::vector<Call> calls_since(std::uint64_t number);
  Touched touched_since(std::uint64_t number, ConstTensorView memory);

  std::mutex mutex_;  // guards the members below, except the entry of an optimizer that is stepping
  std::map<std::pair<std::uint32_t, int>, std::deque<Call>> calls_;  // by group and rank
  std::map<std::uint64_t, Pass> passes_;
  std::unordered_map<const void*, LeafGradient> gradients_;  // by Variable::identity()
  std::uint64_t num_optimizers_ = 0;
  std::unordered_map<const void*, Optimizer> optimizers_;  // entries stay where they are
};

// --- from rows to gradients ---

void Recorder::batch(ConstTensorView rows, std::size_t num_rows) {
  batch_rows = hash_rows(rows, num_rows);
}

void Recorder::buffer(ConstTensorView values) {
  if (values.data != nullptr) buffers[values.data] = hash_of(values);
}

// Only losses are recorded; cross-entropy has labels.
std::shared_ptr<const void> Recorder::operation(const trace::Operation& operation) {
  const bool has_labels = operation.name.starts_with("CrossEntropy");
  if (!has_labels && !operation.name.starts_with("MseLoss")) return nullptr;
  auto loss = std::make_shared<LossRecord>();
  loss->num_rows = operation.num_rows;
  loss->is_mean = !operation.name.ends_with("Sum");
  loss->value = scalar_of(operation.result, std::numeric_limits<double>::quiet_NaN());
  if (batch_rows.size() == operation.num_rows) loss->hashes = batch_rows;
  const ConstTensorView labels = has_labels ? operation.saved[1] : ConstTensorView{};
  if (labels.data != nullptr && labels.num_elements == operation.num_rows) {
    const auto* first = static_cast<const std::int64_t*>(labels.data);
    loss->labels.assign(first, first + operation.num_rows);
  }
  return loss;
}

void Recorder::backward(std::uint64_t pass, const std::shared_ptr<const void>& loss,
                        ConstTensorView upstream) {
  LossRecord record = *std::static_pointer_cast<const LossRecord>(loss);
  record.upstream = scalar_of(upstream, 1);
  const std::lock_guard lock(mutex_);
  pass_of(pass).losses.push_back(std::move(record));
}

void Recorder::leaf_gradient(const trace::LeafGradient& arriving) {
  const Sketch sketch = sketch_of(arriving.gradient);
  const bool is_fresh = arriving.before.data == nullptr;
  const bool adds = !is_fresh && !is_zero(sketch_of(arriving.before));
  const std::uint64_t number = next_number();
  const std::lock_guard lock(mutex_);
  LeafGradient& held = gradients_[arriving.leaf];
  if (is_fresh) {
    const bool was_discarded = !held.was_used && (!held.parts.empty() || held.was_discarded);
    held = {};
    held.was_discarded = was_discarded;
  } else if (held.was_used) {  // a step came between, without clearing it
    held = {};
    held.holds_used_one = adds;
  }
  if (held.parts.empty()) held.begun = number;
  if (held.parts.empty() || held.parts.back().pass != arriving.pass) {
    held.parts.push_back({arriving.pass, {}});
    pass_of(arriving.pass).leaves[arriving.leaf] = arriving.num_elements;
  }
  for (std::size_t i = 0; i < kSketchSize; ++i) held.parts.back().gradient[i] += sketch[i];
  held.arrived = number;
}

// --- calls of communicators ---

void Recorder::call(const trace::Call& call, Moment moment) {
  if (moment == Moment::begins) begin_call(call);
  if (moment == Moment::waited) end_wait(call);
  if (moment == Moment::ends) {
    write_event("done", {{"sequence", call.sequence}}, rank_of(call.group, call.rank));
  }
}

void Recorder::begin_call(const trace::Call& call) {
  const bool is_message = call.peer >= 0;
  CallRecord record;
  record.operation = call.operation;
  record.sequence = call.sequence;
  record.is_message = is_message;
  record.is_averaging = call.detail == "sum" || call.detail == "average";
  record.text = call.operation;
  if (call.operation != "barrier") {
    record.text =
        fmt::format("{} of {} {}{}", call.operation, call.num_elements, to_string(call.dtype),
                    call.detail.empty() ? "" : fmt::format(" ({})", call.detail));
  }
  const std::uint64_t number = write_event("call", record, rank_of(call.group, call.rank));
  const std::lock_guard lock(mutex_);
  std::deque<Call>& mine = calls_[{call.group, call.rank}];
  if (!call.is_async && !is_message) {  // it runs after those before it
    for (auto kept = mine.rbegin(); kept != mine.rend() && !kept->is_waited_for; ++kept) {
      kept->is_waited_for = true;
    }
  }
  mine.push_back({number, call.sequence, call.memory, call.bytes_sent, is_message, !call.is_async});
  if (mine.size() > kMostCalls) mine.pop_front();
}

void Recorder::end_wait(const trace::Call& call) {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, mine] : calls_) {
    const auto found = std::find_if(mine.rbegin(), mine.rend(), [&](const Call& kept) {
      return kept.memory.data == call.memory.data && kept.sequence == call.sequence;
    });
    if (found != mine.rend()) found->is_waited_for = true;
  }
}

void Recorder::group_left(std::uint32_t group, int rank) {
  const std::lock_guard lock(mutex_);
  calls_.erase({group, rank});
}

// The calling rank's calls since an event, the last one first.
std::vector<Call> Recorder::calls_since(std::uint64_t number) {
  const Rank rank = current_rank();
  std::vector<Call> calls;
  const std::lock_guard lock(mutex_);
  const std::deque<Call>& mine = calls_[{rank.group, rank.rank}];
  for (auto kept = mine.rbegin(); kept != mine.rend() && kept->number > number; ++kept) {
    calls.push_back(*kept);
  }
  return calls;
}

Touched Recorder::touched_since(std::uint64_t number, ConstTensorView memory) {
  Touched touched;
  if (memory.data == nullptr) return touched;
  for (const Call& call : calls_since(number)) {
    if (!overlap(call.memory, memory)) continue;
    if (touched.number == 0) touched.number = call.number;
    if (!call.is_waited_for) touched.unfinished = call.number;
  }
  return touched;
}

// --- from gradients to weights ---

void Recorder::step(const OptimizerStep& step, Moment moment) {
  if (moment == Moment::begins) return begin_step(step);
  if (moment == Moment::ends) return end_step(step);
  const std::lock_guard lock(mutex_);
  // It may be at the address of one that is gone. If a leaf has no gradient, whatever arrived at
  // its address belonged to another leaf.
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    if (!parameter.has_gradient) gradients_.erase(parameter.leaf);
  }
  optimizers_[step.optimizer] = {++num_optimizers_, 0, next_number(), false, {}};
}

Optimizer& Recorder::optimizer(const void* address) {
  const std::lock_guard lock(mutex_);
  return optimizers_[address];
}

// Returns the gradients that reached the leaf since the last step; marks them as used.
std::optional<LeafGradient> Recorder::take_gradient(const void* leaf) {
  const std::lock_guard lock(mutex_);
  const auto found = gradients_.find(leaf);
  if (found == gradients_.end() || found->second.was_used) return {};
  found->second.was_used = true;
  return found->second;
}

ParameterRecord Recorder::record_of(const OptimizerStep::Parameter& parameter,
                                    const LeafGradient& gradient, std::uint64_t since) {
  const Touched touched = touched_since(std::max(since, gradient.begun), parameter.gradient);
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
  record.weight_moved = touched_since(since, parameter.value).number;
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
  its.is_recorded = begun.step < kRecordedSteps || begun.step % kRecordedLater == 0;
  std::set<const void*> stepped;
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    stepped.insert(parameter.leaf);
    std::optional<LeafGradient> gradient;
    if (parameter.has_gradient) gradient = take_gradient(parameter.leaf);
    if (!its.is_recorded) continue;
    begun.parameters.push_back(
        record_of(parameter, gradient.value_or(LeafGradient{}), its.last_event));
    for (const PartRecord& part : begun.parameters.back().parts) begun.passes[part.pass];
  }
  const std::lock_guard lock(mutex_);
  for (auto& [number, losses] : begun.passes) {
    const auto pass = passes_.find(number);
    if (pass == passes_.end()) continue;
    losses = pass->second.losses;
    for (const auto& [leaf, num_elements] : pass->second.leaves) {
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
  if (!its.is_recorded) return;
  record.learning_rate = step.learning_rate;
  record.device = step.device;
  for (const OptimizerStep::Parameter& parameter : step.parameters) {
    record.after.push_back(hash_of(parameter.value));
  }
  for (const auto& [memory, hash] : held) record.buffers.push_back(hash);
  std::ranges::sort(record.buffers);
  for (const Call& call : calls_since(since)) {
    record.sent_bytes += call.sent_bytes;
    if (!call.is_message) record.collective_bytes += call.memory.num_bytes();
  }
  write_event("step", record);
}

// --- replicas and facts ---

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

bool install() {
  if (!is_wanted()) return false;
  static Recorder& recorder = *new Recorder;  // outlives every thread
  trace::set_observer(&recorder);
  return true;
}

}  // namespace
}  // namespace lockstep::doctor

// CMakeLists.txt makes every program refer to it.
extern "C" {
bool lockstep_recorder = lockstep::doctor::install();
}
