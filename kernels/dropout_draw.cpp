#include "kernels/dropout_draw.h"

#include "engine/core/rng.h"

namespace lockstep::kernels {
std::optional<DropoutDraw> dropout_draw(const DropoutMask& mask) {
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
