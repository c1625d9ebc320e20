#include "engine/comm/nccl/nccl_comm.h"

#include "engine/comm/nccl/nccl_library.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm::nccl {
namespace {

bool is_well(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

}  // namespace

Comm::Comm(int gpu, int num_ranks, const ncclUniqueId& id, int rank) : gpu_(gpu) {
  const runtime::cuda::CurrentGpu current(gpu_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = library().comm_init_rank_config(&comm_, num_ranks, id, rank, &config);
  if (!is_well(result)) fail_call("ncclCommInitRankConfig", result, nullptr);
}

Comm::~Comm() {
  abort();
}

void Comm::wait_until_ready(const Check& check) {
  poll("ncclCommInitRankConfig", check);
}

void Comm::poll(const char* name, const Check& check) {
  for (unsigned round = 0;; ++round) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) break;
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = library().comm_get_async_error(comm_, &state);
      if (asked != ncclSuccess) state = asked;
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) fail_call(name, state, comm_);
    }
    check();
    runtime::poll_pause(round);
  }
  check();
}

void Comm::call(const NamedCall& call, const Check& check) {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    const runtime::cuda::CurrentGpu current(gpu_);
    const ncclResult_t result = call.function(comm_);
    if (result == ncclSuccess) return;
    if (result != ncclInProgress) fail_call(call.name, result, comm_);
  }
  poll(call.name, check);
}

void Comm::call_group(std::span<const NamedCall> calls, const Check& check) {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    const runtime::cuda::CurrentGpu current(gpu_);
    if (enqueue_group(calls) == ncclSuccess) return;
  }
  poll("ncclGroupEnd", check);
}

// Returns ncclSuccess, or ncclInProgress where NCCL goes on by itself. A group that was started is
// ended also after an error: it belongs to the thread, and would hold its later calls back.
ncclResult_t Comm::enqueue_group(std::span<const NamedCall> calls) {
  if (const ncclResult_t result = library().group_start(); result != ncclSuccess) {
    fail_call("ncclGroupStart", result, comm_);
  }
  const char* failed = nullptr;
  ncclResult_t result = ncclSuccess;
  for (const NamedCall& call : calls) {
    result = call.function(comm_);
    if (is_well(result)) continue;
    failed = call.name;
    break;
  }
  const ncclResult_t ended = library().group_end();
  if (failed != nullptr) fail_call(failed, result, comm_);
  if (!is_well(ended)) fail_call("ncclGroupEnd", ended, comm_);
  return ended;
}

ncclResult_t Comm::async_error() {
  const std::lock_guard lock(mutex_);
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return state;
  const ncclResult_t asked = library().comm_get_async_error(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void Comm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const runtime::cuda::CurrentGpu current(gpu_);
  library().comm_abort(comm_);  // what could be done about an error has been done
  comm_ = nullptr;
}

void Comm::close(const Check& check) {
  call({"ncclCommFinalize", [](ncclComm_t comm) { return library().comm_finalize(comm); }}, check);
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const runtime::cuda::CurrentGpu current(gpu_);
  const ncclResult_t result = library().comm_destroy(comm_);
  comm_ = nullptr;
  if (!is_well(result)) fail_call("ncclCommDestroy", result, nullptr);
}

}  // namespace lockstep::comm::nccl
