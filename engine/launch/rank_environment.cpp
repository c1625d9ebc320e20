#include "engine/launch/rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/launch/launcher_family.h"
#include "engine/launch/master_endpoint.h"
#include "engine/launch/slurm_step.h"

namespace lockstep::launch {
namespace {

constexpr const char* kOneHost = "the world size, since all are on one host";
constexpr const char* kCountedLater = "counted when the ranks meet";

// Reads a family's variables into a RankEnvironment and remembers where each value came from.
class Decision {
 public:
  Decision(const Environment& environment, const LauncherFamily& family)
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
    note_local_world_size();
    decide_node_rank();
    decide_master();
    return std::move(result_);
  }

 private:
  template <typename Value>
  void note(const char* what, const Value& value, std::string_view from) {
    result_.origins.push_back({what, fmt::format("{}", value), std::string(from)});
  }

  // The value of a variable that the family must have.
  int need(const char* what, const VariableNames& names, const char* other) {
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

  // Are all ranks on this host, and how many are?
  void decide_hosts() {
    const auto address = find_variable(environment_, "MASTER_ADDR");
    const char* const local_size = first_set(environment_, family_.local_size);
    if (family_.launcher == Launcher::slurm) {
      slurm_ = find_slurm_hosts(environment_, result_.world_size);
      result_.hosts = slurm_.hosts;
      result_.local_world_size = slurm_.local_world_size;
      local_size_from_ = slurm_.local_world_size_from;
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
      local_size_from_ = kOneHost;
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
  }

  void note_local_world_size() {
    if (result_.local_world_size == 0) {
      note("local world size", "?", kCountedLater);
    } else {
      note("local world size", result_.local_world_size, local_size_from_);
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
      note("node rank", "?", kCountedLater);
    }
  }

  void decide_master() {
    const MasterAddress master =
        decide_master_address(environment_, family_, result_.hosts, slurm_);
    result_.master_address = master.address;
    note("master address", master.address, master.from);
    const MasterPort port = decide_master_port(environment_, family_);
    result_.master_port = port.port;
    note("master port", port.port, port.from);
  }

  const Environment& environment_;
  const LauncherFamily& family_;
  RankEnvironment result_;
  std::string local_size_from_;
  SlurmHosts slurm_;  // under Slurm
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

bool is_loopback(std::string_view address) {
  if (address == "localhost" || address == "::1") return true;
  in_addr number{};
  return inet_pton(AF_INET, std::string(address).c_str(), &number) == 1 &&
         ntohl(number.s_addr) >> 24 == 127;
}

RankEnvironment rank_environment(const Environment& environment) {
  const LauncherFamily* const family = choose_family(environment);
  return family ? Decision(environment, *family).make() : alone();
}

}  // namespace lockstep::launch
