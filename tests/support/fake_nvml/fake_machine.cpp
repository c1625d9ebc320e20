#include "tests/support/fake_nvml/fake_machine.h"

#include <fmt/format.h>
#include <stdlib.h>

namespace lockstep::testing {
namespace {

constexpr std::size_t kGib = std::size_t{1} << 30;
constexpr int kPix = 10;
constexpr int kNode = 40;
constexpr int kSys = 50;

nlohmann::json describe_gpu(std::size_t index) {
  return {{"name", "NVIDIA H200"},
          {"uuid", fake_uuid(index)},
          {"pci", fmt::format("00000000:{:02X}:00.0", 0x10 + index)},
          {"compute_capability", {9, 0}},
          {"memory", {{"total", 16 * kGib}, {"used", index * kGib}, {"reserved", kGib / 2}}},
          {"utilization", index + 1},
          {"temperature", 30 + index},
          {"power_milliwatts", 75000 + 500 * index},
          {"power_limit_milliwatts", 700000},
          {"nvlinks", std::vector<std::string>(18, "switch")},
          {"processes", nlohmann::json::array()}};
}

int topology_level(std::size_t a, std::size_t b) {
  if (a / 2 == b / 2) return kPix;
  return a / 4 == b / 4 ? kNode : kSys;
}

}  // namespace

std::string fake_uuid(std::size_t index) {
  return fmt::format("GPU-{0}{0}{0}{0}{0}{0}{0}{0}-1111-2222-3333-444444444444", index);
}

FakeMachine::FakeMachine(std::size_t num_gpus) {
  description = {{"driver", "580.65.06"},
                 {"nvml", "13.580.65.06"},
                 {"cuda", 13000},
                 {"gpus", nlohmann::json::array()},
                 {"topology", nlohmann::json::array()},
                 {"p2p", nlohmann::json::array()}};
  for (std::size_t a = 0; a < num_gpus; ++a) {
    description["gpus"].push_back(describe_gpu(a));
    std::vector<int> levels;
    for (std::size_t b = 0; b < num_gpus; ++b) levels.push_back(topology_level(a, b));
    description["topology"].push_back(levels);
    description["p2p"].push_back(std::vector<int>(num_gpus, 0));
  }
  publish();
  ::setenv("LOCKSTEP_FAKE_NVML", (folder_ / "machine.json").c_str(), 1);
  ::setenv("LOCKSTEP_LOCK_DIR", lock_folder().c_str(), 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  use_library(FAKE_NVML_LIBRARY);
  const std::string path = ::getenv("PATH");
  if (!path.starts_with(FAKE_NVIDIA_SMI)) {
    ::setenv("PATH", (FAKE_NVIDIA_SMI ":" + path).c_str(), 1);
  }
}

FakeMachine::~FakeMachine() {
  for (const char* name : {"LOCKSTEP_FAKE_NVML", "LOCKSTEP_LOCK_DIR", "LOCKSTEP_NVML_LIBRARY",
                           "CUDA_VISIBLE_DEVICES"}) {
    ::unsetenv(name);
  }
}

void FakeMachine::publish() const {
  // Renamed into place, so that a program reads the old machine or the new one.
  write_text(folder_ / "next.json", description.dump());
  std::filesystem::rename(folder_ / "next.json", folder_ / "machine.json");
}

void FakeMachine::set_processes(std::size_t index, const std::vector<int>& pids) {
  nlohmann::json processes = nlohmann::json::array();
  for (const int pid : pids) processes.push_back({{"pid", pid}, {"memory", kGib}});
  gpu(index)["processes"] = processes;
  publish();
}

void FakeMachine::use_library(const std::string& path) {
  ::setenv("LOCKSTEP_NVML_LIBRARY", path.c_str(), 1);
}

}  // namespace lockstep::testing
