#include "engine/launch/rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::launch {
namespace {

// The variables by which a launcher identifies a process. nullptr: it does not say.
struct Family {
  Launcher launcher;
  const char *rank, *size, *local_rank, *local_size, *job_id;
};

constexpr Family kFamilies[] = {
    {Launcher::by_hand, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID"},
    {Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {Launcher::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"},
    {Launcher::mvapich, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", "MPIRUN_ID"},
    {Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     "SLURM_JOB_ID"},
    {Launcher::slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID"},
};

bool has(const Environment& environment, const char* name) {
  return name != nullptr && find_variable(environment, name).has_value();
}

// Batch scripts and interactive shells have most of Slurm's variables too, but their step has one
// of the six largest numbers, which are reserved, or none.
bool is_inside_slurm_step(const Environment& environment) {
  const auto text = find_variable(environment, "SLURM_STEP_ID");
  if (!text) return false;
  std::uint64_t id = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, problem] = std::from_chars(text->data(), end, id);
  require(problem == std::errc{} && rest == end, ErrorCode::Usage, "SLURM_STEP_ID",
          "expected the number of a step in this environment variable, found '{}'", *text);
  return id < 0xFFFFFFFA;
}

// The first complete family; else the first with a rank or a size (inside a step: Slurm's), so that
// the error can name the missing variable. nullptr: alone.
const Family* choose_family(const Environment& environment) {
  const bool in_step = is_inside_slurm_step(environment);
  const Family* begun = nullptr;
  for (const Family& family : kFamilies) {
    const bool is_slurm = family.launcher == Launcher::slurm;
    if (is_slurm && !in_step) continue;
    // srun can speak PMI to its tasks, but only an mpirun sets the local rank.
    const bool is_pmi = family.launcher == Launcher::pmi;
    if (is_pmi && in_step && !has(environment, family.local_rank)) continue;
    const bool has_rank = has(environment, family.rank);
    const bool has_size = has(environment, family.size);
    if (has_rank && has_size) return &family;
    const bool counts = in_step ? is_slurm : has_rank || has_size;
    if (counts && !begun) begun = &family;
  }
  return begun;
}

// MASTER_ADDR as people export it: followed by spaces or a carriage return, or in brackets.
std::optional<std::string> find_master_address(const Environment& environment) {
  constexpr const char* kSpaces = " \t\r\n";
  const auto variable = find_variable(environment, "MASTER_ADDR");
  if (!variable) return std::nullopt;
  const std::size_t begin = variable->find_first_not_of(kSpaces);
  if (begin == std::string::npos) return std::nullopt;
  std::string address = variable->substr(begin, variable->find_last_not_of(kSpaces) - begin + 1);
  if (address.starts_with('[') && address.ends_with(']')) {
    address = address.substr(1, address.size() - 2);
  }
  require(std::ranges::count(address, ':') != 1 && address.find("]:") == std::string::npos &&
              address.find("://") == std::string::npos,
          ErrorCode::Usage, "MASTER_ADDR",
          "expected the name or the address of a host alone, found '{}'; its port goes into "
          "MASTER_PORT",
          *variable);
  return address;
}

// A port that is no program's default, the same for all ranks of a job. FNV-1a.
int port_of_job(std::string_view job_id) {
  std::uint32_t hash = 2166136261u;
  for (const char c : job_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 15000 + static_cast<int>(hash % 10000);
}

// Reads a family's variables and notes where each value comes from.
class Decision {
 public:
  Decision(const Environment& environment, const Family& family)
      : environment_(environment), family_(family) {}

  RankEnvironment make() {
    result_.launcher = family_.launcher;
    if (family_.launcher == Launcher::by_hand) {
      if (find_variable(environment_, "TORCHELASTIC_RUN_ID")) result_.launcher = Launcher::torchrun;
      if (find_variable(environment_, "LOCKSTEP_LAUNCHER")) result_.launcher = Launcher::lockstep;
    }
    decide_rank_and_size();
    decide_hosts();
    decide_local_rank();
    decide_master_address();
    decide_master_port();
    return std::move(result_);
  }

 private:
  bool has(const char* name) const { return launch::has(environment_, name); }

  template <typename Value>
  void note(const char* what, const Value& value, std::string_view from) {
    result_.origins.push_back({what, fmt::format("{}", value), std::string(from)});
  }

  // The value of a variable that the family must contain.
  int need(const char* what, const char* name, const char* other) {
    require(has(name), ErrorCode::Usage, name,
            "this environment variable is missing, while {} is set; set both, or neither", other);
    const int value = *find_number(environment_, name);
    note(what, value, name);
    return value;
  }

  void decide_rank_and_size() {
    const char* const rank = family_.rank;
    const char* const size = family_.size;
    result_.rank = need("rank", rank, has(size) ? size : "SLURM_STEP_ID");
    result_.world_size = need("world size", size, has(rank) ? rank : "SLURM_STEP_ID");
    require(result_.world_size >= 1 && result_.world_size <= kMaxWorldSize, ErrorCode::Usage, size,
            "expected 1 to {} ranks, found {}", kMaxWorldSize, result_.world_size);
    require(result_.rank < result_.world_size, ErrorCode::Usage, rank,
            "expected a rank below {}={}, found {}; ranks count from 0", size, result_.world_size,
            result_.rank);
  }

  // Decides if all ranks are on this host, and how many are.
  void decide_hosts() {
    const auto address = find_master_address(environment_);
    const char* const local_size = family_.local_size;
    bool is_one = result_.world_size == 1;
    if (has(local_size)) {
      const int size = *find_number(environment_, local_size);
      require(size >= 1 && size <= result_.world_size, ErrorCode::Usage, local_size,
              "expected 1 to {} ranks on this host (the world size), found {}", result_.world_size,
              size);
      result_.local_world_size = size;
      result_.hosts = size == result_.world_size ? Hosts::one : Hosts::several;
      local_size_from_ = local_size;
      return;
    }
    if (family_.launcher == Launcher::slurm) {
      const bool has_step = has("SLURM_STEP_NUM_NODES");
      const char* const nodes = has_step ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
      is_one = is_one || find_number(environment_, nodes) == 1;
    } else {
      is_one = is_one || !address || is_loopback(*address);
    }
    result_.hosts = is_one ? Hosts::one : Hosts::several;
    result_.local_world_size = is_one ? result_.world_size : 0;
    local_size_from_ =
        is_one ? "the world size, since all are on one host" : "counted when the ranks meet";
  }

  void decide_local_rank() {
    const bool is_one_host = result_.hosts == Hosts::one;
    const char* const name = has(family_.local_rank) ? family_.local_rank : nullptr;
    require(name || is_one_host, ErrorCode::Usage, family_.local_rank,
            "this environment variable is missing; with ranks on several hosts it numbers the "
            "ranks of each host, and so says which device is whose; if all ranks are on this "
            "host, set MASTER_ADDR to 127.0.0.1");
    result_.local_rank = name ? *find_number(environment_, name) : result_.rank;
    note("local rank", result_.local_rank, name ? name : "the rank, since all are on one host");
    const int local_size = result_.local_world_size;
    const int bound = local_size ? local_size : result_.world_size;
    require(result_.local_rank < bound, ErrorCode::Usage, name ? name : family_.rank,
            "expected a local rank below {}, the number of ranks on this host, found {}", bound,
            result_.local_rank);
    note("local world size", local_size ? std::to_string(local_size) : "?", local_size_from_);
  }

  void decide_master_address() {
    const auto address = find_master_address(environment_);
    const char* how = "";
    if (family_.launcher == Launcher::open_mpi) how = " (mpirun -x MASTER_ADDR=HOST)";
    if (family_.launcher == Launcher::slurm) {
      how = ": export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)";
    }
    require(address || result_.hosts == Hosts::one, ErrorCode::Usage, "MASTER_ADDR",
            "this environment variable is missing; with ranks on several hosts it says on which "
            "host rank 0 runs{}",
            how);
    if (address) result_.master_address = *address;
    note("master address", result_.master_address,
         address ? "MASTER_ADDR" : "default: all ranks are on one host");
  }

  void decide_master_port() {
    const bool has_job = has(family_.job_id);
    if (has_job) result_.job_id = *find_variable(environment_, family_.job_id);
    if (has_job && family_.launcher == Launcher::slurm) {
      result_.job_id += "." + *find_variable(environment_, "SLURM_STEP_ID");
    }
    std::int64_t port = kDefaultMasterPort;
    std::string from = "default";
    if (const auto set = find_number(environment_, "MASTER_PORT")) {
      port = *set;
      from = "MASTER_PORT";
    } else if (has_job && family_.launcher != Launcher::by_hand) {
      port = port_of_job(result_.job_id);
      from = fmt::format("made of {}", family_.job_id);
    }
    if (find_variable(environment_, "TORCHELASTIC_USE_AGENT_STORE") == "True") {
      port += std::int64_t{1} + find_number(environment_, "TORCHELASTIC_RESTART_COUNT").value_or(0);
      from += " + 1 + TORCHELASTIC_RESTART_COUNT: torchrun's agent listens on MASTER_PORT itself";
    }
    require(port >= 1 && port <= 65535, ErrorCode::Usage, "MASTER_PORT",
            "expected a port from 1 to 65535, found {}", port);
    result_.master_port = static_cast<int>(port);
    note("master port", port, from);
  }

  const Environment& environment_;
  const Family& family_;
  RankEnvironment result_;
  std::string local_size_from_;
};

RankEnvironment alone() {
  RankEnvironment result;
  for (const char* what : {"rank", "local rank"}) {
    result.origins.push_back({what, "0", "default: started alone"});
  }
  for (const char* what : {"world size", "local world size"}) {
    result.origins.push_back({what, "1", "default: started alone"});
  }
  return result;
}

}  // namespace

std::string_view to_string(Launcher launcher) {
  constexpr const char* kNames[] = {"alone",
                                    "by hand",
                                    "lockstep run",
                                    "torchrun",
                                    "mpirun (Open MPI)",
                                    "mpirun (MPICH, Intel MPI)",
                                    "mpirun (MVAPICH2)",
                                    "srun"};
  return kNames[static_cast<std::size_t>(launcher)];
}

bool is_loopback(std::string_view address) {
  if (address == "localhost" || address == "::1") return true;
  in_addr number{};
  return inet_pton(AF_INET, std::string(address).c_str(), &number) == 1 &&
         ntohl(number.s_addr) >> 24 == 127;
}

RankEnvironment rank_environment(const Environment& environment) {
  const Family* const family = choose_family(environment);
  return family ? Decision(environment, *family).make() : alone();
}

Device device_of_rank(const RankEnvironment& environment, DeviceType type, int num_devices) {
  const int local_rank = environment.local_rank;
  if (local_rank < num_devices) return {type, local_rank};
  const std::string_view name = to_string(type);
  require(num_devices > 0, ErrorCode::Device, "device_of_rank",
          "rank {} should compute on {}:{}, but this process sees no {} device", environment.rank,
          name, local_rank, name);
  fail(ErrorCode::Device, "device_of_rank",
       "rank {} has local rank {} and should compute on {}:{}, but this process sees {} {} "
       "device{}; start at most {} on this host{}",
       environment.rank, local_rank, name, local_rank, num_devices, name,
       num_devices == 1 ? "" : "s", num_devices,
       type == DeviceType::cuda ? ", show it more (CUDA_VISIBLE_DEVICES, srun --gpu-bind=none), or "
                                  "declare virtual ones: LOCKSTEP_VIRTUAL_DEVICES=cuda:0*N"
                                : "");
}

}  // namespace lockstep::launch
