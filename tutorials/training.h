// A network's training steps on several devices of the CPU, for the tutorials that look at steps
// and not at rows: the rows are random, and the same in each step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/data/labelled_rows.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/tensor/tensor.h"
#include "simulate/predict/step.h"

namespace lockstep::tutorial {

// A network and how it is trained, by SGD with momentum.
struct Training {
  std::string model;    // "mlp:64-256-10"
  int batch = 0;        // rows of a step, over all devices
  int num_devices = 1;  // the first ones; under DDP they divide the batch
  predict::Strategy strategy = predict::Strategy::ddp;  // or data_parallel; one device: neither
  parallel::DdpOptions ddp = {};
};

bool is_ddp(const Training& training);

// The rows of each rank on its device; for DataParallel all of them, on the first device.
// Throws Error{Usage} for a batch that DDP's ranks cannot share equally.
std::vector<data::LabelledTensors> make_rows(const Training& training);

// Trains on these rows and returns the first device's weights. Each step is a span of category step
// of its device. The first rank calls after_step.
std::vector<Tensor> train(const Training& training, const std::vector<data::LabelledTensors>& rows,
                          int num_steps, const std::function<void()>& after_step = {});

// Makes a training step, which act_out() (acted.h) then finds by its number, from 0, and times on
// the device of `on`.
void record_step(int number, const Tensor& on, const std::function<void()>& step);

}  // namespace lockstep::tutorial
