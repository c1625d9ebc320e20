// Describes a machine for fake_nvml and makes it the one that NVML shows.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

// While it lives, the environment of this process and of those it starts leads to the fake library,
// the fake nvidia-smi and this machine; it starts without CUDA_VISIBLE_DEVICES, and with a lock
// folder of its own.
class FakeMachine {
 public:
  // GPUs "NVIDIA H200" with the UUIDs GPU-00000000-..., GPU-11111111-...: 1 % to n % utilised, 16
  // GiB in all of which i GiB are used, without processes; 18 links each to switches, PIX within
  // pairs, NODE within fours, else SYS.
  explicit FakeMachine(std::size_t num_gpus);
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  // Change it, then publish(). Fields: see fake_nvml.cpp.
  nlohmann::json description;
  nlohmann::json& gpu(std::size_t index) { return description["gpus"][index]; }
  void publish() const;

  // Processes on a GPU, each with 1 GiB; and those who look at it, at once.
  void set_processes(std::size_t index, const std::vector<int>& pids);

  // Lets the programs load another library, such as one that is not there.
  static void use_library(const std::string& path);

  std::filesystem::path lock_folder() const { return folder_ / "locks"; }

 private:
  TempFolder folder_;
};

std::string fake_uuid(std::size_t index);

}  // namespace lockstep::testing
