#include "engine/audit/calls.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "engine/audit/event.h"
#include "engine/audit/rank.h"

namespace lockstep::audit {
namespace {

constexpr std::size_t kMostKept = 4096;  // calls of a rank

struct Kept {
  std::uint64_t number = 0;
  std::uint64_t sequence = 0;
  const std::byte* begin = nullptr;
  std::size_t num_bytes = 0;
  std::uint64_t sent_bytes = 0;
  bool is_message = false;  // send or recv
  bool is_waited_for = true;
};

struct Calls {
  std::mutex mutex;
  std::map<std::pair<std::uint32_t, int>, std::deque<Kept>> by_rank;
};

Calls& calls() {
  static auto& instance = *new Calls;  // outlives every thread
  return instance;
}

bool overlaps(const Kept& call, ConstTensorView memory) {
  const auto* begin = static_cast<const std::byte*>(memory.data);
  return call.begin < begin + memory.num_bytes() && begin < call.begin + call.num_bytes;
}

}  // namespace

void note_call(const Call& call) {
  std::uint64_t number = 0;
  {
    Event event("call");
    number = event.number();
    event.add("of_group", group_name(call.group));
    event.add("of_rank", static_cast<std::uint64_t>(call.rank));
    event.add("operation", call.operation);
    event.add("sequence", call.sequence);
    event.add("detail", call.detail);
    event.add("elements", call.num_elements);
    event.add("dtype", to_string(call.dtype));
    if (call.peer >= 0) event.add("peer", static_cast<std::uint64_t>(call.peer));
  }
  const std::lock_guard lock(calls().mutex);
  std::deque<Kept>& mine = calls().by_rank[{call.group, call.rank}];
  if (call.waited == Waited::yes && call.peer < 0) {  // it ran behind those before it
    for (auto kept = mine.rbegin(); kept != mine.rend() && !kept->is_waited_for; ++kept) {
      kept->is_waited_for = true;
    }
  }
  mine.push_back({number, call.sequence, static_cast<const std::byte*>(call.memory.data),
                  call.memory.num_bytes(), call.bytes_sent, call.peer >= 0,
                  call.waited == Waited::yes});
  if (mine.size() > kMostKept) mine.pop_front();
}

void note_done(std::uint32_t group, int rank, std::string_view operation, std::uint64_t sequence) {
  Event("done")
      .add("of_group", group_name(group))
      .add("of_rank", static_cast<std::uint64_t>(rank))
      .add("operation", operation)
      .add("sequence", sequence);
}

void note_waited(const void* memory, std::uint64_t sequence) {
  const std::lock_guard lock(calls().mutex);
  for (auto& [rank, mine] : calls().by_rank) {
    const auto found = std::find_if(mine.rbegin(), mine.rend(), [&](const Kept& kept) {
      return kept.begin == memory && kept.sequence == sequence;
    });
    if (found != mine.rend()) found->is_waited_for = true;
  }
}

void note_left(std::uint32_t group, int rank) {
  Event("left").add("of_group", group_name(group)).add("of_rank", static_cast<std::uint64_t>(rank));
  const std::lock_guard lock(calls().mutex);
  calls().by_rank.erase({group, rank});
}

Touched touched_since(std::uint32_t group, int rank, std::uint64_t number, ConstTensorView memory) {
  Touched touched;
  if (memory.data == nullptr) return touched;
  const std::lock_guard lock(calls().mutex);
  const auto& mine = calls().by_rank[{group, rank}];
  for (auto kept = mine.rbegin(); kept != mine.rend() && kept->number > number; ++kept) {
    if (!overlaps(*kept, memory)) continue;
    if (touched.number == 0) touched.number = kept->number;
    if (!kept->is_waited_for) touched.unfinished = kept->number;
  }
  return touched;
}

Traffic traffic_since(std::uint32_t group, int rank, std::uint64_t number) {
  Traffic traffic;
  const std::lock_guard lock(calls().mutex);
  const auto& mine = calls().by_rank[{group, rank}];
  for (auto kept = mine.rbegin(); kept != mine.rend() && kept->number > number; ++kept) {
    traffic.sent_bytes += kept->sent_bytes;
    if (!kept->is_message) traffic.collective_bytes += kept->num_bytes;
  }
  return traffic;
}

}  // namespace lockstep::audit
