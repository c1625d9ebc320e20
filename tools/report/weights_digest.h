// One line that stands for all weights: equal digests mean equal bits.
#pragma once

#include <string>

#include "engine/nn/state_dict.h"

namespace lockstep::tools {

// SHA-256, in hexadecimal, of all tensors' bytes in the order of their names.
std::string weights_digest(const nn::StateDict& weights);

}  // namespace lockstep::tools
