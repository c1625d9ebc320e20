// A network's training steps by several devices of the CPU, for the tutorials that look at the
// steps and not at the rows: random ones, the same in each step.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/data/labelled_rows.h"
#include "engine/parallel/ddp/grad_reducer.h"
#include "engine/tensor/tensor.h"
#include "simulate/predict/step.h"

namespace lockstep::tutorial {

// What is trained, and how. By SGD with momentum.
struct Training {
  std::string model;            // "mlp:64-256-10"
  std::size_t batch = 0;        // rows of a step, of all devices together
  std::size_t num_devices = 1;  // the first ones; of DDP they divide the batch
  predict::Strategy strategy = predict::Strategy::ddp;  // or data_parallel; one device: neither
  parallel::GradReducerOptions reducer = {};            // of DDP
};

bool is_ddp(const Training& training);

// The rows of each rank on its device; of DataParallel all of them, on the first device.
// Throws Error{Usage} for a batch that DDP's ranks cannot share equally.
std::vector<data::LabelledTensors> make_rows(const Training& training);

// Trains on these rows and returns the first device's weights. Each step is a span of category step
// of its device. The first rank calls after_step.
std::vector<Tensor> train(const Training& training, const std::vector<data::LabelledTensors>& rows,
                          std::size_t num_steps, const std::function<void()>& after_step = {});

}  // namespace lockstep::tutorial
