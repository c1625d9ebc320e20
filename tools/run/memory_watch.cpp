#include "tools/run/memory_watch.h"

#include <algorithm>

#include "engine/runtime/logical_device.h"

namespace lockstep::tools {
namespace {

runtime::MemoryPool& memory_of(Device device) {
  return runtime::logical_device(device).memory();
}

}  // namespace

MemoryWatch::MemoryWatch(const std::vector<Device>& devices) {
  for (const Device device : devices) {
    watched_.push_back({device, memory_of(device).statistics().current_bytes});
    memory_of(device).reset_peak();
  }
}

std::size_t MemoryWatch::peak_of_steps(std::size_t device) const {
  const Watched& watched = watched_.at(device);
  return watched.ended_with.value_or(peak_beyond(watched));
}

std::size_t MemoryWatch::peak_beside_steps(std::size_t device) const {
  const Watched& watched = watched_.at(device);
  return std::max(watched.peak_beside_steps, watched.ended_with ? peak_beyond(watched) : 0);
}

void MemoryWatch::end_steps(const std::vector<Device>& devices) {
  for (Watched& watched : watched_) {
    if (std::ranges::find(devices, watched.device) == devices.end()) continue;
    watched.ended_with = peak_beyond(watched);
    memory_of(watched.device).reset_peak();
  }
}

std::size_t MemoryWatch::peak_beyond(const Watched& watched) {
  const std::size_t peak = memory_of(watched.device).statistics().peak_bytes;
  return peak - std::min(peak, watched.held_before);
}

MemoryWatch::BesideSteps::BesideSteps(MemoryWatch* watch, const std::vector<Device>& devices)
    : watch_(watch) {
  for (std::size_t i = 0; watch != nullptr && i < watch->watched_.size(); ++i) {
    const Device device = watch->watched_[i].device;
    if (std::ranges::find(devices, device) == devices.end()) continue;
    paused_.push_back({i, memory_of(device).statistics().peak_bytes});
    memory_of(device).reset_peak();
  }
}

MemoryWatch::BesideSteps::~BesideSteps() {
  for (const auto& [place, peak] : paused_) {
    Watched& watched = watch_->watched_[place];
    watched.peak_beside_steps = std::max(watched.peak_beside_steps, peak_beyond(watched));
    memory_of(watched.device).reset_peak(peak);
  }
}

}  // namespace lockstep::tools
