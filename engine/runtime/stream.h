// Streams and events: the order in which a device does its work.
//
// Work of one stream is done in the order in which it came; two streams meet only at events. A CUDA
// device has a compute, a communication and a copy stream. On the CPU each of them is the calling
// thread itself; asynchronous collectives run on the communicator's thread (comm/work.h).
#pragma once

#include <cstdint>
#include <memory>

#include "engine/core/device.h"
#include "engine/runtime/wait.h"

namespace lockstep::runtime {

class LogicalDevice;

// A point in a stream: it has passed when all work before it is done.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool has_passed() const = 0;
  // Blocks the calling thread; returns false if the deadline came first.
  virtual bool wait(Deadline deadline = {}) const = 0;
  // Blocks until it has passed or never will. Leaves an error for a later wait() to throw.
  virtual void wait_quietly() const noexcept { wait(); }
  // The time at which it passed, on trace::now_ns()'s clock. REQUIRES: it has passed, and
  // record_timed() made it.
  virtual std::int64_t passed_at_ns() const { return 0; }
};

class Stream {
 public:
  explicit Stream(LogicalDevice& device) : device_(device) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  LogicalDevice& device() const { return device_; }

  // An event that passes when all work so far is done.
  virtual std::shared_ptr<Event> record() = 0;

  // The same, and the event knows when it passed. nullptr if the calling thread times the work
  // (the CPU), and while work goes into a graph.
  virtual std::shared_ptr<Event> record_timed() { return nullptr; }

  // Later work runs after the event has passed.
  virtual void wait(std::shared_ptr<Event> event) = 0;

  // Blocks until all work so far is done.
  void synchronize() { record()->wait(); }

 private:
  LogicalDevice& device_;
};

// A stream of a CPU device: the calling thread.
std::unique_ptr<Stream> make_caller_stream(LogicalDevice& device);

// A clock for CPU devices: timed events of their streams report when a device would have done its
// work, as a GPU's events report when it has.
class ModelledClock {
 public:
  virtual ~ModelledClock() = default;
  // The time at which the device would have done all its work, on trace::now_ns()'s clock.
  virtual std::int64_t reached_ns(Device device) const = 0;
};

// From now on streams of the CPU make timed events (Stream::record_timed); nullptr ends that. The
// clock must outlive its use.
void set_modelled_clock(const ModelledClock* clock);

// True while the calling thread's work is captured as a graph (step_graph.h), not run. Code that a
// graph cannot repeat checks it, and refuses.
bool is_capturing_step();

}  // namespace lockstep::runtime
