#include "engine/trace/recorder.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "engine/trace/span.h"
#include "engine/trace/thread_log.h"

namespace lockstep::trace {

namespace {

// All logs of the current recording. Never freed, so that threads may record until the very end.
struct Registry {
  std::mutex mutex;
  std::uint32_t recording = 0;  // number of the current or last recording
  std::int64_t began_ns = 0;
  double times_slower = 1;
  std::shared_ptr<detail::ChunkBudget> budget;
  std::vector<std::shared_ptr<detail::ThreadLog>> logs;
};

Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

// A thread shares its log with the registry: neither the thread's end nor a new recording frees a
// log that the other still uses.
struct LocalLog {
  std::uint32_t recording = 0;
  std::shared_ptr<detail::ThreadLog> log;
};
thread_local LocalLog local_log;
thread_local bool is_thread_muted = false;

// Whether spans are ranges too stays as it is.
void set_active(std::uint32_t recording) {
  std::uint32_t before = detail::active_recording.load(std::memory_order_relaxed);
  while (!detail::active_recording.compare_exchange_weak(
      before, recording | (before & detail::kHasRanges), std::memory_order_relaxed)) {
  }
}

// The recording as it would have been at full speed.
void speed_up(Recording& recording, std::int64_t began_ns, double factor) {
  const auto at_full_speed = [&](std::int64_t time_ns) {
    return began_ns + static_cast<std::int64_t>(static_cast<double>(time_ns - began_ns) / factor);
  };
  change_times(recording, at_full_speed);
}

// The calling thread's log in the recording in progress; nullptr where it records nothing.
detail::ThreadLog* active_log() {
  const std::uint32_t active = detail::active_recording.load(std::memory_order_relaxed);
  return detail::thread_log(active & ~detail::kHasRanges);
}

}  // namespace

namespace detail {

ThreadLog* thread_log(std::uint32_t recording) {
  if (recording == 0 || is_thread_muted) {
    return nullptr;
  }
  if (local_log.recording == recording) [[likely]] {
    return local_log.log.get();
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.recording != recording) {
    return nullptr;
  }
  auto log = std::make_shared<ThreadLog>(static_cast<std::uint32_t>(all.logs.size()), all.budget);
  all.logs.push_back(log);
  local_log = {recording, std::move(log)};
  return local_log.log.get();
}

}  // namespace detail

void start(const RecordOptions& options) {
  const std::size_t num_chunks = (options.max_entries + kChunkEntries - 1) / kChunkEntries;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  ++all.recording;
  all.began_ns = now_ns();
  all.times_slower = options.times_slower;
  all.logs.clear();
  all.budget = std::make_shared<detail::ChunkBudget>(num_chunks);
  set_active(all.recording);
}

void stop() {
  set_active(0);
}

Recording collect() {
  std::vector<std::shared_ptr<detail::ThreadLog>> logs;
  std::int64_t began_ns = 0;
  double times_slower = 1;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    logs = all.logs;
    began_ns = all.began_ns;
    times_slower = all.times_slower;
  }
  Recording recording;
  for (const auto& log : logs) {
    log->spans().for_each([&](const Span& span) { recording.spans.push_back(span); });
    log->flows().for_each([&](const FlowPoint& point) { recording.flows.push_back(point); });
    log->memory().for_each([&](const Sample& sample) { recording.memory.push_back(sample); });
    recording.num_dropped += log->num_dropped();
  }
  if (times_slower != 1) speed_up(recording, began_ns, times_slower);
  std::sort(recording.spans.begin(), recording.spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.begin_ns, -a.end_ns, a.id) < std::tuple(b.begin_ns, -b.end_ns, b.id);
  });
  std::sort(recording.flows.begin(), recording.flows.end(),
            [](const FlowPoint& a, const FlowPoint& b) {
              return std::tuple(a.time_ns, a.flow) < std::tuple(b.time_ns, b.flow);
            });
  std::stable_sort(recording.memory.begin(), recording.memory.end(),
                   [](const Sample& a, const Sample& b) { return a.time_ns < b.time_ns; });
  return recording;
}

std::uint64_t record(Span span) {
  detail::ThreadLog* log = active_log();
  if (log == nullptr) {
    return 0;
  }
  span.id = log->next_id();
  span.thread = kDeviceThread;
  return log->append(span) ? span.id : 0;
}

void record(const Sample& memory) {
  if (detail::ThreadLog* log = active_log()) log->append(memory);
}

MutedScope::MutedScope() : was_muted_(std::exchange(is_thread_muted, true)) {}

MutedScope::~MutedScope() {
  is_thread_muted = was_muted_;
}

bool is_muted() {
  return is_thread_muted;
}

Recording of_rank(const Recording& recording, int rank) {
  Recording part;
  std::unordered_set<std::uint64_t> ids;
  for (const Span& span : recording.spans) {
    if (span.rank == rank) {
      part.spans.push_back(span);
      ids.insert(span.id);
    }
  }
  std::copy_if(recording.flows.begin(), recording.flows.end(), std::back_inserter(part.flows),
               [&](const FlowPoint& point) { return ids.count(point.span) != 0; });
  std::copy_if(recording.memory.begin(), recording.memory.end(), std::back_inserter(part.memory),
               [rank](const Sample& sample) { return sample.rank == rank; });
  part.num_dropped = recording.num_dropped;
  return part;
}

}  // namespace lockstep::trace
