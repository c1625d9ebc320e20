// The Communicator over NCCL; nccl_group.h states its contract.
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/device_calls.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/comm/nccl/nccl_library.h"
#include "engine/comm/store/hello.h"
#include "engine/comm/work.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda/device_fault.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/wait.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace nccl {
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

// An ncclComm_t that never blocks its caller forever. It is nonblocking, and a thread polls NCCL's
// own errors and the deadlines of the calls under way. The first error aborts NCCL, which ends the
// kernels that hang on the GPU; every later call, and the host's next wait for the device, throws
// it.
class Comm {
 public:
  // Returns when all ranks are connected. fault: the device's, where an error reports that the
  // values of a call are worthless.
  Comm(const NcclGroupOptions& options, int gpu, const ncclUniqueId& id,
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

  // Waits until no call is under way or the group is broken, and leaves the other ranks.
  ~Comm() {
    while (!failure_.is_set() && !under_way().empty()) std::this_thread::sleep_for(kIdleInterval);
    close();
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Returns when the call, which must have elements, is on its stream.
  // Throws the error that broke the group: Error{Comm} in NCCL's words, or Error{Timeout}.
  void call(const CollectiveCall& call) {
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

  // Watches the call, which is done when the event passes.
  void watch(const CollectiveCall& call, std::shared_ptr<runtime::Event> done) {
    const std::lock_guard lock(mutex_);
    under_way_.push_back({call.header, call.timeout_seconds,
                          runtime::deadline_after(call.timeout_seconds), std::move(done)});
  }

  void throw_if_failed() const { failure_.throw_if_set(); }

  // Breaks the group with this error, unless it is already broken. The other ranks find out by
  // NCCL's own errors, or by their deadlines.
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (failure_.is_set()) return;
    // The order matters: the device must not continue with worthless values, nor a waiter see
    // success.
    if (!under_way_.empty()) runtime::cuda::report_from_host(*fault_, error);
    failure_.set(error);
    const CurrentGpu current(gpu_);
    library().ncclCommAbort(comm_);  // an error of the abort itself changes nothing
    comm_ = nullptr;
  }

 private:
  struct UnderWay {
    CallHeader call;
    double timeout_seconds = 0;
    runtime::Deadline deadline;
    std::shared_ptr<runtime::Event> done;
  };

  void wait_until_ready(const char* name, const CallHeader& call, double timeout_seconds) {
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

  ncclResult_t async_error() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    if (comm_ == nullptr) return state;
    const CurrentGpu current(gpu_);
    const ncclResult_t asked = library().ncclCommGetAsyncError(comm_, &state);
    return asked == ncclSuccess ? state : asked;
  }

  void poll_until_stopped() {
    const CurrentGpu current(gpu_);  // before any call into CUDA
    std::unique_lock lock(mutex_);
    while (!stops_.wait_for(lock, kPollInterval, [&] { return is_stopping_; })) {
      lock.unlock();
      if (!failure_.is_set()) poll();
      lock.lock();
    }
  }

  void poll() {
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

  // Forgets what is done.
  std::vector<UnderWay> under_way() {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [](const UnderWay& call) { return call.done->has_passed(); });
    return under_way_;
  }

  void close() {
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

  Error timeout_of(const CallHeader& call, double timeout_seconds) const {
    return {ErrorCode::Timeout, tag_of(call),
            fmt::format("{} of rank {} was not done within {} s: another rank has ended or stands "
                        "still, or it called something else",
                        text_of(call), options_.rank, timeout_seconds)};
  }

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

// --- meeting ---

// The facts about itself that a rank writes into the store before it calls NCCL.
struct RankInfo {
  int rank = 0;
  std::string nccl_version;
  std::string gpu;  // its UUID
  int process = 0;
  std::string host;

  std::string text() const {
    return fmt::format("{} {} {} {} {}", rank, nccl_version, gpu, process, host);
  }
  static RankInfo parse(const std::string& text) {
    RankInfo info;
    std::istringstream words(text);
    words >> info.rank >> info.nccl_version >> info.gpu >> info.process >> info.host;
    return info;
  }
};

void require_same_version(const RankInfo& info, const RankInfo& first) {
  require(info.nccl_version == first.nccl_version, ErrorCode::Comm, "nccl",
          "rank {} (process {} on {}) has NCCL {} while rank 0 (process {} on {}) has NCCL {}; "
          "start all ranks alike",
          info.rank, info.process, info.host, info.nccl_version, first.process, first.host,
          first.nccl_version);
}

// True if two ranks share a GPU; throws if that cannot work. NCCL itself would hang, or fail
// without naming the ranks. The first launch of a kernel may load it, which waits for all kernels
// of its GPU, while NCCL's kernels wait for the other ranks: among threads that could take forever.
bool check_pairs(const std::vector<RankInfo>& infos, GpuSharing sharing) {
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  const bool is_eager = loading != nullptr && std::string_view(loading) == "EAGER";
  bool is_shared = false;
  for (const RankInfo& b : infos) {
    for (const RankInfo& a : infos) {
      if (a.rank >= b.rank) continue;
      const bool are_threads = a.process == b.process && a.host == b.host;
      const bool share = a.gpu == b.gpu;
      is_shared = is_shared || share;
      require(!share || (sharing == GpuSharing::allow && !are_threads), ErrorCode::Device, "nccl",
              "ranks {} and {} are both on the GPU {} of {}, and NCCL wants one for each rank; "
              "use the engine's own communicator, which shares GPUs{}",
              a.rank, b.rank, b.gpu, b.host,
              are_threads ? "" : ", or let them share it to check results (never for timing)");
      require(!are_threads || is_eager, ErrorCode::State, "nccl",
              "ranks {} and {} are threads of one process, whose kernels could wait for each other "
              "for ever when one is loaded: set CUDA_MODULE_LOADING=EAGER before CUDA is used",
              a.rank, b.rank);
    }
  }
  return is_shared;
}

struct Group {
  ncclUniqueId id{};
  bool shares_gpus = false;
};

// "nccl/<group>/<what>": a key of this group in the store.
std::string key_of(const NcclGroupOptions& options, std::string_view what) {
  return fmt::format("nccl/{}/{}", options.group, what);
}

// Every rank reads the facts of all ranks, so all of them find the same mistakes.
Group meet_in_store(const NcclGroupOptions& options, const RankInfo& mine) {
  Store& store = *options.store;
  const auto rank_key = [&](int rank) { return key_of(options, fmt::format("rank/{}", rank)); };
  if (mine.rank == 0) {
    ncclUniqueId id;
    const ncclResult_t result = library().ncclGetUniqueId(&id);
    if (result != ncclSuccess) fail_call("ncclGetUniqueId", result);
    store.set(key_of(options, "id"), {id.internal, sizeof id.internal});
  }
  store.set(rank_key(mine.rank), mine.text());
  store.barrier(fmt::format("nccl {}", options.group), mine.rank, options.world_size,
                options.timeout_seconds);
  std::vector<RankInfo> infos;
  for (int rank = 0; rank < options.world_size; ++rank) {
    infos.push_back(RankInfo::parse(store.try_get(rank_key(rank)).value_or("")));
    require_same_version(infos.back(), infos.front());
  }
  const bool shares_gpus = check_pairs(infos, options.sharing);
  const std::string id = store.try_get(key_of(options, "id")).value_or("");
  Group group{{}, shares_gpus};
  std::memcpy(group.id.internal, id.data(), std::min(id.size(), sizeof group.id.internal));
  return group;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclGroupOptions& options, const Group& group)
      : options_(options),
        description_(fmt::format("nccl {}{}", version_of(library()),
                                 group.shares_gpus ? ", ranks share a GPU: not for timing" : "")),
        device_(runtime::logical_device(options.device)),
        comm_(std::make_shared<Comm>(options, device_.gpu(), group.id,
                                     runtime::cuda::cuda_stream(device_.comm_stream()).fault())),
        barrier_value_(Tensor::zeros({1}, DType::int32, options.device)),
        numbers_(options.world_size) {
    set_timeout_seconds(options.timeout_seconds);
  }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  std::string description() const override { return description_; }
  std::string_view transport() const override { return "nccl"; }
  void abort(const std::string& why) override { comm_->fail(aborted_by(rank(), why)); }
  plan::AllReducePlan plan_for(std::size_t) const override {
    return plan::AllReducePlan::automatic;
  }

 private:
  Work submit(CollectiveCall call, Launch launch) override {
    require_served(call);
    CallHeader& header = call.header;
    const char* name = name_of(header.operation);
    trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                           header.num_elements * size_of(header.dtype));
    comm_->throw_if_failed();
    header.sequence = numbers_.next(header.operation, call.peer);
    span.set_sequence(static_cast<std::int64_t>(header.sequence));
    trace::count_collective(rank(), name, least_bytes_sent(header, rank(), world_size()));
    if (header.operation == Operation::barrier) {
      barrier(call);
      return {};
    }
    call.stream = &order_.place(call.input, call.output, launch);
    const std::shared_ptr<runtime::Event> done = enqueue(call);
    if (launch == Launch::blocking) return {};
    return Work(
        std::make_shared<EnqueuedWork>(std::vector{StreamPoint{done, &device_.compute_stream()}},
                                       [comm = comm_] { comm->throw_if_failed(); }));
  }

  void require_served(const CollectiveCall& call) const {
    const char* name = name_of(call.header.operation);
    require(!is_point_to_point(call.header.operation), ErrorCode::Usage, name,
            "NCCL carries only collectives here; for messages use the engine's own communicator");
    require(!call.input.defined() || call.input.device() == options_.device, ErrorCode::Device,
            name, "this rank's NCCL communicator serves {}, found {}", to_string(options_.device),
            lockstep::describe(call.input));
    require(call.header.plan == plan::AllReducePlan::automatic, ErrorCode::Usage, name,
            "NCCL chooses its own algorithm, found the plan {}; leave the plan to it, or use the "
            "engine's own communicator",
            plan::to_string(call.header.plan));
  }

  std::shared_ptr<runtime::Event> enqueue(const CollectiveCall& call) {
    if (call.input.num_elements() > 0) comm_->call(call);
    const std::shared_ptr<runtime::Event> done = call.stream->record();
    // A captured graph's events never pass, so they cannot be watched: only NCCL's own errors help
    // there.
    if (!runtime::cuda::cuda_stream(*call.stream).is_capturing()) comm_->watch(call, done);
    return done;
  }

  // NCCL has no barrier: the sum of one number is known when every rank has come. The host waits.
  void barrier(const CollectiveCall& call) {
    CollectiveCall sum = call;
    sum.input = barrier_value_;
    sum.header.device = DeviceType::cuda;
    sum.stream = &order_.place(sum.input, {}, Launch::async);
    const std::shared_ptr<runtime::Event> done = enqueue(sum);
    // Each wait is short, since an event of a GPU that has failed may never pass.
    while (!done->wait(runtime::deadline_after(1))) comm_->throw_if_failed();
    comm_->throw_if_failed();
  }

  NcclGroupOptions options_;
  std::string description_;
  runtime::LogicalDevice& device_;
  std::shared_ptr<Comm> comm_;
  Tensor barrier_value_;
  StreamOrder order_;
  CallNumbers numbers_;
};

}  // namespace
}  // namespace nccl

bool has_nccl() {
  return true;
}

const std::string& no_nccl_reason() {
  static const std::string reason;
  return reason;
}

std::unique_ptr<Communicator> make_nccl_communicator(const NcclGroupOptions& options) {
  require(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
          ErrorCode::Usage, "nccl",
          "the rank must be in 0 ... world size - 1, found rank {} and world size {}", options.rank,
          options.world_size);
  require(options.store != nullptr, ErrorCode::Usage, "nccl", "ranks need a store to meet");
  require(options.device.type == DeviceType::cuda, ErrorCode::Device, "nccl",
          "NCCL serves CUDA devices, found {}; use the engine's own communicator",
          to_string(options.device));
  if (options.sharing == GpuSharing::allow) {
    // Before the first call of NCCL, which reads its environment only once.
    setenv("NCCL_HOSTID", fmt::format("lockstep-rank-{}", options.rank).c_str(), 1);
  }
  const auto gpu = static_cast<std::size_t>(runtime::logical_device(options.device).gpu());
  const nccl::RankInfo mine{options.rank, nccl::version_of(nccl::library()),
                            runtime::physical_gpus()[gpu].uuid, getpid(),
                            host_name_of(host_identity())};
  return std::make_unique<nccl::NcclCommunicator>(options, nccl::meet_in_store(options, mine));
}

}  // namespace lockstep::comm
