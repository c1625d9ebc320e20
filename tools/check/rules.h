// The rules of training, written down once more from their sources, in float64, for the checks of a
// run. They share no code with the engine, so a mistake that one device and all ranks have in
// common is found, too. Only the plain structs in which options are passed are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/run/task.h"

namespace lockstep::tools::rules {

// The learning rate of a step, counted from 0.
// Source: PyTorch's StepLR, CosineAnnealingLR and, for the warm-up, LinearLR.
double learning_rate(const OptimizerSettings& settings, std::size_t step);

// The rows of an epoch in their order; of a text, the tokens where its windows begin.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox4x32-10);
// Durstenfeld, "Algorithm 235: random permutation", 1964. Its random numbers are those of the key
// seed + epoch, two 32-bit words each, the higher one first, and those that would favour small
// results are drawn again.
std::vector<std::size_t> epoch_order(const TrainingTask& task, std::uint64_t epoch);

// The weight decay of a parameter; where groups are usual, vectors do not decay.
// Source: PyTorch's param_groups as nanoGPT sets them.
double weight_decay(const OptimizerSettings& settings, const Shape& parameter);

// The factor of all gradients, from their norm as one long vector.
// Source: PyTorch's clip_grad_norm_.
double clip_factor(double norm, double max_norm);

// A sum, and the sum of its terms' absolute values, which bounds its rounding error.
struct Sum {
  double value = 0;
  double size = 0;
};

// A value that a run holds in this type. It counts as at least so large that a subnormal number may
// be taken for zero (kernels/cpu/optimizer.cpp).
Sum held(double value, DType dtype);

// One element of a parameter: its weight, and what the optimizer keeps for it, SGD's momentum or
// AdamW's two moments, zero before the first step.
struct Element {
  Sum weight;
  Sum kept[2];
};

struct Step {
  std::size_t number = 0;  // counted from 0
  double learning_rate = 0;
  double weight_decay = 0;  // the parameter's
  DType dtype = DType::float32;
};

// The element after a step.
// Source: the formulas on PyTorch's pages of torch.optim.SGD (without dampening) and
// torch.optim.AdamW (default betas and eps).
Element updated(const OptimizerSettings& settings, const Step& step, const Element& before,
                const Sum& gradient);

// True if a value that was computed in this type is the expected one, up to eight roundings of its
// terms. Beyond the range of the type every value counts as right.
// Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 3.1.
bool is_rounded(double found, const Sum& expected, DType dtype);

}  // namespace lockstep::tools::rules
