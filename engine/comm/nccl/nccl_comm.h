// An ncclComm_t that never blocks its caller for ever: it is made nonblocking and polled.
#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>
#include <span>

namespace lockstep::comm::nccl {

// One of NCCL's functions with its arguments, for errors by name: "ncclAllReduce".
struct NamedCall {
  const char* name;
  std::function<ncclResult_t(ncclComm_t)> function;
};

// Threads: any thread may call it; calls of one wait for each other, and none of them lasts long.
class Comm {
 public:
  // Called between polls; throws when the wait shall end.
  using Check = std::function<void()>;

  // Begins to connect; wait_until_ready() waits for the other ranks.
  Comm(int gpu, int num_ranks, const ncclUniqueId& id, int rank);
  ~Comm();  // aborts unless close() was called
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Throws Error{Comm} in NCCL's words, or what check throws.
  void wait_until_ready(const Check& check);
  // Calls one of NCCL's functions and waits until it has enqueued its work. Nothing happens after
  // an abort.
  void call(const NamedCall& call, const Check& check);
  // Calls several between ncclGroupStart and ncclGroupEnd, which NCCL enqueues as one. When one of
  // them fails, none of them is enqueued.
  void call_group(std::span<const NamedCall> calls, const Check& check);

  // ncclSuccess or ncclInProgress: all is well.
  ncclResult_t async_error();
  // Ends what runs and hangs on the GPU.
  void abort() noexcept;
  // In good order: lets what is enqueued end first.
  void close(const Check& check);

 private:
  void poll(const char* name, const Check& check);
  ncclResult_t enqueue_group(std::span<const NamedCall> calls);

  int gpu_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null after abort() or close()
};

}  // namespace lockstep::comm::nccl
