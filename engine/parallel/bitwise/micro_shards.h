// The bitwise mode: gradients whose bits do not depend on the number of devices.
//
// Every global batch is cut into 8 micro-shards, for any number of devices (1, 2, 4 or 8). Each is
// computed on its own, and gradients are added in one fixed tree, first inside a device, then
// between devices (plan/micro_shards.h). Losses are sums; the caller scales once at the end.
//
// On GPUs the mode takes products that are not tuned (kernels/matmul_precision.h): micro-shards
// have the same sizes for every number of devices, so the library's first guess is the same
// algorithm everywhere, in every run on GPUs of one model.
#pragma once

#include <functional>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/nn/module.h"
#include "engine/plan/micro_shards.h"

namespace lockstep::parallel {

// The sum (not the mean) of a loss over the rows of a micro-shard.
using SumLoss = std::function<Variable(const Variable& output, const Tensor& labels)>;

struct MicroShardResult {
  // Gradients of the trained parameters, in their order, summed over the device's micro-shards.
  std::vector<Tensor> gradients;
  double loss_sum = 0;
};

// Runs the micro-shards of one device on `module`, whose parameters are leaves on that device.
// x [rows, ...] and labels [rows] hold rows_of_device(device) of the batch, on that device.
// Parameters are left without a gradient.
MicroShardResult run_micro_shards(nn::Module& module, const SumLoss& loss, const Tensor& x,
                                  const Tensor& labels, const plan::MicroShardPlan& plan,
                                  std::size_t device);

// For one process with 1, 2, 4 or 8 devices and parameters on devices[0]: leaves the sum of all
// gradients in the parameters' grad() and returns the summed loss. x and labels hold the whole
// batch. Buffers that devices other than the first write are lost, as in replicate().
double bitwise_data_parallel(nn::Module& module, const std::vector<Device>& devices,
                             const SumLoss& loss, const Tensor& x, const Tensor& labels);

// For one of 1, 2, 4 or 8 ranks: all-reduces the gradients that run_micro_shards left on each rank,
// in the tree's order (plan halving-doubling), into the parameters' grad(). Returns the summed
// loss.
double bitwise_all_reduce(nn::Module& module, const MicroShardResult& mine,
                          comm::Communicator& communicator);

}  // namespace lockstep::parallel
