#include "engine/launch/rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "engine/core/error.h"
#include "engine/launch/slurm.h"

namespace lockstep::launch {
namespace {

using Names = std::array<const char*, 2>;  // the first that is set counts

// The variables of one launcher. nullptr: it has none for this.
struct Family {
  Launcher launcher;
  Names rank;
  Names size;
  Names local_rank;
  Names local_size;
  Names node_rank;
};

constexpr Family kRankFamily = {Launcher::by_hand,    {"RANK"},      {"WORLD_SIZE"}, {"LOCAL_RANK"},
                                {"LOCAL_WORLD_SIZE"}, {"GROUP_RANK"}};
constexpr Family kSlurmFamily = {Launcher::slurm,
                                 {"SLURM_PROCID"},
                                 {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                                 {"SLURM_LOCALID"},
                                 {},
                                 {"SLURM_NODEID"}};
constexpr std::array<Family, 3> kMpiFamilies = {
    Family{Launcher::open_mpi,
           {"OMPI_COMM_WORLD_RANK"},
           {"OMPI_COMM_WORLD_SIZE"},
           {"OMPI_COMM_WORLD_LOCAL_RANK"},
           {"OMPI_COMM_WORLD_LOCAL_SIZE"},
           {}},
    Family{Launcher::pmi, {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}, {}},
    Family{Launcher::mvapich,
           {"MV2_COMM_WORLD_RANK"},
           {"MV2_COMM_WORLD_SIZE"},
           {"MV2_COMM_WORLD_LOCAL_RANK"},
           {"MV2_COMM_WORLD_LOCAL_SIZE"},
           {}}};

// The first variable of names that is set, or nullptr.
const char* first_set(const Environment& environment, const Names& names) {
  for (const char* name : names) {
    if (name && find_variable(environment, name)) return name;
  }
  return nullptr;
}

// In a batch script and in an interactive shell Slurm sets SLURM_STEP_ID to one of its reserved
// numbers, the six largest of 32 bits: no task of a step runs there.
bool is_inside_slurm_step(const Environment& environment) {
  const auto text = find_variable(environment, "SLURM_STEP_ID");
  if (!text) return false;
  std::uint64_t id = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, problem] = std::from_chars(text->data(), end, id);
  require(problem == std::errc{} && rest == end, ErrorCode::Usage, "SLURM_STEP_ID",
          "expected the number of a step in this environment variable, found '{}'", *text);
  return id < 0xFFFFFFFAu;
}

bool is_complete(const Environment& environment, const Family& family) {
  return first_set(environment, family.rank) && first_set(environment, family.size);
}

bool is_started(const Environment& environment, const Family& family) {
  return first_set(environment, family.rank) || first_set(environment, family.size);
}

// nullptr: alone.
const Family* choose_family(const Environment& environment) {
  const bool in_step = is_inside_slurm_step(environment);
  std::vector<const Family*> families{&kRankFamily};
  for (const Family& family : kMpiFamilies) {
    // srun can speak PMI to its tasks, but only an mpirun sets the local rank of this family.
    const bool is_srun =
        family.launcher == Launcher::pmi && in_step && !first_set(environment, family.local_rank);
    if (!is_srun) families.push_back(&family);
  }
  if (in_step) families.push_back(&kSlurmFamily);
  for (const Family* family : families) {
    if (is_complete(environment, *family)) return family;
  }
  if (in_step) return &kSlurmFamily;
  for (const Family* family : families) {
    if (is_started(environment, *family)) return family;
  }
  return nullptr;
}

// Reads variables into a RankEnvironment and remembers where each value came from.
class Decision {
 public:
  Decision(const Environment& environment, const Family& family)
      : environment_(environment), family_(family) {
    result_.launcher = family.launcher;
    if (family.launcher != Launcher::by_hand) return;
    if (find_variable(environment, "TORCHELASTIC_RUN_ID")) result_.launcher = Launcher::torchrun;
    if (find_variable(environment, "LOCKSTEP_LAUNCHER")) result_.launcher = Launcher::lockstep;
  }

  RankEnvironment make() {
    decide_rank_and_size();
    decide_hosts();
    decide_local_rank();
    decide_node_rank();
    decide_master_address();
    decide_master_port();
    return std::move(result_);
  }

 private:
  template <typename Value>
  void note(const char* what, const Value& value, std::string_view from) {
    result_.origins.push_back({what, fmt::format("{}", value), std::string(from)});
  }

  // The value of a variable that the family must have.
  int need(const char* what, const Names& names, const char* other) {
    const char* const name = first_set(environment_, names);
    require(name != nullptr, ErrorCode::Usage, names[0],
            "this environment variable is missing, while {} is set; set both, or neither", other);
    const int value = *find_number(environment_, name);
    note(what, value, name);
    return value;
  }

  void decide_rank_and_size() {
    const char* const rank = first_set(environment_, family_.rank);
    const char* const size = first_set(environment_, family_.size);
    const char* const step = "SLURM_STEP_ID";
    result_.rank = need("rank", family_.rank, size ? size : step);
    result_.world_size = need("world size", family_.size, rank ? rank : step);
    require(result_.world_size >= 1 && result_.world_size <= kMaxWorldSize, ErrorCode::Usage, size,
            "expected 1 to {} ranks, found {}", kMaxWorldSize, result_.world_size);
    require(result_.rank < result_.world_size, ErrorCode::Usage, rank,
            "expected a rank below {}={}, found {}; ranks count from 0", size, result_.world_size,
            result_.rank);
  }

  std::optional<std::string> slurm_node_list(const char** name) const {
    for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
      *name = variable;
      if (auto text = find_variable(environment_, variable)) return text;
    }
    return std::nullopt;
  }

  void decide_slurm_hosts() {
    const char* name = nullptr;
    if (const auto list = slurm_node_list(&name)) {
      const std::vector<std::string> hosts = parse_node_list(name, *list);
      first_host_ = hosts.front();
      first_host_from_ = fmt::format("the first host of {}", name);
      result_.hosts = hosts.size() == 1 ? Hosts::one : Hosts::several;
    } else {
      const int nodes = find_number(environment_, "SLURM_NNODES").value_or(0);
      require(nodes == 1 || find_variable(environment_, "MASTER_ADDR").has_value(),
              ErrorCode::Usage, "SLURM_NODELIST",
              "this environment variable is missing, so the ranks cannot know where to meet; set "
              "it, or MASTER_ADDR");
      result_.hosts = nodes == 1 ? Hosts::one : Hosts::several;
    }
    result_.local_world_size = result_.hosts == Hosts::one ? result_.world_size : 0;
    const auto node = find_number(environment_, "SLURM_NODEID");
    for (const char* variable : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
      const auto text = find_variable(environment_, variable);
      if (!text || !node || result_.local_world_size != 0) continue;
      result_.local_world_size = tasks_on_node(variable, *text, *node).value_or(0);
      local_size_from_ = variable;
    }
  }

  // Are all ranks on this host, and how many are?
  void decide_hosts() {
    const auto address = find_variable(environment_, "MASTER_ADDR");
    const char* const local_size = first_set(environment_, family_.local_size);
    if (family_.launcher == Launcher::slurm) {
      decide_slurm_hosts();
    } else if (local_size) {
      const int size = *find_number(environment_, local_size);
      require(size >= 1 && size <= result_.world_size, ErrorCode::Usage, local_size,
              "expected 1 to {} ranks on this host (the world size), found {}", result_.world_size,
              size);
      result_.local_world_size = size;
      result_.hosts = size == result_.world_size ? Hosts::one : Hosts::several;
      local_size_from_ = local_size;
    } else {
      const bool meets_here = !address || is_loopback(*address);
      result_.hosts = meets_here || result_.world_size == 1 ? Hosts::one : Hosts::several;
      result_.local_world_size = result_.hosts == Hosts::one ? result_.world_size : 0;
    }
  }

  void decide_local_rank() {
    const char* const name = first_set(environment_, family_.local_rank);
    if (name) {
      result_.local_rank = *find_number(environment_, name);
      note("local rank", result_.local_rank, name);
    } else {
      require(result_.hosts == Hosts::one, ErrorCode::Usage, family_.local_rank[0],
              "this environment variable is missing; with ranks on several hosts it says which of "
              "its host's ranks, and so which device, a process is");
      result_.local_rank = result_.rank;
      note("local rank", result_.local_rank, "the rank, since all are on one host");
    }
    const int bound = result_.local_world_size ? result_.local_world_size : result_.world_size;
    require(result_.local_rank < bound, ErrorCode::Usage, name ? name : family_.rank[0],
            "expected a local rank below {}, the number of ranks on this host, found {}", bound,
            result_.local_rank);
    if (result_.local_world_size == 0) {
      note("local world size", "?", "counted when the ranks meet");
    } else {
      note("local world size", result_.local_world_size,
           local_size_from_.empty() ? "the world size, since all are on one host"
                                    : local_size_from_);
    }
  }

  void decide_node_rank() {
    const char* const name = first_set(environment_, family_.node_rank);
    if (name) {
      result_.node_rank = *find_number(environment_, name);
      note("node rank", result_.node_rank, name);
    } else if (result_.hosts == Hosts::one) {
      note("node rank", 0, "all ranks are on one host");
    } else {
      result_.node_rank = -1;
      note("node rank", "?", "counted when the ranks meet");
    }
  }

  void decide_master_address() {
    if (const auto address = find_variable(environment_, "MASTER_ADDR")) {
      result_.master_address = *address;
      note("master address", *address, "MASTER_ADDR");
    } else if (!first_host_.empty()) {
      result_.master_address = first_host_;
      note("master address", first_host_, first_host_from_);
    } else {
      require(result_.hosts == Hosts::one, ErrorCode::Usage, "MASTER_ADDR",
              "this environment variable is missing; with ranks on several hosts it says on which "
              "host rank 0 runs{}",
              result_.launcher == Launcher::open_mpi ? " (mpirun -x MASTER_ADDR=HOST)" : "");
      note("master address", result_.master_address, "default: all ranks are on one host");
    }
  }

  // Text that is the same for all ranks of a job and hardly the same for two jobs.
  std::optional<std::string> job_id(std::string& from) const {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_JOBID", "PMIX_NAMESPACE", "PMI_JOBID"}) {
      const bool is_slurms = std::string_view(name).starts_with("SLURM");
      if (is_slurms != (family_.launcher == Launcher::slurm)) continue;
      auto id = find_variable(environment_, name);
      if (!id) continue;
      from = fmt::format("made of {}", name);
      if (!is_slurms) return id;
      return fmt::format("{}.{}", *id, *find_variable(environment_, "SLURM_STEP_ID"));
    }
    return std::nullopt;
  }

  void decide_master_port() {
    std::string from = "default";
    std::string id_from;
    if (const auto port = find_number(environment_, "MASTER_PORT")) {
      from = "MASTER_PORT";
      result_.master_port = *port;
    } else if (family_.launcher != Launcher::by_hand) {
      if (const auto id = job_id(id_from)) {
        from = id_from;
        std::uint32_t hash = 2166136261u;  // FNV-1a; ports 15000 to 24999 are nobody's default
        for (const char c : *id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
        result_.master_port = static_cast<int>(15000 + hash % 10000);
      }
    }
    if (find_variable(environment_, "TORCHELASTIC_USE_AGENT_STORE") == "True") {
      result_.master_port +=
          1 + find_number(environment_, "TORCHELASTIC_RESTART_COUNT").value_or(0);
      from += " + 1 + TORCHELASTIC_RESTART_COUNT: torchrun's agent listens on MASTER_PORT itself";
    }
    require(result_.master_port >= 1 && result_.master_port <= 65535, ErrorCode::Usage,
            "MASTER_PORT", "expected a port from 1 to 65535, found {}", result_.master_port);
    note("master port", result_.master_port, from);
  }

  const Environment& environment_;
  const Family& family_;
  RankEnvironment result_;
  std::string local_size_from_;
  std::string first_host_;
  std::string first_host_from_;
};

RankEnvironment alone() {
  RankEnvironment result;
  for (const char* what : {"rank", "local rank", "node rank"}) {
    result.origins.push_back({what, "0", "default: started alone"});
  }
  for (const char* what : {"world size", "local world size"}) {
    result.origins.push_back({what, "1", "default: started alone"});
  }
  return result;
}

}  // namespace

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::alone:
      return "alone";
    case Launcher::by_hand:
      return "by hand";
    case Launcher::lockstep:
      return "lockstep run";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "mpirun (Open MPI)";
    case Launcher::pmi:
      return "mpirun (MPICH, Intel MPI)";
    case Launcher::mvapich:
      return "mpirun (MVAPICH2)";
    case Launcher::slurm:
      return "srun";
  }
  return "unknown";
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

}  // namespace lockstep::launch
