#include "engine/comm/nccl/nccl_comm.h"

#include <fmt/format.h>

#include <chrono>

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
// How long a rank that leaves waits for NCCL to leave the other ranks in good order.
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
Comm::Called call_nccl(ncclComm_t comm, const CollectiveCall& call) {
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
    case Operation::broadcast:
      return {"ncclBroadcast", nccl.ncclBroadcast(in, in, count, type, header.root, comm, stream)};
    case Operation::all_gather:
      return {"ncclAllGather", nccl.ncclAllGather(in, out, count, type, comm, stream)};
    default:
      return {"ncclReduceScatter",
              nccl.ncclReduceScatter(in, out, call.output.num_elements(), type, op, comm, stream)};
  }
}

}  // namespace

const char* IssuedCalls::tag() const {
  return first.operation == Operation::none ? "nccl" : name_of(first.operation);
}

std::string IssuedCalls::text() const {
  if (first.operation == Operation::none) return "connecting the ranks";
  if (num_calls == 1) return to_string(first);
  return fmt::format("{} and {} more ({} elements in all)", to_string(first), num_calls - 1,
                     num_elements);
}

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
    wait_until_ready("ncclCommInitRankConfig", {{}, 1, 0, options.timeout_seconds});
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

void Comm::call(std::span<const CollectiveCall* const> calls, const IssuedCalls& issued) {
  try {
    const Called last = enqueue(calls, issued);
    if (last.result == ncclInProgress) wait_until_ready(last.name, issued);
  } catch (const Error& error) {
    fail(error);
    throw_if_failed();
  }
}

// Returns ncclSuccess, or ncclInProgress where NCCL goes on by itself. A group that was started is
// ended also after an error: it belongs to the thread, and would hold its later calls back.
Comm::Called Comm::enqueue(std::span<const CollectiveCall* const> calls,
                           const IssuedCalls& issued) {
  const std::lock_guard lock(mutex_);
  last_calls_ = issued;
  if (comm_ == nullptr) return {"", ncclInProgress};  // aborted: the wait throws
  const CurrentGpu current(gpu_);
  const bool is_group = calls.size() > 1;
  Called last{"ncclGroupStart", is_group ? library().ncclGroupStart() : ncclSuccess};
  if (last.result != ncclSuccess) fail_call(last.name, last.result);
  for (const CollectiveCall* call : calls) {
    last = call_nccl(comm_, *call);
    if (!is_well(last.result)) break;
  }
  const ncclResult_t ended = is_group ? library().ncclGroupEnd() : last.result;
  if (!is_well(last.result)) fail_call(last.name, last.result);
  if (!is_well(ended)) fail_call("ncclGroupEnd", ended);
  return {last.name, ended};
}

void Comm::wait_until_ready(const char* name, const IssuedCalls& issued) {
  const runtime::Deadline deadline = runtime::deadline_after(issued.timeout_seconds);
  for (unsigned round = 0;; ++round) {
    const ncclResult_t state = async_error();
    throw_if_failed();
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) fail_call(name, state);
    if (runtime::has_passed(deadline)) throw timeout_of(issued);
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

void Comm::watch(const IssuedCalls& issued, std::shared_ptr<runtime::Event> done) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back({issued, std::move(done), runtime::deadline_after(issued.timeout_seconds)});
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
    const IssuedCalls last = last_calls_;
    lock.unlock();
    fail(Error(ErrorCode::Comm, last.tag(),
               fmt::format("{} of rank {} failed in NCCL: {}", last.text(), options_.rank,
                           library().ncclGetErrorString(state))));
  }
  if (!waiting.empty() && runtime::has_passed(waiting.front().deadline)) {
    fail(timeout_of(waiting.front().calls));
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
  // Before the device goes on with worthless values, and before anybody takes the call for done.
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

Error Comm::timeout_of(const IssuedCalls& calls) const {
  return {ErrorCode::Timeout, calls.tag(),
          fmt::format("{} of rank {} was not done within {} s: another rank has ended or stands "
                      "still, or it called something else",
                      calls.text(), options_.rank, calls.timeout_seconds)};
}

}  // namespace lockstep::comm::nccl
