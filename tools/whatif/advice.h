// What a prediction comes to: how long an epoch takes, what would shorten it, how many devices a
// wish needs, and how to measure the step that it all starts from.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/whatif/memory_rows.h"
#include "tools/whatif/predicted_rows.h"

namespace lockstep::tools {

// "650 ms", "12.3 s", "42 min", "5.1 h".
std::string duration_text(double seconds);

// "an epoch of 1281167 samples takes 40 min on 1 GPU, 21 min (20 min to 23 min) on 2 GPUs".
// rows: first a single device, then those of one strategy.
std::string epoch_sentence(const PredictionTask& task, std::span<const PredictedRow> rows);

// Changes that would save at least a hundredth of an epoch of the row, the best first: a larger
// batch, accumulation, bf16 gradients, peer access, NVLink; then ZeRO's memory. Each with what it
// would give. Larger batches change the training, not only its speed; that is said, too.
std::vector<std::string> advice_lines(const PredictionTask& task, const PredictedRow& row,
                                      StepMemory& memory);

// What --find asks for: "epoch < 1h", "step < 200ms".
struct Wish {
  std::string text;
  enum class Quantity { epoch, step } quantity = Quantity::epoch;
  double seconds = 0;
};
// Throws Error{Usage} that shows the form.
Wish parse_wish(const std::string& text);

// The smallest number of the topology's devices, and the first of the task's modes, that fulfil
// the wish and fit into memory as far as that is known; or that none does, with the fastest.
std::string find_sentence(PredictionTask task, const Wish& wish, StepMemory& memory);

// A PyTorch program of ten lines that measures --step.
std::string_view how_to_measure();

}  // namespace lockstep::tools
