#include "tools/doctor/record/calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/doctor/record/records.h"

namespace lockstep::record {
namespace {

constexpr std::size_t kMostKept = 4096;  // calls of a rank

const std::byte* begin_of(ConstTensorView memory) {
  return static_cast<const std::byte*>(memory.data);
}

bool overlap(ConstTensorView a, ConstTensorView b) {
  return begin_of(a) < begin_of(b) + b.num_bytes() && begin_of(b) < begin_of(a) + a.num_bytes();
}

}  // namespace

void Calls::begin(const trace::Call& call) {
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
  std::deque<Kept>& mine = by_rank_[{call.group, call.rank}];
  if (!call.is_async && !is_message) {  // it runs behind those before it
    for (auto kept = mine.rbegin(); kept != mine.rend() && !kept->is_waited_for; ++kept) {
      kept->is_waited_for = true;
    }
  }
  mine.push_back({number, call.sequence, call.memory, call.bytes_sent, is_message, !call.is_async});
  if (mine.size() > kMostKept) mine.pop_front();
}

void Calls::end(const trace::Call& call) {
  write_event("done", {{"sequence", call.sequence}}, rank_of(call.group, call.rank));
}

void Calls::wait(const void* memory, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, mine] : by_rank_) {
    const auto found = std::find_if(mine.rbegin(), mine.rend(), [&](const Kept& kept) {
      return kept.memory.data == memory && kept.sequence == sequence;
    });
    if (found != mine.rend()) found->is_waited_for = true;
  }
}

void Calls::leave(std::uint32_t group, int rank) {
  const std::lock_guard lock(mutex_);
  by_rank_.erase({group, rank});
}

template <typename Visit>
void Calls::visit_since(const Rank& rank, std::uint64_t number, const Visit& visit) const {
  const std::lock_guard lock(mutex_);
  const auto mine = by_rank_.find({rank.group, rank.rank});
  if (mine == by_rank_.end()) return;
  const std::deque<Kept>& calls = mine->second;
  for (auto kept = calls.rbegin(); kept != calls.rend() && kept->number > number; ++kept) {
    visit(*kept);
  }
}

Calls::Touched Calls::touched_since(const Rank& rank, std::uint64_t number,
                                    ConstTensorView memory) const {
  Touched touched;
  if (memory.data == nullptr) return touched;
  visit_since(rank, number, [&](const Kept& kept) {
    if (!overlap(kept.memory, memory)) return;
    if (touched.number == 0) touched.number = kept.number;
    if (!kept.is_waited_for) touched.unfinished = kept.number;
  });
  return touched;
}

Calls::Traffic Calls::traffic_since(const Rank& rank, std::uint64_t number) const {
  Traffic traffic;
  visit_since(rank, number, [&](const Kept& kept) {
    traffic.sent_bytes += kept.sent_bytes;
    if (!kept.is_message) traffic.collective_bytes += kept.memory.num_bytes();
  });
  return traffic;
}

}  // namespace lockstep::record
