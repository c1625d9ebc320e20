// The stream of a CPU device.
#include <atomic>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/stream.h"

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

// The calling thread: its work is done at once, so events have always passed. If there is a
// modelled clock, timed events follow it.
class CallerStream final : public Stream {
 public:
  using Stream::Stream;
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

}  // namespace

std::unique_ptr<Stream> make_caller_stream(LogicalDevice& device) {
  return std::make_unique<CallerStream>(device);
}

void set_modelled_clock(const ModelledClock* clock) {
  modelled_clock.store(clock, std::memory_order_release);
}

}  // namespace lockstep::runtime
