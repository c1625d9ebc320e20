// Describes a machine and makes it the one that nvidia-smi shows.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

// While it lives, the environment of this process and of those it starts leads to the nvidia-smi of
// this folder and to this machine; it starts without CUDA_VISIBLE_DEVICES.
class FakeMachine {
 public:
  // GPUs "NVIDIA H200" with the UUIDs GPU-00000000-..., GPU-11111111-...: 1 % to n % utilised, 16
  // GiB in all of which i GiB are used, without processes; 18 links between any two.
  explicit FakeMachine(std::size_t num_gpus);
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  // Change it, then publish(). Fields: see nvidia-smi in this folder.
  nlohmann::json description;
  nlohmann::json& gpu(std::size_t index) { return description["gpus"][index]; }
  void publish() const;

  // Processes on a GPU, each with 1 GiB; and those who look at it, at once.
  void set_processes(std::size_t index, const std::vector<int>& pids);

  // Makes PATH a folder without nvidia-smi.
  static void hide_nvidia_smi();

 private:
  TempFolder folder_;
  std::string path_ = std::getenv("PATH");  // as it was before
};

std::string fake_uuid(std::size_t index);

}  // namespace lockstep::testing
