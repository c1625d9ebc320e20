// Batch norm over the rows of all replicas, so that training on several devices equals that on one.
//
// Without it each replica normalises by the statistics of its own rows, as PyTorch does too. With
// it a layer all-gathers each feature's mean, sum of squared deviations and number of rows in the
// forward pass, and all-reduces two sums per feature in the backward pass: all float64, so only
// the order of additions differs from one device's. Shards may be uneven, even empty.
//   Cost: an all-gather and an all-reduce of 8 * (2 * features + 1) bytes for each layer and step.
//   Source: torch/nn/modules/_functions.py, SyncBatchNorm.
//
//   DDP:           sync_batch_norm(*model, communicator); Ddp ddp(model, communicator);
//   DataParallel:  DataParallel(model, {.devices = devices, .batch_norm = BatchNormRows::all});
#pragma once

#include <cstddef>

#include "engine/autograd/ops/ops.h"
#include "engine/comm/communicator.h"
#include "engine/nn/module.h"

namespace lockstep::parallel {

using lockstep::BatchNormRows;

// Lets the batch norms of a module share their statistics with those of the other ranks, which must
// do the same. Returns the number of batch norms.
// REQUIRES: the communicator outlives the module's use. Its calls are made in program order with
// the rank's other calls, so all ranks must run the same layers.
std::size_t sync_batch_norm(nn::Module& module, comm::Communicator& communicator);

}  // namespace lockstep::parallel
