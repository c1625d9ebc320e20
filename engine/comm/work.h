// Work: the handle of a collective that may still be running.
//
// On CUDA wait() returns when the peers have enqueued the operation. It only orders streams: later
// work on the compute stream follows the collective. item() and to_vector() are always safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/runtime/stream.h"
#include "engine/runtime/threads.h"

namespace lockstep::comm {

// An event that a stream has yet to wait for.
struct StreamPoint {
  std::shared_ptr<runtime::Event> event;
  runtime::Stream* waiter = nullptr;
};

// The state behind a Work; one class per kind of communicator. Its methods may be called from any
// thread, at the same time.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool is_done() const = 0;
  // Returns when the operation is done, or rethrows its error.
  virtual void wait() const = 0;
};

// Cheap to copy; copies are the same operation. Dropping a Work does not cancel it.
class Work {
 public:
  Work() = default;  // an operation that is done, without an error
  explicit Work(std::shared_ptr<const WorkState> state) : state_(std::move(state)) {}

  // Done, also if it failed; on CUDA: by the device.
  bool is_done() const { return state_ == nullptr || state_->is_done(); }

  // Blocks the calling thread until the operation is done (on CUDA: is enqueued, and the compute
  // stream waits for it), then rethrows its error if it has one. The communicator's timeout ends an
  // operation whose peers are missing, and so this wait.
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }

 private:
  std::shared_ptr<const WorkState> state_;
};

struct CollectiveCall;

// The thread that carries out a communicator's asynchronous calls, in call order.
class AsyncCalls {
 public:
  explicit AsyncCalls(std::string thread_name,
                      runtime::Worker::Slices slices = runtime::Worker::Slices::ordinary)
      : worker_(std::move(thread_name), slices) {}

  // Has the thread run the call; its error is the Work's.
  Work start(CollectiveCall call, std::function<void(const CollectiveCall&)> run);
  // Waits until all have run.
  void finish();

 private:
  class State;

  std::shared_ptr<State> last_;
  runtime::Worker worker_;
};

}  // namespace lockstep::comm
