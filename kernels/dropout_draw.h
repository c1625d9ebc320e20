// Dropout's mask, which is the same on every backend. It only depends on seed, step, layer and the
// element's place in the global batch:
//   key     = words 0 and 1 (low, high) of philox({step low, step high, kDropoutKeys, 0}, seed)
//   words   = philox({row low, row high, column / 4, layer}, key), row = first_row + r
//   dropped = words[column % 4] < floor(probability * 2^32)
#pragma once

#include <cstdint>
#include <optional>

#include "engine/core/rng.h"
#include "kernels/calls.h"

namespace lockstep::kernels {

inline constexpr std::uint32_t kDropoutKeys = 0x64726f70u;  // "drop", unlike other uses

struct DropoutDraw {
  std::uint64_t key = 0;           // this call's Philox key; unset with step_on_device
  std::uint32_t last_dropped = 0;  // the largest word that drops its element
  double factor = 0;               // multiplies kept elements
};

// Empty if no element is dropped.
inline std::optional<DropoutDraw> dropout_draw(const DropoutMask& mask) {
  const auto threshold = static_cast<std::uint64_t>(mask.probability * 0x1p32);
  if (threshold == 0) return std::nullopt;
  const PhiloxBlock block = philox({static_cast<std::uint32_t>(mask.step),
                                    static_cast<std::uint32_t>(mask.step >> 32), kDropoutKeys, 0},
                                   mask.seed);
  return DropoutDraw{.key = static_cast<std::uint64_t>(block[1]) << 32 | block[0],
                     .last_dropped = static_cast<std::uint32_t>(threshold - 1),
                     .factor = mask.probability < 1 ? 1 / (1 - mask.probability) : 0};
}

}  // namespace lockstep::kernels
