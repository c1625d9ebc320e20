// What the kernels of a training step compute and move: counted, not measured, so a machine without
// the GPU, or without the time, can say it. And how fast a card could be at most, by its data
// sheet: the "roofline" of Williams, Waterman and Patterson (2009).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/matmul_precision.h"
#include "tools/run/sample_step.h"

namespace lockstep::tools {

struct CardSpeed {
  std::string name;
  double flops_per_second = 0;  // of products, in the precision of the step
  double bytes_per_second = 0;
};

// By the card's data sheet. Throws Error{Usage} for `flag` if it is not known.
CardSpeed speed_of(std::string_view flag, const std::string& card,
                   kernels::MatmulPrecision precision);

// Of all calls of a kernel in a step. A product's operands count once for each call, though several
// products may share them; a convolution reads its images, not patches of them. Attention reads and
// writes no scores, and computes each product once.
struct KernelWork {
  std::size_t num_calls = 0;
  double flops = 0;  // multiplications and additions of matrix products
  double bytes = 0;  // read and written
  // The sum of the calls' least times: of the products at the card's peak, or of the bytes at its
  // bandwidth, whichever is longer. 0 without a card.
  double least_seconds = 0;

  KernelWork& operator+=(const KernelWork& more);
};

// Key: the kernel's name, as in "linear backward". No kernel runs, so the model stays as it is; but
// in a step that has not run before the optimizer's state is then arbitrary.
std::map<std::string, KernelWork> count_work(SampleStep& step, Device device,
                                             const std::optional<CardSpeed>& card = {});
KernelWork total(const std::map<std::string, KernelWork>& work);

// A table with one line per kernel, the one with most bytes first, and what follows for the card.
std::string work_table(const std::map<std::string, KernelWork>& work,
                       const std::optional<CardSpeed>& card);

}  // namespace lockstep::tools
