// For 00_whole_engine.cpp, which includes nothing of the engine: this header doesn't either. It has
// the flags, the digits, the numbers that both engines start from, and the weights that this
// repository's engine ends with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tutorials/output.h"

namespace lockstep::tutorial {

// Handwritten digits: 64 pixels from 0 to 1 each, one row behind the other, and their labels.
struct Digits {
  std::vector<double> pixels;
  std::vector<int> labels;  // 0 to 9, one per row
};

// The 1,500 digits that train.
Digits load_digits();

// A training: Linear(64, hidden), ReLU, Linear(hidden, 10), by SGD with momentum.
struct Settings {
  int hidden = 128;
  int epochs = 10;
  int batch_size = 64;  // rows of a step, over all devices
  double learning_rate = 0.1;
  double momentum = 0.9;
  double bucket_kib = 8;  // a DDP bucket is full when it holds so many KiB
};

// The values of the parameters: weight and bias of the first layer, then of the second.
using Weights = std::vector<std::vector<double>>;

// Drawn from the seed, and the same for both engines.
Weights initial_weights(const Settings& settings, std::uint64_t seed);
// The numbers of the rows to train on, shuffled anew for each epoch.
std::vector<std::size_t> epoch_order(int epoch);

// The same training through the engine, in float64, by Ddp with one rank per device. Begins with
// the initial weights of seed 0, and returns the last ones.
Weights train_through_engine(const Settings& settings, int num_devices);

// Reads the flags, prints the question, runs the body. Returns the exit code.
int run_with_flags(int argc, char** argv, std::string_view question,
                   const std::function<void(const Settings&)>& body);

}  // namespace lockstep::tutorial
