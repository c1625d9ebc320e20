#include "tools/watch/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/half.h"
#include "engine/core/thread_context.h"
#include "engine/trace/span.h"

namespace lockstep::watch {
namespace {

std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// FNV-1a.
std::uint64_t hash_of(ConstTensorView view) {
  std::uint64_t hash = 14695981039346656037U;
  const auto* const bytes = static_cast<const unsigned char*>(view.data);
  for (std::size_t i = 0; bytes != nullptr && i < view.num_bytes(); ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return hash;
}

// "W1", "b1", "W2", ... for parameters of layers without names of their own, such as "2.weight".
// Other names stay, without the wrapper's prefix.
void name_plainly(std::vector<Parameter>& parameters) {
  std::size_t layer = 0;
  for (Parameter& parameter : parameters) {
    std::string& name = parameter.name;
    while (name.starts_with("module.")) name.erase(0, 7);
    const std::size_t dot = std::min(name.find('.'), name.size());
    const bool is_plain = std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(dot),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!is_plain || name.find('.', dot + 1) != std::string::npos) continue;
    const bool is_vector =
        name.ends_with("bias") || (name.empty() && parameter.shape.find(',') == std::string::npos);
    if (!is_vector) ++layer;
    name = fmt::format("{}{}", is_vector ? 'b' : 'W', std::max<std::size_t>(layer, 1));
  }
}

// On the clock of the recording's spans.
void show_at_full_speed(Event& event, const trace::Recording& trace) {
  const auto since = static_cast<double>(event.ns - trace.began_ns);
  event.ns = trace.began_ns + static_cast<std::int64_t>(since / trace.times_slower);
}

// A message is told when it is called for; the span of recv() ends when it has arrived.
void end_receives(RankRecord& rank, const trace::Recording& trace) {
  auto span = trace.spans.begin();
  for (Event& event : rank.events) {
    if (event.kind != Event::Kind::call || event.name != "recv") continue;
    constexpr std::int64_t kRounding = 2000;  // times are divided, in slow motion
    span = std::find_if(span, trace.spans.end(), [&](const trace::Span& s) {
      return s.rank == rank.rank && s.begin_ns >= event.ns - kRounding &&
             std::string_view(s.name) == "recv" && s.thread != trace::kDeviceThread;
    });
    if (span == trace.spans.end()) return;
    event.ns = (span++)->end_ns;
  }
}

// True if the rank has last computed a gradient: then a message carries one.
bool is_in_backward(const std::vector<Event>& events) {
  const auto last = std::find_if(events.rbegin(), events.rend(), [](const Event& event) {
    return event.kind == Event::Kind::forward || event.kind == Event::Kind::backward;
  });
  return last != events.rend() && last->kind == Event::Kind::backward;
}

}  // namespace

std::size_t RankRecord::place_of(std::uintptr_t leaf) const {
  return static_cast<std::size_t>(std::ranges::find(parameters, leaf, &Parameter::leaf) -
                                  parameters.begin());
}

std::string RankRecord::name_of(std::uintptr_t leaf) const {
  const std::size_t place = place_of(leaf);
  return place < parameters.size() ? parameters[place].name : "";
}

std::int64_t StepRecording::begin_ns() const {
  std::int64_t begin = schedule ? 0 : std::numeric_limits<std::int64_t>::max();
  for (const auto& [rank, record] : ranks) {
    for (const Event& event : record.events) begin = std::min(begin, event.ns);
  }
  return begin;
}

std::int64_t StepRecording::end_ns() const {
  std::int64_t end = schedule ? 0 : std::numeric_limits<std::int64_t>::min();
  for (const auto& [rank, record] : ranks) {
    for (const Event& event : record.events) end = std::max(end, event.ns);
  }
  return end;
}

Recorder::Recorder(Numbers numbers) : numbers_(numbers) {
  require(trace::observer() == nullptr, ErrorCode::Usage, "watch",
          "another observer looks at this program already (LOCKSTEP_AUDIT, of lockstep doctor); "
          "watch it without that");
  if (!trace::recording()) {
    trace::start();
    has_started_trace_ = true;
  }
  trace::set_observer(this);
}

Recorder::~Recorder() {
  if (trace::observer() == this) trace::set_observer(nullptr);
  if (has_started_trace_) trace::stop();
}

Recorder::Training& Recorder::training() {
  const std::uint32_t group = thread_context().group;
  return trainings_[{group, group == 0 ? num_alone_ : 0}];
}

void Recorder::add(Event event) {
  Log& its = log(event.rank);
  if (its.num_steps > kRecordedStep) return;
  if (event.ns == 0) event.ns = trace::now_ns();
  its.current.rank = event.rank;
  its.current.events.push_back(std::move(event));
}

std::vector<float> Recorder::values_of(ConstTensorView view) const {
  std::vector<float> values;
  if (numbers_ == Numbers::no || view.data == nullptr) return values;
  for (std::size_t i = 0; i < view.num_elements; ++i) {
    if (view.dtype == DType::float32) {
      values.push_back(static_cast<const float*>(view.data)[i]);
    } else if (view.dtype == DType::float64) {
      values.push_back(static_cast<float>(static_cast<const double*>(view.data)[i]));
    } else if (view.dtype == DType::bfloat16) {
      values.push_back(number(static_cast<const Bfloat16*>(view.data)[i]));
    }
  }
  return values;
}

// --- what a rank computes ---

void Recorder::batch(ConstTensorView rows, std::size_t num_rows) {
  const std::lock_guard lock(mutex_);
  add({.kind = Event::Kind::rows,
       .rank = trace::current_track(),
       .first_row = thread_context().first_row,
       .num_rows = num_rows,
       .hash = hash_of(rows),
       .num_bytes = rows.num_bytes()});
}

// Operations that compute nothing: they mark a place for communication.
std::shared_ptr<const void> Recorder::operation(const trace::Operation& operation) {
  const std::string_view name = operation.name;
  if (name == "UnitOutput" || name == "CopyToRanks" || name == "SumOverRanks") return nullptr;
  const std::lock_guard lock(mutex_);
  const int rank = trace::current_track();
  const auto is_forward = [](const Event& event) { return event.kind == Event::Kind::forward; };
  const std::vector<Event>& events = log(rank).current.events;
  auto told = std::make_shared<Event>();
  told->kind = Event::Kind::forward;
  told->rank = rank;
  told->name = operation.name;
  const auto is_alike = [&](const Event& event) {
    return is_forward(event) && event.name.starts_with(operation.name) &&
           event.first_row == thread_context().first_row;
  };
  if (told->name.ends_with("Sum")) told->name.resize(told->name.size() - 3);
  if (!told->name.starts_with("CrossEntropy") && !told->name.starts_with("Mse")) {
    told->name += fmt::format(" {}", std::ranges::count_if(events, is_alike) + 1);
  }
  told->number = static_cast<std::uint64_t>(std::ranges::count_if(events, is_forward));
  told->first_row = thread_context().first_row;
  told->num_rows = operation.num_rows;
  told->num_bytes = operation.result.num_bytes();
  add(*told);
  return told;
}

void Recorder::backward(std::uint64_t /*pass*/, const std::shared_ptr<const void>& operation,
                        ConstTensorView /*upstream*/) {
  Event event = *std::static_pointer_cast<const Event>(operation);
  const std::lock_guard lock(mutex_);
  event.kind = Event::Kind::backward;
  event.rank = trace::current_track();
  event.ns = 0;
  add(std::move(event));
}

void Recorder::leaf_gradient(const trace::LeafGradient& gradient) {
  const ConstTensorView where = gradient.before.data ? gradient.before : gradient.gradient;
  const std::lock_guard lock(mutex_);
  add({.kind = Event::Kind::gradient,
       .rank = trace::current_track(),
       .first_row = thread_context().first_row,
       .memory = address(where.data),
       .leaf = address(gradient.leaf),
       .num_elements = gradient.num_elements,
       .num_bytes = gradient.gradient.num_bytes(),
       .adds = gradient.before.data != nullptr,
       .values = values_of(gradient.gradient)});
}

void Recorder::parameters(std::span<const std::string> names, std::span<const void* const> leaves) {
  const std::lock_guard lock(mutex_);
  auto& told = log(trace::current_track()).names;
  told.clear();
  for (std::size_t i = 0; i < names.size(); ++i) told.emplace_back(address(leaves[i]), names[i]);
}

// --- what ranks send ---

std::uint32_t Recorder::group_made(const trace::RankGroup& group) {
  const std::lock_guard lock(mutex_);
  return group.name.empty() ? ++num_groups_ : 0;
}

void Recorder::call(const trace::Call& call, trace::Moment moment) {
  if (moment == trace::Moment::waited) return;
  const std::lock_guard lock(mutex_);
  Event event{.kind = moment == trace::Moment::begins ? Event::Kind::call : Event::Kind::done,
              .rank = call.rank,
              .name = std::string(call.operation),
              .number = call.sequence,
              .memory = address(call.memory.data),
              .peer = call.peer,
              .num_elements = call.num_elements,
              .num_bytes = call.num_elements * size_of(call.dtype)};
  event.adds = call.detail == "average";
  event.is_gradient = call.peer >= 0 && is_in_backward(log(call.rank).current.events);
  event.values = values_of(call.memory);
  add(std::move(event));
}

void Recorder::arrived(const trace::Arrival& arrival) {
  const std::lock_guard lock(mutex_);
  add({.kind = Event::Kind::arrival,
       .rank = arrival.to,
       .name = std::string(arrival.operation),
       .number = arrival.sequence,
       .from = {arrival.from.begin(), arrival.from.end()},
       .step = arrival.step,
       .offset = arrival.offset,
       .num_elements = arrival.values.num_elements,
       .num_bytes = arrival.values.num_bytes(),
       .adds = arrival.adds,
       .values = values_of(arrival.values)});
}

void Recorder::parameters_freed(ConstTensorView shard) {
  const std::lock_guard lock(mutex_);
  add({.kind = Event::Kind::freed, .rank = trace::current_track(), .memory = address(shard.data)});
}

void Recorder::fact(std::string_view name, std::initializer_list<trace::Field> /*fields*/) {
  const std::lock_guard lock(mutex_);
  is_wrapped_ = is_wrapped_ || name == "wrapped";
}

// --- steps ---

std::vector<Parameter> Recorder::described(const trace::OptimizerStep& step) const {
  std::vector<Parameter> parameters;
  for (const trace::OptimizerStep::Parameter& told : step.parameters) {
    parameters.push_back({.leaf = address(told.leaf),
                          .shape = told.shape,
                          .num_elements = told.num_elements,
                          .num_bytes = told.value.num_bytes(),
                          .gradient = address(told.gradient.data),
                          .hash = hash_of(told.value),
                          .values = values_of(told.value)});
  }
  return parameters;
}

void Recorder::step(const trace::OptimizerStep& step, trace::Moment moment) {
  const std::lock_guard lock(mutex_);
  const int rank = trace::current_track();
  if (moment == trace::Moment::made) {
    const bool is_alone = thread_context().group == 0;
    if (is_alone && training().optimizer != nullptr) ++num_alone_;
    training().optimizer = step.optimizer;
    log(rank).has_optimizer = true;
    return;
  }
  Training& its = training();
  Log& mine = its.logs[rank];
  if (moment == trace::Moment::begins || mine.num_steps > kRecordedStep) return;
  was_on_gpu_ = was_on_gpu_ || !step.device.starts_with("cpu");
  add({.kind = Event::Kind::update, .rank = rank, .name = std::string(step.name)});
  mine.current.updated = described(step);
  mine.current.optimizer = fmt::format("{} with learning rate {}", step.name, step.learning_rate);
  mine.current.num_states = step.num_states;
  if (thread_context().group != 0) return end_step(mine);
  for (auto& [device, log] : its.logs) end_step(log);
}

void Recorder::end_step(Log& log) {
  RankRecord& record = log.current;
  if (log.names.empty()) record.parameters = record.updated;
  for (const auto& [leaf, name] : log.names) {
    Parameter parameter{.leaf = leaf, .name = name};
    for (const Event& event : record.events) {
      if (event.kind != Event::Kind::gradient || event.leaf != leaf) continue;
      parameter.num_elements = event.num_elements;
      parameter.num_bytes = event.num_bytes;
      parameter.gradient = event.memory;
    }
    for (Parameter& updated : record.updated) {
      if (updated.leaf != leaf) continue;
      updated.name = name;
      parameter = updated;
    }
    record.parameters.push_back(parameter);
  }
  name_plainly(record.parameters);
  name_plainly(record.updated);
  log.kept = std::exchange(record, {});
  ++log.num_steps;
}

StepRecording Recorder::take() {
  const std::lock_guard lock(mutex_);
  require(!was_on_gpu_, ErrorCode::Usage, "watch",
          "records devices of the CPU, and this training ran on a GPU; add --device cpu");
  StepRecording found;
  found.has_numbers = numbers_ == Numbers::yes;
  found.is_wrapped = is_wrapped_;
  for (auto& [key, training] : trainings_) {
    std::map<int, RankRecord> ranks;
    std::size_t num_steps = std::numeric_limits<std::size_t>::max();
    for (auto& [rank, log] : training.logs) {
      if (log.kept.events.empty()) continue;
      ranks[rank] = log.kept;
      num_steps = std::min(num_steps, log.num_steps);
    }
    if (ranks.empty() || ranks.size() < found.ranks.size()) continue;
    found.ranks = std::move(ranks);
    found.step = std::min(num_steps - 1, kRecordedStep);
  }
  require(!found.ranks.empty(), ErrorCode::State, "watch",
          "no step was recorded: the program trained nothing in this process. Ranks that are "
          "threads on devices of the CPU can be watched");
  found.trace = trace::collect();
  for (auto& [rank, record] : found.ranks) {
    for (Event& event : record.events) show_at_full_speed(event, found.trace);
    end_receives(record, found.trace);
  }
  return found;
}

}  // namespace lockstep::watch
