// The topologies that are built in: the files of simulate/predict/topologies, as text.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::predict {

struct Preset {
  std::string_view name;
  std::string_view text;
};

// In alphabetical order.
std::span<const Preset> presets();

}  // namespace lockstep::predict
