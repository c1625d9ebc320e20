#include "tools/flags/rank_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "engine/comm/nccl/nccl_group.h"
#include "engine/core/error.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::tools {
namespace {

// Throws if --comm names a library that this build lacks or that these ranks cannot use.
void require_comm(const RankFlags& flags) {
  if (flags.comm == "nccl") {
    require(comm::has_nccl(), ErrorCode::Usage, "--comm", "nccl: {}", comm::no_nccl_reason());
  }
  const bool is_between_threads = flags.ranks == "threads";
  require(!is_between_threads || flags.comm.empty() || flags.comm == "own", ErrorCode::Usage,
          "--comm", "{} connects processes; leave out --ranks threads, or use --comm own",
          flags.comm);
  require(!flags.nccl_share_gpu || flags.comm == "nccl", ErrorCode::Usage, "--nccl-share-gpu",
          "is for NCCL; add --comm nccl");
}

void require_transport(const RankFlags& flags) {
  const std::string& name = flags.transport;
  if (flags.ranks == "threads") {
    require(name == "auto" || name == "thread", ErrorCode::Usage, "--transport",
            "'{}' is not available between threads; use auto or thread, or --ranks processes",
            name);
  } else {
    require(name == "auto" || name == "shm" || name == "tcp", ErrorCode::Usage, "--transport",
            "'{}' is not available between processes; use auto, shm or tcp, or --ranks threads",
            name);
  }
}

// Throws for a flag of the project's own collectives beside those of another library.
void require_own(const RankFlags& flags) {
  if (flags.comm.empty() || flags.comm == "own") return;
  for (const auto& [flag, is_said] :
       {std::pair("--transport", flags.transport != "auto"),
        std::pair("--plan", flags.plan != "auto"), std::pair("--link", !flags.link.empty())}) {
    require(!is_said, ErrorCode::Usage, flag,
            "is for the project's own collectives, and --comm {} has its own; leave it out, or use "
            "--comm own",
            flags.comm);
  }
}

Ranks decide(const RankFlags& flags, const launch::RankEnvironment& environment,
             std::optional<int> num_devices) {
  const int world_size = environment.world_size;
  const bool is_alone = environment.launcher == launch::Launcher::alone;
  if (world_size > 1) {
    require(flags.ranks != "threads", ErrorCode::Usage, "--ranks",
            "{} started {} processes, and each of them is a rank; leave out --ranks threads",
            to_string(environment.launcher), world_size);
  } else {
    if (flags.ranks == "threads" || (flags.ranks.empty() && flags.comm != "nccl")) {
      return Ranks::threads;
    }
    if (is_alone && num_devices.value_or(1) != 1) return Ranks::start;
  }
  require(num_devices.value_or(world_size) == world_size, ErrorCode::Usage, "--devices",
          "{} started {} {}, which are the devices; found {}, leave it out",
          to_string(environment.launcher), world_size, world_size == 1 ? "process" : "processes",
          *num_devices);
  return Ranks::this_process;
}

}  // namespace

Ranks resolve_ranks(RankFlags& flags, const launch::RankEnvironment& environment,
                    std::optional<int> num_devices) {
  const Ranks ranks = decide(flags, environment, num_devices);
  flags.ranks = ranks == Ranks::threads ? "threads" : "processes";
  if (flags.comm.empty() && ranks == Ranks::threads) flags.comm = "own";
  modelled_link(flags);  // throws for words that are no link
  require_comm(flags);
  require_own(flags);
  require_transport(flags);
  return ranks;
}

std::optional<comm::LinkSpec> modelled_link(const RankFlags& flags) {
  if (flags.link.empty()) return std::nullopt;
  return comm::parse_link(flags.link);
}

void require_linkable(const RankFlags& flags, DeviceType type) {
  require(flags.link.empty() || type == DeviceType::cpu || flags.ranks == "processes",
          ErrorCode::Usage, "--link",
          "delays what ranks send from host memory, and ranks that are threads do not send their "
          "CUDA tensors from there; use --device cpu, or --ranks processes");
}

std::string link_note(const RankFlags& flags) {
  const std::optional<comm::LinkSpec> link = modelled_link(flags);
  if (!link) return {};
  return fmt::format(
      "simulated link between ranks: {}; times are of this link, not of the machine's",
      to_string(*link));
}

bool have_own_gpus(int count) {
  const std::vector<int> gpus = runtime::logical_gpus();
  const auto first_after = gpus.begin() + std::min(static_cast<std::size_t>(count), gpus.size());
  return std::set<int>(gpus.begin(), first_after).size() == static_cast<std::size_t>(count);
}

void require_reachable_devices(const RankFlags& flags, DeviceType type, int num_ranks) {
  if (flags.comm != "nccl" || num_ranks == 1) return;
  require(type == DeviceType::cuda, ErrorCode::Usage, "--comm",
          "nccl connects GPUs, and the device is the CPU; use --comm own");
  require(flags.nccl_share_gpu || have_own_gpus(num_ranks), ErrorCode::Usage, "--comm",
          "nccl needs a GPU for each rank, and {} ranks share them here; use --comm own, which "
          "shares GPUs, or --nccl-share-gpu to check results (never for timing)",
          num_ranks);
}

}  // namespace lockstep::tools
