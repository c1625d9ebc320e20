#include "engine/runtime/device_span.h"

#include <deque>
#include <mutex>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/span.h"

namespace lockstep::runtime {
namespace {

// Spans whose events may not have passed yet, in the order in which they ended.
struct Pending {
  trace::Span span;
  std::shared_ptr<Event> begin;
  std::shared_ptr<Event> end;
  std::uint32_t recording;  // the one that was on when it began
};

struct Queue {
  std::mutex mutex;
  std::deque<Pending> spans;
};

Queue& queue() {
  static Queue& instance = *new Queue;
  return instance;
}

// If more are pending, a thread that adds one looks for those that have passed.
constexpr std::size_t kLookAt = 64;

void record(Pending pending) {
  if (pending.recording != trace::detail::active_recording.load()) return;
  pending.span.begin_ns = pending.begin->passed_at_ns();
  pending.span.end_ns = pending.end->passed_at_ns();
  trace::record(pending.span);
}

}  // namespace

void DeviceSpan::open(Stream& stream, trace::Lane lane, trace::Category category, const char* name,
                      std::size_t num_bytes) {
  if (trace::is_untraced()) return;
  begin_ = stream.record_timed();
  if (!begin_) return;
  stream_ = &stream;
  recording_ = trace::detail::active_recording.load();
  span_.name = name;
  span_.num_bytes = num_bytes;
  span_.rank = trace::current_track();
  span_.lane = lane;
  span_.category = category;
}

void DeviceSpan::close() noexcept {
  try {
    std::shared_ptr<Event> end = stream_->record_timed();
    if (!end) return;
    Queue& all = queue();
    const std::lock_guard lock(all.mutex);
    all.spans.push_back({span_, std::move(begin_), std::move(end), recording_});
    if (all.spans.size() < kLookAt) return;
    while (!all.spans.empty() && all.spans.front().end->has_passed()) {
      record(std::move(all.spans.front()));
      all.spans.pop_front();
    }
  } catch (const Error&) {
    // The device failed. The failed operation reports it, and its time has no meaning.
  }
}

void sample_memory(LogicalDevice& device) {
  const std::size_t num_bytes = device.own_memory().statistics().current_bytes;
  trace::record(trace::Sample{trace::now_ns(), num_bytes, trace::current_track()});
}

void record_device_spans() {
  Queue& all = queue();
  const std::lock_guard lock(all.mutex);
  while (!all.spans.empty()) {
    all.spans.front().end->wait();
    record(std::move(all.spans.front()));
    all.spans.pop_front();
  }
}

}  // namespace lockstep::runtime
