#include "simulate/slow_motion/simulated_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/comm/group.h"
#include "engine/core/error.h"
#include "engine/trace/recorder.h"

namespace lockstep::slow_motion {

SimulatedLink::SimulatedLink(Machine& machine, int rank, std::span<const int> devices)
    : machine_(machine), rank_(rank), devices_(devices.begin(), devices.end()) {
  const predict::Topology& topology = machine.topology();
  for (const int index : devices_) {
    hosts_.push_back(
        static_cast<int>(topology.nodes[topology.gpus[static_cast<std::size_t>(index)]].host));
  }
  const bool is_one_host = std::ranges::all_of(hosts_, [&](int host) { return host == hosts_[0]; });
  if (is_one_host) hosts_.clear();
}

std::string SimulatedLink::description() const {
  return fmt::format("{}, 1 : {:g}", machine_.topology().name, machine_.factor());
}

namespace {

Memory memory_of(const comm::CallHeader& call) {
  return {call.memory, call.num_elements * size_of(call.dtype)};
}

}  // namespace

void SimulatedLink::note_call(const comm::CallHeader& call) {
  caller_ = std::this_thread::get_id();
  machine_.offer(device(), memory_of(call));
}

Time SimulatedLink::begin_call(const comm::CallHeader& call) {
  call_ = call;
  is_in_call_ = false;
  has_moved_ = false;
  return std::max(machine_.written(memory_of(call)), machine_.communicated(device()));
}

Time SimulatedLink::begin_step(Time arrived) {
  if (!is_in_call_) {
    is_in_call_ = true;
    call_begin_ = step_begin_ = arrived;
    Machine::Collective::enter();
    machine_.set_communication(device(), comm::name_of(call_.operation));
  }
  if (!has_moved_) return step_begin_;
  has_moved_ = false;
  const predict::DeviceProfile& profile = machine_.topology().device;
  const double sums = 3 * Machine::Collective::take_added_bytes() / profile.memory_bytes_per_second;
  const Time alone = arrived - step_begin_ + machine_.scaled(sums + profile.launch_seconds);
  return step_begin_ = machine_.communicate(device(), step_begin_, alone);
}

Time SimulatedLink::leave(int to, Time ready, std::size_t num_bytes) {
  has_moved_ = true;
  const int receiver = devices_[static_cast<std::size_t>(to)];
  return machine_.deliver(device(), receiver, ready, num_bytes).arrives;
}

Time SimulatedLink::arrive(int, Time arrival, std::size_t) {
  has_moved_ = true;
  return arrival;
}

Time SimulatedLink::end_call(Time arrived) {
  const Time end = begin_step(arrived);
  abandon_call();
  const bool is_in_place = call_.operation == comm::Operation::all_reduce ||
                           call_.operation == comm::Operation::broadcast;
  if (is_in_place) machine_.finish_collective(device(), memory_of(call_), end);
  // The device computes nothing else during a blocking call.
  const bool blocks = std::this_thread::get_id() == caller_.load();
  if (blocks || !is_in_place) machine_.finish_collective(device(), {}, end);
  if (trace::recording()) {
    trace::Span span;
    span.name = comm::name_of(call_.operation);
    span.rank = rank_;
    span.lane = trace::Lane::comm;
    span.category = trace::Category::communication;
    span.num_bytes = memory_of(call_).num_bytes;
    span.sequence = static_cast<std::int64_t>(call_.sequence);
    span.begin_ns = call_begin_.count();
    span.end_ns = end.count();
    trace::record(span);
  }
  return end;
}

void SimulatedLink::abandon_call() noexcept {
  is_in_call_ = false;
  Machine::Collective::leave();
  machine_.set_communication(device(), nullptr);
}

Time SimulatedLink::begin_message(comm::Bytes data) {
  return std::max(machine_.written({data.data(), data.size()}), machine_.reached(device()));
}

void SimulatedLink::end_message(Time arrived) {
  machine_.finish_collective(device(), {}, arrived);
}

comm::ThreadGroupOptions with_simulated_links(int world_size, comm::ThreadGroupOptions options) {
  Machine* const simulated = machine();
  if (simulated == nullptr) return options;
  require(static_cast<std::size_t>(world_size) == simulated->devices().size(), ErrorCode::Usage,
          "simulated machine", "the simulated machine has devices for {} ranks, found {} ranks",
          simulated->devices().size(), world_size);
  options.links = [simulated](std::unique_ptr<comm::Group> group) {
    auto link = std::make_unique<SimulatedLink>(*simulated, group->rank(), simulated->devices());
    return comm::behind_links(std::move(group), std::move(link));
  };
  return options;
}

}  // namespace lockstep::slow_motion
