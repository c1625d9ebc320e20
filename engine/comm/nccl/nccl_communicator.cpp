// The Communicator over NCCL; nccl_group.h states its contract.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/device_calls.h"
#include "engine/comm/host_identity.h"
#include "engine/comm/nccl/nccl_comm.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/comm/nccl/nccl_library.h"
#include "engine/comm/work.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace nccl {
namespace {

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
              "ranks {} and {} are both on the GPU {} of {}, and NCCL wants one for each rank; use "
              "--comm own, which shares GPUs{}",
              a.rank, b.rank, b.gpu, b.host,
              are_threads ? "" : ", or --nccl-share-gpu to check results (never for timing)");
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
  Work submit(CollectiveCall call, Launch launch) override;
  void require_served(const CollectiveCall& call) const;
  std::shared_ptr<runtime::Event> enqueue(const CollectiveCall& call);
  void barrier(const CollectiveCall& call);

  NcclGroupOptions options_;
  std::string description_;
  runtime::LogicalDevice& device_;
  std::shared_ptr<Comm> comm_;
  Tensor barrier_value_;
  bool has_async_work_ = false;  // not followed by a blocking call
  CallNumbers numbers_;
};

void NcclCommunicator::require_served(const CollectiveCall& call) const {
  const char* name = name_of(call.header.operation);
  require(!is_point_to_point(call.header.operation), ErrorCode::Usage, name,
          "NCCL carries only collectives here; for messages use --comm own");
  require(!call.input.defined() || call.input.device() == options_.device, ErrorCode::Device, name,
          "this rank's NCCL communicator serves {}, found {}", to_string(options_.device),
          lockstep::describe(call.input));
  require(call.header.plan == plan::AllReducePlan::automatic, ErrorCode::Usage, name,
          "NCCL chooses its own algorithm, found the plan {}; use --plan auto, or --comm own",
          plan::to_string(call.header.plan));
}

Work NcclCommunicator::submit(CollectiveCall call, Launch launch) {
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
  put_on_stream(call, launch, has_async_work_ ? FollowsAsync::yes : FollowsAsync::no);
  has_async_work_ = launch == Launch::async;
  const std::shared_ptr<runtime::Event> done = enqueue(call);
  if (launch == Launch::blocking) return {};
  return Work(
      std::make_shared<EnqueuedWork>(std::vector{StreamPoint{done, &device_.compute_stream()}},
                                     [comm = comm_] { comm->throw_if_failed(); }));
}

std::shared_ptr<runtime::Event> NcclCommunicator::enqueue(const CollectiveCall& call) {
  if (call.input.num_elements() > 0) comm_->call(call);
  const std::shared_ptr<runtime::Event> done = call.stream->record();
  // A captured graph's events never pass, so they cannot be watched: only NCCL's own errors help
  // there.
  if (!runtime::cuda::cuda_stream(*call.stream).is_capturing()) comm_->watch(call, done);
  return done;
}

// NCCL has no barrier: the sum of one number is known when every rank has come. The host waits.
void NcclCommunicator::barrier(const CollectiveCall& call) {
  CollectiveCall sum = call;
  sum.input = barrier_value_;
  sum.header.device = DeviceType::cuda;
  put_on_stream(sum, Launch::async, FollowsAsync::yes);
  const std::shared_ptr<runtime::Event> done = enqueue(sum);
  // Each wait is short, since an event of a GPU that has failed may never pass.
  while (!done->wait(runtime::deadline_after(1))) comm_->throw_if_failed();
  comm_->throw_if_failed();
}

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
          "NCCL serves CUDA devices, found {}; use --comm own", to_string(options.device));
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
