#include "tools/ranks/communicators.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/mpi/mpi_group.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/comm/process_group.h"
#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::tools {
namespace {

std::unique_ptr<comm::Communicator> make_own(const RankFlags& flags, const launch::Job& job) {
  const launch::RankEnvironment& rank = job.rank();
  const auto bound = launch::find_variable(launch::current_environment(), launch::kBindVariable);
  comm::ProcessGroupOptions options;
  options.rank = rank.rank;
  options.world_size = rank.world_size;
  options.store = job.store();
  options.token = job.token();
  options.address = job.address();
  options.transport = comm::parse_transport_choice(flags.transport);
  options.link = modelled_link(flags);
  options.timeout_seconds = flags.comm_timeout;
  options.default_plan = plan::parse_all_reduce_plan(flags.plan);
  if (bound) options.cores = comm::ProcessGroupOptions::Cores::own;
  return comm::make_process_group(options);
}

std::unique_ptr<comm::Communicator> make_nccl(const RankFlags& flags, const launch::Job& job,
                                              Device device) {
  comm::NcclGroupOptions options;
  options.rank = job.rank().rank;
  options.world_size = job.rank().world_size;
  options.store = job.store();
  options.device = device;
  options.timeout_seconds = flags.comm_timeout;
  if (flags.nccl_share_gpu) options.sharing = comm::GpuSharing::allow;
  return comm::make_nccl_communicator(options);
}

std::unique_ptr<comm::Communicator> make_mpi(const RankFlags& flags, const launch::Job& job) {
  comm::MpiGroupOptions options;
  options.rank = job.rank().rank;
  options.world_size = job.rank().world_size;
  options.timeout_seconds = flags.comm_timeout;
  options.started_by = to_string(job.rank().launcher);
  return comm::make_mpi_communicator(options);
}

// Whether the first `count` devices of this process are GPUs of their own.
bool have_own_gpus(int count) {
  const std::vector<int> gpus = runtime::logical_gpus();
  const auto first_after = gpus.begin() + std::min(static_cast<std::size_t>(count), gpus.size());
  return std::set<int>(gpus.begin(), first_after).size() == static_cast<std::size_t>(count);
}

// As far as this rank can see: the ranks of its host have different GPUs.
bool has_own_gpu(const launch::Job& job, Device device) {
  return device.type == DeviceType::cuda && have_own_gpus(job.rank().local_world_size);
}

// A rank that cannot use NCCL says so; then none does.
std::string choose(const RankFlags& flags, const launch::Job& job, Device device) {
  const bool wants_own = flags.plan != "auto" || flags.transport != "auto" || !flags.link.empty();
  const bool is_alone = job.rank().world_size == 1;
  if (!comm::has_nccl() || wants_own || is_alone || device.type == DeviceType::cpu) return "own";
  if (!has_own_gpu(job, device)) job.store()->set("comm/own", "");
  job.store()->barrier("comm/chosen", job.rank().rank, job.rank().world_size,
                       runtime::deadline_after(flags.comm_timeout));
  return job.store()->try_get("comm/own") ? "own" : "nccl";
}

}  // namespace

void require_comm(const RankFlags& flags) {
  if (flags.comm == "nccl") {
    require(comm::has_nccl(), ErrorCode::Usage, "--comm", "nccl: {}", comm::no_nccl_reason());
  }
  if (flags.comm == "mpi") {
    require(comm::has_mpi(), ErrorCode::Usage, "--comm", "mpi: {}", comm::no_mpi_reason());
  }
  const bool is_between_threads = flags.ranks == "threads";
  require(!is_between_threads || flags.comm.empty() || flags.comm == "own", ErrorCode::Usage,
          "--comm", "{} connects processes; leave out --ranks threads, or use --comm own",
          flags.comm);
  require(!flags.nccl_share_gpu || flags.comm == "nccl", ErrorCode::Usage, "--nccl-share-gpu",
          "is about NCCL; say --comm nccl too");
}

void require_reachable_devices(const RankFlags& flags, DeviceType type, int num_ranks) {
  if (flags.comm != "nccl" || num_ranks == 1) return;
  require(type == DeviceType::cuda, ErrorCode::Usage, "--comm",
          "nccl connects GPUs, and the device is the CPU; use --comm own");
  require(flags.nccl_share_gpu || have_own_gpus(num_ranks), ErrorCode::Usage, "--comm",
          "nccl wants a GPU for each rank, and {} ranks share them here; use --comm own, which "
          "shares GPUs, or --nccl-share-gpu to check results (never for timing)",
          num_ranks);
}

RankCommunicator make_communicator(const RankFlags& flags, const launch::Job& job, Device device) {
  const std::string name = flags.comm.empty() ? choose(flags, job, device) : flags.comm;
  std::unique_ptr<comm::Communicator> communicator;
  if (name == "nccl") {
    communicator = comm::staged(make_nccl(flags, job, device), device);
  } else {
    communicator = name == "mpi" ? make_mpi(flags, job) : make_own(flags, job);
    if (device.type == DeviceType::cuda) {
      communicator = comm::staged(std::move(communicator), Device{});
    }
  }
  return {std::move(communicator), name};
}

}  // namespace lockstep::tools
