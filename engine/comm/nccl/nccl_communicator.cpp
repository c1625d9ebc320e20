// The Communicator over NCCL; nccl_group.h states its contract.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

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

struct Group {
  ncclUniqueId id{};
  bool shares_gpus = false;
};

// Finds what NCCL would not name: it would hang, or fail in other words. The first rank writes its
// version of NCCL, and each GPU's first rank its number. A rank that does not fit writes why, and
// all ranks refuse in these words.
Group meet_in_store(const NcclGroupOptions& options, const std::string& gpu) {
  Store& store = *options.store;
  const auto key = [&](std::string_view what) {
    return fmt::format("nccl/{}/{}", options.group, what);
  };
  const std::string version = version_of(library());
  const std::string first_version = store.set_if_absent(key("version"), version);
  if (first_version != version) {
    store.set(
        key("refusal"),
        fmt::format("rank {} has NCCL {} while another one has NCCL {}; start all ranks alike",
                    options.rank, version, first_version));
  }
  const std::string mine = std::to_string(options.rank);
  const int first_rank = std::stoi(store.set_if_absent(key(gpu), mine));
  if (first_rank != options.rank) {
    store.set(key("shared"), "");
    if (options.sharing == GpuSharing::refuse) {
      store.set(key("refusal"),
                fmt::format("ranks {} and {} are both on the GPU {} of {}, and NCCL wants one for "
                            "each rank; use --comm own, which shares GPUs, or --nccl-share-gpu to "
                            "check results (never for timing)",
                            std::min(first_rank, options.rank), std::max(first_rank, options.rank),
                            gpu, host_name_of(host_identity())));
    }
  }
  if (options.rank == 0) {
    ncclUniqueId id;
    const ncclResult_t result = library().ncclGetUniqueId(&id);
    if (result != ncclSuccess) fail_call("ncclGetUniqueId", result);
    store.set(key("id"), {id.internal, sizeof id.internal});
  }
  store.barrier(fmt::format("nccl {}", options.group), options.rank, options.world_size,
                options.timeout_seconds);
  const auto refusal = store.try_get(key("refusal"));
  require(!refusal, ErrorCode::Device, "nccl", "{}", refusal.value_or(""));
  Group group{{}, store.try_get(key("shared")).has_value()};
  const std::string id = store.try_get(key("id")).value_or("");
  std::memcpy(group.id.internal, id.data(), std::min(id.size(), sizeof group.id.internal));
  return group;
}

// The state behind the Work of an asynchronous call that is already enqueued.
class NcclWork final : public WorkState {
 public:
  NcclWork(std::shared_ptr<const Comm> comm, StreamPoint on_device)
      : comm_(std::move(comm)), on_device_(std::move(on_device)) {}

  bool is_done() const override { return comm_->has_failed() || on_device_.event->has_passed(); }
  void wait() const override {
    comm_->throw_if_failed();
    on_device_.waiter->wait(on_device_.event);
  }

 private:
  std::shared_ptr<const Comm> comm_;
  StreamPoint on_device_;
};

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
          "NCCL carries collectives here, and no messages; use --comm own");
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
  return Work(std::make_shared<NcclWork>(comm_, StreamPoint{done, &device_.compute_stream()}));
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
  const std::string& uuid = runtime::physical_gpus()[gpu].uuid;
  return std::make_unique<nccl::NcclCommunicator>(options, nccl::meet_in_store(options, uuid));
}

}  // namespace lockstep::comm
