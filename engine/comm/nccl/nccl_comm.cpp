#include "engine/comm/nccl/nccl_comm.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/comm/nccl/nccl_library.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm::nccl {
namespace {

using runtime::cuda::CurrentGpu;

// How often the thread looks for errors, and how often a rank that leaves looks at its last calls.
constexpr std::chrono::milliseconds kPollInterval{100};
constexpr std::chrono::microseconds kIdleInterval{200};
// How long a rank that leaves gives NCCL to part from the other ranks in good order.
constexpr double kCloseSeconds = 5;

bool is_well(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

// NCCL's names, in the order of ours. Its average multiplies every contribution by 1/n as it
// enters, as ours does.
constexpr ncclDataType_t kTypes[] = {ncclFloat64, ncclFloat32, ncclBfloat16, ncclFloat16,
                                     ncclInt64,   ncclInt32,   ncclUint8};
constexpr ncclRedOp_t kOps[] = {ncclSum, ncclAvg, ncclProd, ncclMin, ncclMax};
static_assert(kTypes[static_cast<int>(DType::uint8)] == ncclUint8 &&
              kOps[static_cast<int>(ReduceOp::max)] == ncclMax);

// Calls NCCL's function for a collective that moves data.
std::pair<const char*, ncclResult_t> call_nccl(ncclComm_t comm, const CollectiveCall& call) {
  const CallHeader& header = call.header;
  const std::size_t count = header.num_elements;
  const ncclDataType_t type = kTypes[static_cast<int>(header.dtype)];
  const ncclRedOp_t op = kOps[static_cast<int>(header.op)];
  cudaStream_t stream = runtime::cuda::cuda_stream(*call.stream).handle();
  void* in = call.input.raw();
  void* out = call.output.defined() ? call.output.raw() : nullptr;
  const Library& nccl = library();
  switch (header.operation) {
    case Operation::all_reduce:
      return {"ncclAllReduce", nccl.ncclAllReduce(in, in, count, type, op, comm, stream)};
    case Operation::barrier:  // of one number
      return {"ncclAllReduce", nccl.ncclAllReduce(in, in, 1, ncclInt32, ncclSum, comm, stream)};
    case Operation::broadcast:
      return {"ncclBroadcast", nccl.ncclBroadcast(in, in, count, type, header.root, comm, stream)};
    case Operation::all_gather:
      return {"ncclAllGather", nccl.ncclAllGather(in, out, count, type, comm, stream)};
    default:
      return {"ncclReduceScatter",
              nccl.ncclReduceScatter(in, out, call.output.num_elements(), type, op, comm, stream)};
  }
}

// Operation::none: connecting the ranks.
const char* tag_of(const CallHeader& call) {
  return call.operation == Operation::none ? "nccl" : name_of(call.operation);
}
std::string text_of(const CallHeader& call) {
  return call.operation == Operation::none ? "connecting the ranks" : to_string(call);
}

}  // namespace

Comm::Comm(const NcclGroupOptions& options, int gpu, const ncclUniqueId& id,
           runtime::cuda::DeviceFault* fault)
    : options_(options), gpu_(gpu), fault_(fault) {
  const CurrentGpu current(gpu_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result =
      library().ncclCommInitRankConfig(&comm_, options.world_size, id, options.rank, &config);
  if (!is_well(result)) fail_call("ncclCommInitRankConfig", result);
  thread_ = std::thread([this] { poll_until_stopped(); });
  try {
    wait_until_ready("ncclCommInitRankConfig", {}, options.timeout_seconds);
  } catch (const Error& error) {
    fail(error);
    close();
    throw;
  }
}

Comm::~Comm() {
  while (!has_failed() && !under_way().empty()) std::this_thread::sleep_for(kIdleInterval);
  close();
}

void Comm::call(const CollectiveCall& call) {
  try {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    last_call_ = call.header;
    const CurrentGpu current(gpu_);
    const auto [name, result] = call_nccl(comm_, call);
    lock.unlock();
    if (!is_well(result)) fail_call(name, result);
    if (result == ncclInProgress) wait_until_ready(name, call.header, call.timeout_seconds);
  } catch (const Error& error) {
    fail(error);
    throw_if_failed();
  }
}

void Comm::wait_until_ready(const char* name, const CallHeader& call, double timeout_seconds) {
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  for (unsigned round = 0;; ++round) {
    const ncclResult_t state = async_error();
    throw_if_failed();
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) fail_call(name, state);
    if (runtime::has_passed(deadline)) throw timeout_of(call, timeout_seconds);
    runtime::poll_pause(round);
  }
}

ncclResult_t Comm::async_error() {
  const std::lock_guard lock(mutex_);
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return state;
  const CurrentGpu current(gpu_);
  const ncclResult_t asked = library().ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void Comm::watch(const CollectiveCall& call, std::shared_ptr<runtime::Event> done) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back({call.header, call.timeout_seconds,
                        runtime::deadline_after(call.timeout_seconds), std::move(done)});
}

void Comm::poll_until_stopped() {
  const CurrentGpu current(gpu_);  // before any call into CUDA
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, kPollInterval, [&] { return is_stopping_; })) {
    lock.unlock();
    if (!has_failed()) poll();
    lock.lock();
  }
}

void Comm::poll() {
  const std::vector<UnderWay> waiting = under_way();
  if (const ncclResult_t state = async_error(); !is_well(state)) {
    std::unique_lock lock(mutex_);
    const CallHeader last = last_call_;
    lock.unlock();
    fail(Error(ErrorCode::Comm, tag_of(last),
               fmt::format("{} of rank {} failed in NCCL: {}", text_of(last), options_.rank,
                           library().ncclGetErrorString(state))));
  }
  if (!waiting.empty() && runtime::has_passed(waiting.front().deadline)) {
    fail(timeout_of(waiting.front().call, waiting.front().timeout_seconds));
  }
}

std::vector<Comm::UnderWay> Comm::under_way() {
  const std::lock_guard lock(mutex_);
  std::erase_if(under_way_, [](const UnderWay& call) { return call.done->has_passed(); });
  return under_way_;
}

void Comm::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (has_failed()) return;
  // The order matters: the device must not continue with worthless values, nor a waiter see
  // success.
  if (!under_way_.empty()) runtime::cuda::report_from_host(*fault_, error);
  failure_.set(error);
  const CurrentGpu current(gpu_);
  library().ncclCommAbort(comm_);  // an error of the abort itself changes nothing
  comm_ = nullptr;
}

void Comm::close() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
  if (comm_ == nullptr) return;
  const CurrentGpu current(gpu_);
  library().ncclCommFinalize(comm_);  // its error is the state that is polled
  const runtime::Deadline deadline = runtime::deadline_after(kCloseSeconds);
  ncclResult_t state = async_error();
  for (unsigned round = 0; state == ncclInProgress && !runtime::has_passed(deadline); ++round) {
    runtime::poll_pause(round);
    state = async_error();
  }
  if (state == ncclSuccess) {
    library().ncclCommDestroy(comm_);
  } else {
    library().ncclCommAbort(comm_);
  }
}

Error Comm::timeout_of(const CallHeader& call, double timeout_seconds) const {
  return {ErrorCode::Timeout, tag_of(call),
          fmt::format("{} of rank {} was not done within {} s: another rank has ended or stands "
                      "still, or it called something else",
                      text_of(call), options_.rank, timeout_seconds)};
}

}  // namespace lockstep::comm::nccl
