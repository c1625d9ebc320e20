// Spans of a GPU stream's work, in one timeline with the host's spans.
//
// A ScopedSpan (trace/span.h) on a thread that enqueues kernels times the enqueueing. A DeviceSpan
// times the work itself, with one event before it and one after; they become a span of thread
// kDeviceThread once both have passed. On the CPU, where the two are the same, it does nothing.
//
// The memory in use is sampled after each operation, and at the end of a phase. For a GPU the host
// does this, because the order of its allocations is what counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/runtime/stream.h"
#include "engine/trace/span.h"

namespace lockstep::runtime {

class DeviceSpan {
 public:
  // Covers everything enqueued on the stream until the end of the scope. While nothing is recorded,
  // and while the stream's work goes into a graph, it costs a branch.
  DeviceSpan(Stream& stream, trace::Lane lane, trace::Category category, const char* name,
             std::size_t num_bytes = 0) {
    if (trace::recording()) [[unlikely]] {
      open(stream, lane, category, name, num_bytes);
    }
  }
  ~DeviceSpan() {
    if (begin_) [[unlikely]] {
      close();
    }
  }
  DeviceSpan(const DeviceSpan&) = delete;
  DeviceSpan& operator=(const DeviceSpan&) = delete;

  void set_sequence(std::int64_t sequence) { span_.sequence = sequence; }
  // Drops this span.
  void cancel() { begin_.reset(); }

 private:
  void open(Stream& stream, trace::Lane lane, trace::Category category, const char* name,
            std::size_t num_bytes);
  void close() noexcept;

  trace::Span span_;
  Stream* stream_ = nullptr;
  std::uint32_t recording_ = 0;
  std::shared_ptr<Event> begin_;
};

// Records the device's own memory in use now, on the thread's track. Does nothing while nothing is
// recorded; checking trace::recording() first saves the call.
void sample_memory(LogicalDevice& device);

// Times a thread that enqueues work, and that work on its stream, under one name: a ScopedSpan and
// a DeviceSpan in one. At its end the memory of the stream's device is sampled, unless the work is
// on Lane::copy, which connects two devices.
class WorkSpan {
 public:
  WorkSpan(Stream& stream, trace::Lane lane, trace::Category category, const char* name,
           std::size_t num_bytes = 0)
      : on_host_(lane, category, name, num_bytes),
        on_device_(stream, lane, category, name, num_bytes),
        sampled_(lane == trace::Lane::copy ? nullptr : &stream.device()) {}
  ~WorkSpan() {
    if (trace::recording() && sampled_ != nullptr) [[unlikely]] {
      sample_memory(*sampled_);
    }
  }
  WorkSpan(const WorkSpan&) = delete;
  WorkSpan& operator=(const WorkSpan&) = delete;

  void set_sequence(std::int64_t sequence) {
    on_host_.set_sequence(sequence);
    on_device_.set_sequence(sequence);
  }
  // Drops this span.
  void cancel() {
    on_host_.cancel();
    on_device_.cancel();
  }

 private:
  trace::ScopedSpan on_host_;
  DeviceSpan on_device_;
  LogicalDevice* sampled_;
};

// Waits for all device spans that have ended and records them. Call it before trace::stop(),
// because spans of a finished recording are forgotten.
void record_device_spans();

}  // namespace lockstep::runtime
