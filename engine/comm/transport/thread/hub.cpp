#include "engine/comm/transport/thread/hub.h"

#include <fmt/format.h>

#include "engine/runtime/logical_device.h"

namespace lockstep::comm {
namespace {

std::uint64_t pack_kind(const CallHeader& call) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32 |
         static_cast<std::uint64_t>(call.plan) << 24 | static_cast<std::uint64_t>(call.op) << 16 |
         static_cast<std::uint64_t>(call.dtype) << 8 | static_cast<std::uint64_t>(call.operation);
}

void unpack_kind(std::uint64_t kind, CallHeader& call) {
  call.root = static_cast<std::int32_t>(static_cast<std::uint32_t>(kind >> 32));
  call.plan = static_cast<plan::AllReducePlan>(kind >> 24 & 0xff);
  call.op = static_cast<ReduceOp>(kind >> 16 & 0xff);
  call.dtype = static_cast<DType>(kind >> 8 & 0xff);
  call.operation = static_cast<Operation>(kind & 0xff);
}

}  // namespace

void Announcement::publish(const CallHeader& call) {
  num_elements_.store(call.num_elements, std::memory_order_relaxed);
  memory_.store(call.memory, std::memory_order_relaxed);
  kind_.store(pack_kind(call), std::memory_order_relaxed);
  number_.store(call.sequence + 1, std::memory_order_seq_cst);
}

CallHeader Announcement::call() const {
  CallHeader call;
  call.sequence = number() - 1;
  call.num_elements = num_elements_.load(std::memory_order_relaxed);
  call.memory = memory_.load(std::memory_order_relaxed);
  unpack_kind(kind_.load(std::memory_order_relaxed), call);
  return call;
}

Hub::Hub(int world_size)
    : world_size_(world_size),
      is_oversubscribed_(static_cast<std::size_t>(world_size) > runtime::num_cores()),
      ranks_(static_cast<std::size_t>(world_size)),
      channels_(ranks_.size() * ranks_.size()),
      mailboxes_(ranks_.size() * ranks_.size()) {}

void Hub::ring_all() {
  for (RankState& state : ranks_) state.doorbell.add(1);
}

void Hub::fail(const Error& error) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_.emplace(error);
    has_failed_.store(true, std::memory_order_seq_cst);
  }
  ring_all();
}

void Hub::throw_failure() const {
  const std::lock_guard lock(failure_mutex_);
  throw Error(*failure_);
}

std::string Hub::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (int r = 0; r < world_size_; ++r) {
    const auto& announced = rank(r).announced;
    const Announcement& last = announced[announced[0].number() < announced[1].number() ? 1 : 0];
    if (last.number() > sequence) continue;
    const std::string call = last.number() == 0 ? "nothing" : to_string(last.call());
    text +=
        fmt::format("{}rank {} is missing (its last call: {})", text.empty() ? "" : ", ", r, call);
  }
  return text;
}

}  // namespace lockstep::comm
