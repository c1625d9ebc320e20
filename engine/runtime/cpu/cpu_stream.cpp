#include "engine/runtime/cpu/cpu_stream.h"

namespace lockstep::runtime {
namespace {

class PassedEvent final : public Event {
 public:
  bool has_passed() const override { return true; }
  bool wait(Deadline) const override { return true; }
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
