// The streams of a CPU device.
#include <atomic>
#include <utility>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/stream.h"
#include "engine/runtime/threads.h"

namespace lockstep::runtime {
namespace {

std::atomic<const ModelledClock*> modelled_clock{nullptr};

class PassedEvent final : public Event {
 public:
  explicit PassedEvent(std::int64_t time_ns = 0) : time_ns_(time_ns) {}
  bool has_passed() const override { return true; }
  bool wait(Deadline) const override { return true; }
  std::int64_t passed_at_ns() const override { return time_ns_; }

 private:
  std::int64_t time_ns_;
};

// It passes when the worker has finished as many tasks as it had been given.
class WorkerEvent final : public Event {
 public:
  WorkerEvent(const WaitWord& finished, std::uint32_t target)
      : finished_(finished), target_(target) {}

  bool has_passed() const override {
    return static_cast<std::int32_t>(finished_.load() - target_) >= 0;
  }
  bool wait(Deadline deadline) const override {
    while (!has_passed()) {
      const std::uint32_t seen = finished_.load();
      if (has_passed()) break;
      if (!finished_.wait_while_equal(seen, deadline)) return has_passed();
    }
    return true;
  }

 private:
  const WaitWord& finished_;
  std::uint32_t target_;
};

// The calling thread: submitted work runs at once, and events have always passed. If there is a
// modelled clock, timed events follow it.
class CallerStream final : public Stream {
 public:
  using Stream::Stream;
  void submit(std::function<void()> issue) override { issue(); }
  std::shared_ptr<Event> record() override {
    static const std::shared_ptr<Event> passed = std::make_shared<PassedEvent>();
    return passed;
  }
  std::shared_ptr<Event> record_timed() override {
    const ModelledClock* clock = modelled_clock.load(std::memory_order_acquire);
    if (clock == nullptr) return nullptr;
    return std::make_shared<PassedEvent>(clock->reached_ns(device().device()));
  }
  void wait(std::shared_ptr<Event> event) override { event->wait(); }
};

// One worker thread, which starts with the first task.
class WorkerStream final : public Stream {
 public:
  WorkerStream(LogicalDevice& device, std::string name)
      : Stream(device), worker_(std::move(name)) {}
  void submit(std::function<void()> issue) override { worker_.post(std::move(issue)); }
  std::shared_ptr<Event> record() override {
    return std::make_shared<WorkerEvent>(worker_.num_finished(), worker_.num_posted());
  }
  void wait(std::shared_ptr<Event> event) override {
    if (event->has_passed()) return;
    worker_.post([event = std::move(event)] { event->wait_quietly(); });
  }

 private:
  Worker worker_;
};

}  // namespace

std::unique_ptr<Stream> make_caller_stream(LogicalDevice& device) {
  return std::make_unique<CallerStream>(device);
}

std::unique_ptr<Stream> make_worker_stream(LogicalDevice& device, std::string name) {
  return std::make_unique<WorkerStream>(device, std::move(name));
}

void set_modelled_clock(const ModelledClock* clock) {
  modelled_clock.store(clock, std::memory_order_release);
}

}  // namespace lockstep::runtime
