// For 00_whole_engine.cpp, the engine once more in one file: the digits and the random numbers that
// both start from, and the weights that the engine ends with. Like that file, this header includes
// nothing of the engine.
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

// Both train: Linear(64, hidden), ReLU, Linear(hidden, 10), by SGD with momentum.
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

// Drawn from the seed.
Weights initial_weights(const Settings& settings, std::uint64_t seed);
// The numbers of the rows to train on, shuffled anew for each epoch.
std::vector<std::size_t> epoch_order(int epoch);

// Trains through the engine in float64, by Ddp with one rank per device, from the initial weights
// of seed 0. Returns the weights after the last step.
Weights train_through_engine(const Settings& settings, int num_devices);

// Reads the flags, prints the question, runs the body. Returns the exit code.
int run_with_flags(int argc, char** argv, std::string_view question,
                   const std::function<void(const Settings&)>& body);

}  // namespace lockstep::tutorial
