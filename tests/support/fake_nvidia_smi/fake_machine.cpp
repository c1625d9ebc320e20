#include "tests/support/fake_nvidia_smi/fake_machine.h"

#include <fmt/format.h>
#include <stdlib.h>

namespace lockstep::testing {
namespace {

constexpr std::size_t kGib = std::size_t{1} << 30;
nlohmann::json describe_gpu(std::size_t index) {
  return {{"name", "NVIDIA H200"},
          {"uuid", fake_uuid(index)},
          {"pci.bus_id", fmt::format("00000000:{:02X}:00.0", 0x10 + index)},
          {"compute_cap", "9.0"},
          {"memory", {{"total", 16 * kGib}, {"used", index * kGib}, {"reserved", kGib / 2}}},
          {"utilization.gpu", index + 1},
          {"temperature.gpu", 30 + index},
          {"power.draw", 75.0 + 0.5 * static_cast<double>(index)},
          {"enforced.power.limit", 700.0},
          {"processes", nlohmann::json::array()}};
}

}  // namespace

std::string fake_uuid(std::size_t index) {
  return fmt::format("GPU-{0}{0}{0}{0}{0}{0}{0}{0}-1111-2222-3333-444444444444", index);
}

FakeMachine::FakeMachine(std::size_t num_gpus) {
  const std::vector<std::string> paths(num_gpus, "NV18");
  const std::vector<std::string> reads(num_gpus, "OK");
  description = {{"driver", "580.65.06"},
                 {"nvml", "580.65"},
                 {"cuda", "13.0"},
                 {"gpus", nlohmann::json::array()},
                 {"paths", std::vector<nlohmann::json>(num_gpus, paths)},
                 {"reads", std::vector<nlohmann::json>(num_gpus, reads)}};
  for (std::size_t i = 0; i < num_gpus; ++i) description["gpus"].push_back(describe_gpu(i));
  publish();
  ::setenv("LOCKSTEP_FAKE_GPUS", (folder_ / "machine.json").c_str(), 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::setenv("PATH", (FAKE_NVIDIA_SMI ":" + path_).c_str(), 1);
}

FakeMachine::~FakeMachine() {
  for (const char* name : {"LOCKSTEP_FAKE_GPUS", "CUDA_VISIBLE_DEVICES"}) {
    ::unsetenv(name);
  }
  ::setenv("PATH", path_.c_str(), 1);
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

void FakeMachine::hide_nvidia_smi() {
  ::setenv("PATH", "/nowhere", 1);
}

}  // namespace lockstep::testing
