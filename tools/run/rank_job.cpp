#include "tools/run/rank_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "engine/comm/comm_errors.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/comm/process_group.h"
#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/launch/launcher.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/span.h"

namespace lockstep::tools {
namespace {

// A launcher or mpirun blames the rank that ends first. So a rank that fails tells the others
// before it ends, and they wait for so long before they end too.
constexpr std::chrono::milliseconds kAfterTheCause{500};

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

// The name of the communicator without --comm: nccl if every rank of the job has a GPU of its own,
// this build has NCCL, and no plan, transport or link of `own` is asked for; else own. All ranks
// choose alike: each sees the GPUs of its own host, and all use NCCL unless one says that it
// cannot.
std::string choose(const RankFlags& flags, const launch::Job& job, Device device) {
  const launch::RankEnvironment& rank = job.rank();
  const bool wants_own = flags.plan != "auto" || flags.transport != "auto" || !flags.link.empty();
  const bool is_alone = rank.world_size == 1;
  if (!comm::has_nccl() || wants_own || is_alone || device.type == DeviceType::cpu) return "own";
  if (!have_own_gpus(rank.local_world_size)) job.store()->set("comm/own", "");
  job.store()->barrier("comm/chosen", rank.rank, rank.world_size, flags.comm_timeout);
  return job.store()->try_get("comm/own") ? "own" : "nccl";
}

// Tensors that the communicator cannot reach are staged (comm/communicator.h).
std::unique_ptr<comm::Communicator> make_communicator(const std::string& name,
                                                      const RankFlags& flags,
                                                      const launch::Job& job, Device device) {
  if (name == "nccl") return comm::through_host(make_nccl(flags, job, device), device);
  auto communicator = make_own(flags, job);
  if (device.type == DeviceType::cpu) return communicator;
  return comm::through_host(std::move(communicator), Device{});
}

// Tells the other ranks why this one leaves. If the store is gone, there is no rank left to tell.
void end_job(launch::Job& job, comm::Communicator* communicator, const std::string& why) noexcept {
  try {
    if (communicator) communicator->abort(why);
    job.store()->abort(comm::aborted_by(job.rank().rank, why));
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

void run_as_rank(const RankFlags& flags, DeviceType type,
                 const std::vector<launch::Setting>& settings,
                 const std::function<void(RankJob&)>& work) {
  const launch::Environment environment = launch::current_environment();
  const launch::RankEnvironment rank = launch::rank_environment(environment);
  ThreadContext context;
  context.rank = rank.rank;
  context.world_size = rank.world_size;
  const ThreadContextScope scope(context);
  const Device device = launch::device_of_rank(rank, type, runtime::num_devices(type));
  launch::JoinOptions options;
  options.timeout_seconds = flags.comm_timeout;
  options.settings = settings;
  launch::Job job = launch::join_job(environment, options);
  std::unique_ptr<comm::Communicator> communicator;
  try {
    const std::string name = flags.comm.empty() ? choose(flags, job, device) : flags.comm;
    communicator = make_communicator(name, flags, job, device);
    RankJob mine{job.rank(), device, *job.store(), *communicator, name, flags.comm_timeout};
    work(mine);
  } catch (const std::exception& error) {
    end_job(job, communicator.get(), error.what());
    if (comm::is_abort(error)) std::this_thread::sleep_for(kAfterTheCause);
    throw;
  }
}

void name_rank_in_errors(const launch::RankEnvironment& rank, const std::function<void()>& work) {
  const std::string name = fmt::format("rank {}", rank.rank);
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.code(), name, error.what());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::State, name, "out of memory");
  } catch (const std::exception& error) {
    throw Error(ErrorCode::State, name, error.what());
  }
}

std::size_t num_ranks_on_cores(const launch::RankEnvironment& rank) {
  const bool is_bound =
      launch::find_variable(launch::current_environment(), launch::kBindVariable).has_value();
  return is_bound ? 1 : static_cast<std::size_t>(std::max(1, rank.local_world_size));
}

std::vector<std::string> gather_at_rank_zero(RankJob& job, const std::string& name,
                                             const std::string& bytes) {
  const runtime::Deadline deadline = runtime::deadline_after(job.timeout_seconds);
  const auto key = [&](int rank, const std::string& part) {
    return fmt::format("gather/{}/{}/{}", name, rank, part);
  };
  if (!job.is_first()) {
    std::size_t num_parts = 0;
    for (std::size_t begin = 0; begin < bytes.size(); begin += comm::kMaxValueBytes) {
      job.store.set(key(job.rank(), std::to_string(num_parts++)),
                    std::string_view(bytes).substr(begin, comm::kMaxValueBytes));
    }
    job.store.set(key(job.rank(), "parts"), std::to_string(num_parts));
    return {};
  }
  std::vector<std::string> gathered{bytes};
  for (int rank = 1; rank < job.world_size(); ++rank) {
    const std::size_t num_parts = std::stoul(job.store.get(key(rank, "parts"), deadline));
    std::string all;
    for (std::size_t part = 0; part < num_parts; ++part) {
      all += job.store.get(key(rank, std::to_string(part)), deadline);
    }
    gathered.push_back(std::move(all));
  }
  return gathered;
}

void wait_for_all_ranks(RankJob& job, const std::string& name) {
  if (job.world_size() == 1) return;
  job.store.barrier(name, job.rank(), job.world_size(), job.timeout_seconds);
}

std::string describe_job(const RankJob& job) {
  return fmt::format("rank {} of {} ({}), {}", job.rank(), job.world_size(),
                     to_string(job.environment.launcher), job.communicator.description());
}

}  // namespace lockstep::tools
