// lockstep env: prints the facts for a bug report: versions, build, machine, and this process's
// place in its job, with the variable that each answer comes from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/logical_device.h"
#include "kernels/image_calls.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/record/host_info.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// Variables that Lockstep reads, and launchers' variables that identify this process.
constexpr std::array<const char*, 20> kVariables = {"LOCKSTEP_LOG",
                                                    "LOCKSTEP_CUDNN",
                                                    "LOCKSTEP_VIRTUAL_DEVICES",
                                                    "CUDA_VISIBLE_DEVICES",
                                                    "OMP_NUM_THREADS",
                                                    "RANK",
                                                    "WORLD_SIZE",
                                                    "LOCAL_RANK",
                                                    "LOCAL_WORLD_SIZE",
                                                    "LOCKSTEP_BIND_TO",
                                                    "GROUP_RANK",
                                                    "MASTER_ADDR",
                                                    "MASTER_PORT",
                                                    "TORCHELASTIC_RUN_ID",
                                                    "OMPI_COMM_WORLD_RANK",
                                                    "PMI_RANK",
                                                    "MV2_COMM_WORLD_RANK",
                                                    "SLURM_JOB_ID",
                                                    "SLURM_STEP_ID",
                                                    "SLURM_PROCID"};

constexpr std::size_t kColumn = 26;  // where the values begin

void print_line(const std::string& what, const std::string& value) {
  fmt::print("{:<{}}{}\n", what, kColumn, wrap(value, kTerminalColumns, kColumn));
}

void print_machine() {
  const nlohmann::ordered_json host = host_info();
  for (const char* key : {"version", "build", "os", "cpu"}) {
    print_line(key, host[key].get<std::string>());
  }
  print_line("cores", std::to_string(runtime::num_cores()));
  print_line("memory", fmt::format("{:.1f} GiB",
                                   host["memory_bytes"].get<double>() / (std::size_t{1} << 30)));
  const int num_gpus = runtime::num_devices(DeviceType::cuda);
  print_line("cuda", num_gpus > 0 ? fmt::format("{} devices", num_gpus) : "no device");
  if (num_gpus > 0) print_line("convolutions", kernels::cuda_convolutions());
}

// Prints where the ranks would meet, and the token by which they would trust each other.
void print_meeting(const launch::Environment& environment, const launch::RankEnvironment& rank) {
  if (rank.world_size == 1) return print_line("rendezvous", "none: one rank");
  const bool is_one_host = rank.hosts == launch::Hosts::one;
  print_line("rendezvous",
             fmt::format("rank 0 listens on {}, port {}",
                         is_one_host ? "the loopback" : rank.master_address, rank.master_port));
  std::string token = "missing: set LOCKSTEP_TOKEN, the same on all hosts";
  if (is_one_host || launch::is_loopback(rank.master_address)) {
    token = "none: needless on the loopback";
  }
  if (launch::find_variable(environment, "LOCKSTEP_TOKEN")) token = "LOCKSTEP_TOKEN";
  print_line("token", token);
}

void print_rank(const launch::Environment& environment, const launch::RankEnvironment& rank) {
  print_line("launcher", std::string(to_string(rank.launcher)));
  for (const launch::Origin& origin : rank.origins) {
    print_line(origin.what, fmt::format("{:<24}{}", origin.value, origin.from));
  }
  print_meeting(environment, rank);
  const int num_gpus = runtime::num_devices(DeviceType::cuda);
  const DeviceType type = num_gpus > 0 ? DeviceType::cuda : DeviceType::cpu;
  const int num_devices = num_gpus > 0 ? num_gpus : runtime::kMaxCpuDevices;
  try {
    print_line("device", to_string(launch::device_of_rank(rank, type, num_devices)));
  } catch (const Error& error) {
    print_line("device", error.what());
  }
}

void run_env() {
  print_machine();
  const launch::Environment environment = launch::current_environment();
  std::vector<std::string> unset;
  for (const char* name : kVariables) {
    const std::optional<std::string> value = launch::find_variable(environment, name);
    if (value) {
      print_line(name, *value);
    } else {
      unset.push_back(name);
    }
  }
  if (!unset.empty()) print_line("not set", fmt::format("{}", fmt::join(unset, ", ")));
  // Contradictory variables are an error here too, but only after everything else is printed.
  print_rank(environment, launch::rank_environment(environment));
}

}  // namespace

void add_env_command(CLI::App& program) {
  program.add_subcommand("env", "Print versions, build, machine, and this process's rank")
      ->callback(run_env);
}

}  // namespace lockstep::tools
