#include "simulate/slow_motion/machine.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/core/error.h"
#include "engine/runtime/steady_time.h"
#include "engine/trace/recorder.h"
#include "engine/trace/span.h"
#include "simulate/predict/step.h"
#include "simulate/slow_motion/paced_backend.h"

namespace lockstep::slow_motion {

namespace {

std::uintptr_t begin_of(const Memory& memory) {
  return reinterpret_cast<std::uintptr_t>(memory.data);
}

}  // namespace

MemoryTimes::Blocks::const_iterator MemoryTimes::first_behind(std::uintptr_t begin) const {
  auto block = blocks_.upper_bound(begin);
  if (block != blocks_.begin() && std::prev(block)->second.end > begin) --block;
  return block;
}

void MemoryTimes::write(const Memory& memory, const Written& written) {
  if (memory.data == nullptr || memory.num_bytes == 0) return;
  const std::uintptr_t begin = begin_of(memory);
  const std::uintptr_t end = begin + memory.num_bytes;
  const std::lock_guard lock(mutex_);
  for (auto block = first_behind(begin); block != blocks_.end() && block->first < end;) {
    const auto [old_begin, old] = *block;
    block = blocks_.erase(block);
    if (old_begin < begin) blocks_.emplace(old_begin, Block{begin, old.written});
    if (old.end > end) block = blocks_.emplace(end, old).first;
  }
  blocks_.insert_or_assign(begin, Block{end, written});
}

Written MemoryTimes::last_write(const Memory& memory) const {
  Written last;
  if (memory.data == nullptr || memory.num_bytes == 0) return last;
  const std::uintptr_t end = begin_of(memory) + memory.num_bytes;
  const std::lock_guard lock(mutex_);
  for (auto block = first_behind(begin_of(memory)); block != blocks_.end() && block->first < end;
       ++block) {
    if (block->second.written.time >= last.time) last = block->second.written;
  }
  return last;
}

namespace {

struct CollectiveState {
  bool is_inside = false;
  double added_bytes = 0;
};
thread_local CollectiveState collective;

std::int64_t nanoseconds(Time time) {
  return time.count();
}

// A device's stream events tell how far the device has come (runtime/device_span.h).
class StageClock final : public runtime::ModelledClock {
 public:
  std::int64_t reached_ns(Device device) const override {
    return nanoseconds(machine()->stream_time(device.index));
  }
};

}  // namespace

struct Machine::Device {
  Device(const DeviceLanes::Options& lane_options, double times_as_slow, int its_track)
      : lanes(lane_options), slowness(times_as_slow), track(its_track) {}

  DeviceLanes lanes;
  const double slowness;
  const int track;  // its spans' track

  mutable std::mutex mutex;  // guards the members below
  Time held_back{};          // no kernel begins before
  Time waited_until{};       // a collective was done then
  DeviceState state;
};

Machine::Machine(const MachineOptions& options)
    : options_(options),
      origin_(runtime::now()),
      network_(options_.topology),
      hops_(network_.num_hops()),
      bytes_by_hop_(network_.num_hops(), 0) {
  const std::size_t available = options_.topology.gpus.size();
  const std::size_t num_devices = options_.devices.size();
  for (std::size_t i = 0; i < num_devices; ++i) {
    const int index = options_.devices[i];
    require(index >= 0 && static_cast<std::size_t>(index) < available, ErrorCode::Usage,
            "simulated machine", "'{}' has {} devices, and device {} was asked for",
            options_.topology.name, available, index);
    devices_.push_back(
        std::make_unique<Device>(DeviceLanes::Options{predict::kOverlapInterference, options_.pace,
                                                      origin_, options_.patience},
                                 predict::device_slowness(i, num_devices),
                                 options_.tracks == Tracks::devices ? index : static_cast<int>(i)));
    places_.resize(std::max(places_.size(), static_cast<std::size_t>(index) + 1), -1);
    places_[static_cast<std::size_t>(index)] = static_cast<int>(i);
  }
}

Machine::~Machine() = default;

bool Machine::takes_part(int index) const {
  const auto place = static_cast<std::size_t>(index);
  return index >= 0 && place < places_.size() && places_[place] >= 0;
}

Machine::Device& Machine::device(int index) const {
  require(takes_part(index), ErrorCode::Usage, "simulated machine",
          "device cpu:{} takes no part in the simulated machine", index);
  return *devices_[static_cast<std::size_t>(places_[static_cast<std::size_t>(index)])];
}

Machine::Delivery Machine::deliver(int from, int to, Time ready, std::size_t num_bytes) {
  const auto bytes = static_cast<double>(num_bytes);
  const std::lock_guard lock(network_mutex_);
  double latency = 0;
  Time sent = ready;
  for (const predict::Hop hop : network_.route(network_.gpu(static_cast<std::size_t>(from)),
                                               network_.gpu(static_cast<std::size_t>(to)))) {
    const double wire = bytes / network_.bytes_per_second(hop);
    sent = std::max(sent, hops_[hop].occupy(ready, scaled(wire)));
    bytes_by_hop_[hop] += bytes;
    latency += network_.latency_seconds(hop);
  }
  return {sent, sent + scaled(latency)};
}

// A copy also follows the earlier work of its source's stream.
Time Machine::source_ready(const Written& source) const {
  return std::max(source.time, device(source.device).lanes.reached(Lane::compute));
}

Machine::Inputs Machine::fetch_inputs(int index, Time ready, std::span<const Memory> reads) {
  Inputs inputs{{ready, ready}};
  for (const Memory& memory : reads) {
    const Written last = memory_.last_write(memory);
    Delivery delivery{last.time, last.time};
    if (last.device != kNoDevice && last.device != index) {
      inputs.num_bytes += memory.num_bytes;
      delivery = deliver(last.device, index, std::max(source_ready(last), ready), memory.num_bytes);
    }
    if (delivery.arrives > inputs.delivery.arrives) {
      inputs.is_of_collective = last.writer == Writer::collective;
    }
    inputs.delivery.sent = std::max(inputs.delivery.sent, delivery.sent);
    inputs.delivery.arrives = std::max(inputs.delivery.arrives, delivery.arrives);
  }
  return inputs;
}

void Machine::run(int index, const Kernel& kernel, const std::function<void()>& real) {
  if (collective.is_inside || !takes_part(index)) return real();
  const auto number =
      static_cast<std::int64_t>(num_kernels_.fetch_add(1, std::memory_order_relaxed));
  Device& mine = device(index);
  // The lane is the device's stream, which waits for its inputs. Copies follow each other without
  // waiting for the links' latency.
  const Time reached = mine.lanes.reached(Lane::compute);
  Time ready = reached;
  {
    const std::lock_guard lock(mine.mutex);
    ready = std::max(ready, mine.held_back);
  }
  const Inputs inputs = fetch_inputs(index, ready, kernel.reads);
  const bool is_message = inputs.num_bytes > 0 && kernel.kind == Kernel::Kind::copies;
  const Time due = is_message ? inputs.delivery.sent : inputs.delivery.arrives;
  const Time begin = mine.lanes.begin(Lane::compute, due,
                                      is_message ? Time{} : scaled(kernel.seconds * mine.slowness));
  {
    const std::lock_guard lock(mine.mutex);
    mine.state.kernel = kernel.name;
  }
  try {
    real();
  } catch (...) {
    mine.lanes.cancel(Lane::compute);
    throw;
  }
  const Time end = mine.lanes.finish(Lane::compute);
  const Time written = is_message ? std::max(end, inputs.delivery.arrives) : end;
  for (const Memory& memory : kernel.writes) memory_.write(memory, {written, index});
  {
    const std::lock_guard lock(mine.mutex);
    mine.state.kernel = nullptr;
    mine.state.busy_seconds += runtime::to_seconds(end - begin) / factor();
  }
  if (!trace::recording()) return;
  if (inputs.num_bytes > 0) {
    record(mine,
           {"copy from another device", trace::Lane::copy, trace::Category::copy,
            trace::kNoSequence, inputs.num_bytes},
           ready, due);
  } else if (inputs.is_of_collective || ready > reached) {
    record(mine, {"wait for collective", trace::Lane::compute, trace::Category::communication},
           reached, due);
  }
  record(mine, {kLateSpan, trace::Lane::host, trace::Category::wait}, due, begin);
  if (is_message) return;
  record(mine, {kernel.name, trace::Lane::compute, trace::Category::op, number}, begin, end);
}

void Machine::record(const Device& device, const SpanKind& kind, Time begin, Time end) const {
  if (end <= begin) return;
  trace::Span span;
  span.name = kind.name;
  span.lane = kind.lane;
  span.category = kind.category;
  span.sequence = kind.sequence;
  span.num_bytes = kind.num_bytes;
  span.rank = device.track;
  span.begin_ns = nanoseconds(begin);
  span.end_ns = nanoseconds(end);
  trace::record(span);
}

void Machine::give(int index, const Memory& memory) {
  if (collective.is_inside) return;
  memory_.write(memory, {origin_, takes_part(index) ? index : kNoDevice});
}

void Machine::offer(int index, const Memory& memory) {
  const Time time = std::max(written(memory), device(index).lanes.reached(Lane::compute));
  memory_.write(memory, {time, index});
}

Time Machine::written(const Memory& memory) const {
  return std::max(origin_, memory_.last_write(memory).time);
}

Time Machine::communicated(int index) const {
  return device(index).lanes.reached(Lane::comm);
}

Time Machine::communicate(int index, Time begin, Time alone) {
  DeviceLanes& lanes = device(index).lanes;
  lanes.begin(Lane::comm, begin, alone);
  return lanes.finish(Lane::comm);
}

void Machine::finish_collective(int index, const Memory& result, Time end) {
  Device& mine = device(index);
  memory_.write(result, {end, index, Writer::collective});
  const std::lock_guard lock(mine.mutex);
  mine.waited_until = std::max(mine.waited_until, end);
  if (result.data == nullptr) mine.held_back = std::max(mine.held_back, end);
}

void Machine::Collective::enter() {
  collective = {true, 0};
}

void Machine::Collective::leave() {
  collective = {};
}

double Machine::Collective::take_added_bytes() {
  return std::exchange(collective.added_bytes, 0);
}

void Machine::Collective::add_bytes(double num_bytes) {
  if (collective.is_inside) collective.added_bytes += num_bytes;
}

Time Machine::reached(int index) const {
  const Device& mine = device(index);
  const Time computed = mine.lanes.reached(Lane::compute);
  const std::lock_guard lock(mine.mutex);
  return std::max(computed, mine.waited_until);
}

Time Machine::stream_time(int index) const {
  if (!takes_part(index)) return runtime::now();
  const Time time = reached(index);
  const Time present = runtime::now();
  const bool is_idle = options_.pace == Pace::sleeping && present - time > options_.patience;
  return is_idle ? present : time;
}

Time Machine::end() const {
  Time last = origin_;
  for (const int index : options_.devices) last = std::max(last, reached(index));
  return last;
}

std::vector<Machine::DeviceState> Machine::device_states() const {
  std::vector<DeviceState> states;
  for (const auto& mine : devices_) {
    const std::lock_guard lock(mine->mutex);
    states.push_back(mine->state);
  }
  return states;
}

void Machine::set_communication(int index, const char* name) {
  Device& mine = device(index);
  const std::lock_guard lock(mine.mutex);
  mine.state.communication = name;
}

std::vector<double> Machine::bytes_by_hop() const {
  const std::lock_guard lock(network_mutex_);
  return bytes_by_hop_;
}

InstalledMachine::InstalledMachine(Machine& machine) {
  static StageClock& clock = *new StageClock;
  static PacedBackend& paced = *new PacedBackend(kernels::backend(DeviceType::cpu));
  detail::installed_machine.store(&machine, std::memory_order_release);
  runtime::set_modelled_clock(&clock);
  kernels::set_backend(DeviceType::cpu, &paced);
}

InstalledMachine::~InstalledMachine() {
  kernels::set_backend(DeviceType::cpu, nullptr);
  runtime::set_modelled_clock(nullptr);
  detail::installed_machine.store(nullptr, std::memory_order_release);
}

bool is_kernel(const trace::Span& span) {
  // Other spans of operations have no number.
  return span.thread == trace::kDeviceThread && span.lane == trace::Lane::compute &&
         span.category == trace::Category::op && span.sequence != trace::kNoSequence;
}

bool is_late(const trace::Span& span) {
  return span.name == std::string_view(kLateSpan);
}

}  // namespace lockstep::slow_motion
