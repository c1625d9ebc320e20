// Work: the handle of a collective that may still be running.
#pragma once

#include <memory>
#include <optional>

namespace lockstep::comm {

// What stands behind a Work; one class per kind of communicator. Its methods may be called from any
// thread, at the same time.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool is_done() const = 0;
  // Returns when the operation is done and rethrows its error. Throws Error{Timeout} when the time
  // given passes first; without one, the operation's own time limit holds.
  virtual void wait(std::optional<double> timeout_seconds) const = 0;
};

// Cheap to copy; copies are the same operation. Dropping a Work does not cancel the operation.
class Work {
 public:
  Work() = default;  // an operation that is done, without an error
  explicit Work(std::shared_ptr<const WorkState> state) : state_(std::move(state)) {}

  // Done, also if it failed.
  bool is_done() const { return state_ == nullptr || state_->is_done(); }

  // Blocks the calling thread until the operation is done, then rethrows its error if it has one.
  // The communicator's timeout ends an operation whose peers are missing, and so this wait.
  void wait() const {
    if (state_ != nullptr) state_->wait({});
  }
  // As wait(), but at most this long: Error{Timeout} names the operation, its sequence number and
  // the ranks that are missing. The operation itself goes on, and may be waited for again.
  void wait(double timeout_seconds) const {
    if (state_ != nullptr) state_->wait(timeout_seconds);
  }

 private:
  std::shared_ptr<const WorkState> state_;
};

}  // namespace lockstep::comm
