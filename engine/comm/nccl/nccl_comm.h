// An ncclComm_t that never blocks its caller forever.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/runtime/cuda/device_fault.h"
#include "engine/runtime/stream.h"

namespace lockstep::comm::nccl {

// An ncclComm_t that never blocks its caller forever. It is nonblocking, and a thread polls NCCL's
// own errors and the deadlines of the calls under way. The first error aborts NCCL, which ends the
// kernels that hang on the GPU; every later call, and the host's next wait for the device, throws
// it.
class Comm {
 public:
  // Returns when all ranks are connected. fault: the device's, where an error reports that the
  // values of a call are worthless.
  Comm(const NcclGroupOptions& options, int gpu, const ncclUniqueId& id,
       runtime::cuda::DeviceFault* fault);
  // Waits until no call is under way or the group is broken, and leaves the other ranks.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Returns when the call, which must have elements, is on its stream.
  // Throws the error that broke the group: Error{Comm} in NCCL's words, or Error{Timeout}.
  void call(const CollectiveCall& call);
  // Watches the call, which is done when the event passes.
  void watch(const CollectiveCall& call, std::shared_ptr<runtime::Event> done);

  bool has_failed() const { return failure_.is_set(); }
  void throw_if_failed() const { failure_.throw_if_set(); }
  // Breaks the group with this error, unless it is already broken. The other ranks find out by
  // NCCL's own errors, or by their deadlines.
  void fail(const Error& error);

 private:
  struct UnderWay {
    CallHeader call;
    double timeout_seconds = 0;
    runtime::Deadline deadline;
    std::shared_ptr<runtime::Event> done;
  };

  void wait_until_ready(const char* name, const CallHeader& call, double timeout_seconds);
  ncclResult_t async_error();
  void poll_until_stopped();
  void poll();
  std::vector<UnderWay> under_way();  // forgets what is done
  void close();
  Error timeout_of(const CallHeader& call, double timeout_seconds) const;

  const NcclGroupOptions options_;
  const int gpu_;
  runtime::cuda::DeviceFault* const fault_;
  FirstFailure failure_;

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null after an abort
  CallHeader last_call_;
  std::vector<UnderWay> under_way_;
  bool is_stopping_ = false;
  std::condition_variable stops_;
  std::thread thread_;
};

}  // namespace lockstep::comm::nccl
