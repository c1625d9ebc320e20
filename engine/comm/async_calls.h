// The thread that carries out a communicator's asynchronous calls, in call order, and the Work that
// each of them returns.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/comm/collective_call.h"
#include "engine/comm/work.h"
#include "engine/runtime/threads.h"

namespace lockstep::comm {

class Group;

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
