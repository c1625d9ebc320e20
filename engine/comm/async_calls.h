// The thread that carries out a communicator's asynchronous calls, in call order.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/comm/async_work.h"
#include "engine/runtime/threads.h"

namespace lockstep::comm {

class AsyncCalls {
 public:
  explicit AsyncCalls(std::string thread_name,
                      runtime::Worker::Slices slices = runtime::Worker::Slices::ordinary)
      : worker_(std::move(thread_name), slices) {}

  // Has the thread run the call; an error is the Work's. transport: see AsyncWork.
  Work start(CollectiveCall call, std::weak_ptr<const Transport> transport,
             std::function<void(const CollectiveCall&)> run);
  // Before a blocking call: waits until those before it have run. Says whether there were any since
  // it was last called.
  bool finish();

 private:
  std::shared_ptr<AsyncWork> last_;
  runtime::Worker worker_;
};

}  // namespace lockstep::comm
