// These functions count what the kernels of a training step compute and move. They run no kernel,
// so a machine without the GPU, or without the time, can say it. A card's data sheet then says how
// fast the step could be at most: the "roofline" of Williams, Waterman and Patterson (2009).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "tools/run/data_sheet.h"
#include "tools/run/sample_step.h"

namespace lockstep::tools {

// It sums all calls of a kernel in a step. A product's operands count once for each call, though
// several products may share them; a convolution reads its images, not patches of them. Attention
// reads and writes no scores, and computes each product once.
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
