#include "engine/comm/announcements.h"

namespace lockstep::comm {
namespace {

std::uint64_t pack_kind(const CallHeader& call) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32 |
         static_cast<std::uint64_t>(call.plan) << 24 | static_cast<std::uint64_t>(call.op) << 16 |
         static_cast<std::uint64_t>(call.dtype) << 8 |
         static_cast<std::uint64_t>(call.device) << 4 | static_cast<std::uint64_t>(call.operation);
}

void unpack_kind(std::uint64_t kind, CallHeader& call) {
  call.root = static_cast<std::int32_t>(static_cast<std::uint32_t>(kind >> 32));
  call.plan = static_cast<plan::AllReducePlan>(kind >> 24 & 0xff);
  call.op = static_cast<ReduceOp>(kind >> 16 & 0xff);
  call.dtype = static_cast<DType>(kind >> 8 & 0xff);
  call.device = static_cast<DeviceType>(kind >> 4 & 0xf);
  call.operation = static_cast<Operation>(kind & 0xf);
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

CallHeader Announcements::last() const {
  const Announcement& last = places_[places_[0].number() < places_[1].number() ? 1 : 0];
  return last.number() == 0 ? CallHeader{} : last.call();
}

}  // namespace lockstep::comm
