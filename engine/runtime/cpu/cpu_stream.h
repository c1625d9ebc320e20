// The two streams of a CPU device.
#pragma once

#include "engine/runtime/stream.h"
#include "engine/runtime/threads.h"

namespace lockstep::runtime {

// The calling thread: submitted work runs at once, events have always passed. Timed events are of a
// modelled clock (modelled_clock.h), where there is one.
class CallerStream final : public Stream {
 public:
  using Stream::Stream;
  void submit(std::function<void()> issue) override { issue(); }
  std::shared_ptr<Event> record() override;
  std::shared_ptr<Event> record_timed() override;
  void wait(std::shared_ptr<Event> event) override { event->wait(); }
};

// One worker thread, started with the first task.
class WorkerStream final : public Stream {
 public:
  WorkerStream(LogicalDevice& device, std::string name)
      : Stream(device), worker_(std::move(name)) {}
  void submit(std::function<void()> issue) override { worker_.post(std::move(issue)); }
  std::shared_ptr<Event> record() override;
  void wait(std::shared_ptr<Event> event) override;

 private:
  Worker worker_;
};

}  // namespace lockstep::runtime
