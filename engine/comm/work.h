// Work: the handle of a collective that may still be running.
//
// On CUDA the host need not wait for the device: wait() returns when the peers have enqueued the
// operation, and everything that the compute stream of the tensor's device is given from then on
// runs after it. Values are read safely with item() or to_vector(), as ever.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
  // Returns when the operation is done and rethrows its error. Throws Error{Timeout} when the time
  // given passes first; without one, the operation's own time limit holds.
  virtual void wait(std::optional<double> timeout_seconds) const = 0;
};

// Cheap to copy; copies are the same operation, or the same list of operations. Dropping a Work
// does not cancel them.
class Work {
 public:
  Work() = default;  // an operation that is done, without an error
  explicit Work(std::shared_ptr<const WorkState> state) : states_{std::move(state)} {}
  // One Work for several: done when all are; wait() waits for them in order.
  explicit Work(std::span<const Work> works);

  // Done, also if it failed; on CUDA: by the device.
  bool is_done() const;

  // Blocks the calling thread until the operation is done (on CUDA: is enqueued, and the compute
  // stream waits for it), then rethrows its error if it has one. The communicator's timeout ends an
  // operation whose peers are missing, and so this wait.
  void wait() const;
  // As wait(), but at most this long: Error{Timeout} names the operation, its sequence number and
  // the ranks that are missing. The operation itself goes on, and may be waited for again.
  void wait(double timeout_seconds) const;

 private:
  std::vector<std::shared_ptr<const WorkState>> states_;
};

class Group;
struct CollectiveCall;

// The thread that carries out a communicator's asynchronous calls, in call order.
class AsyncCalls {
 public:
  explicit AsyncCalls(std::string thread_name,
                      runtime::Worker::Slices slices = runtime::Worker::Slices::ordinary)
      : worker_(std::move(thread_name), slices) {}

  // Has the thread run the call; its error is the Work's. group: names the missing ranks when
  // a wait times out; may be none.
  Work start(CollectiveCall call, std::weak_ptr<const Group> group,
             std::function<void(const CollectiveCall&)> run);
  // Before a blocking call: waits until those before it have run. Returns whether there were any
  // since the last call of finish().
  bool finish();

 private:
  class State;

  std::shared_ptr<State> last_;
  runtime::Worker worker_;
};

}  // namespace lockstep::comm
