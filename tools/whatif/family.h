// Nets that are known by their family and sizes, as in "llama:32-32-4096-4096": their parameters,
// their operations, and what they keep in memory (predict/memory.h).
#pragma once

#include <string>

#include "simulate/predict/memory.h"
#include "tools/whatif/net.h"

namespace lockstep::tools {

// The net that a family names; also the known nets of find_net() that belong to one ("gpt2").
//   resnet50   224 x 224 images; each of the convolutions' 11.1 M outputs of an image (Radosavovic
//              et al., "Designing Network Design Spaces", CVPR 2020) is kept twice: before and
//              after its batch norm
//   vit-b16    224 x 224 images, no dropout
//   bert[:L-H-C-T], gpt:L-H-C-T
//              layers, heads, channels and tokens of a sequence; bert alone is the base model
//   llama:L-H-C-T
//              RMSNorm, a SwiGLU of 8/3 C channels in multiples of 256, no dropout, 32,000 tokens.
//              Korthikanti's count for its layers: 8 + 4 * (8/3) values a token and channel
// gpt and llama also keep each token's logits, and their softmax in float32.
// Throws Error{Usage} that lists the families.
Net find_family(const std::string& text, predict::Recompute recompute);

// "resnet50, vit-b16, ...".
std::string known_family_names();

}  // namespace lockstep::tools
