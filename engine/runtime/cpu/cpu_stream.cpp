#include "engine/runtime/cpu/cpu_stream.h"

#include <atomic>

#include "engine/runtime/cpu/modelled_clock.h"
#include "engine/runtime/logical_device.h"

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

// Passes when the worker has finished as many tasks as it had been given.
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

}  // namespace

void set_modelled_clock(const ModelledClock* clock) {
  modelled_clock.store(clock, std::memory_order_release);
}

std::shared_ptr<Event> CallerStream::record_timed() {
  const ModelledClock* clock = modelled_clock.load(std::memory_order_acquire);
  if (clock == nullptr) return nullptr;
  return std::make_shared<PassedEvent>(clock->reached_ns(device().device()));
}

std::shared_ptr<Event> CallerStream::record() {
  static const std::shared_ptr<Event> passed = std::make_shared<PassedEvent>();
  return passed;
}

std::shared_ptr<Event> WorkerStream::record() {
  return std::make_shared<WorkerEvent>(worker_.num_finished(), worker_.num_posted());
}

void WorkerStream::wait(std::shared_ptr<Event> event) {
  if (event->has_passed()) return;
  worker_.post([event = std::move(event)] { event->wait_quietly(); });
}

}  // namespace lockstep::runtime
