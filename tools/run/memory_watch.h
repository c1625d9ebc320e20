// The most memory that a run's tensors hold on its devices, in its steps and beside them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/core/device.h"

namespace lockstep::tools {

// Counts from here on, and beyond what earlier runs hold.
class MemoryWatch {
 public:
  explicit MemoryWatch(const std::vector<Device>& devices);

  // By place in the devices.
  std::size_t peak_of_steps(std::size_t device) const;
  std::size_t peak_beside_steps(std::size_t device) const;  // 0: nothing was beside them

  // From here on nothing that these devices do is a step. Threads may end those of their own.
  void end_steps(const std::vector<Device>& devices);

  // While one lives, its devices do what is no step: test rows, checkpoints, copies of the weights.
  // Threads may have one each, for devices of their own.
  class BesideSteps {
   public:
    // watch: nullptr: no one does.
    BesideSteps(MemoryWatch* watch, const std::vector<Device>& devices);
    ~BesideSteps();
    BesideSteps(const BesideSteps&) = delete;
    BesideSteps& operator=(const BesideSteps&) = delete;

   private:
    struct Paused {
      std::size_t place;  // in the watch
      std::size_t peak;   // of the steps so far
    };
    MemoryWatch* watch_;
    std::vector<Paused> paused_;
  };

 private:
  struct Watched {
    Device device;
    std::size_t held_before = 0;
    std::size_t peak_beside_steps = 0;
    std::optional<std::size_t> ended_with = {};  // the steps' peak
  };

  static std::size_t peak_beyond(const Watched& watched);

  std::vector<Watched> watched_;
};

}  // namespace lockstep::tools
