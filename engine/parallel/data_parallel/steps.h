// The steps of DataParallel: scatter, replicate, parallel_apply, gather.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/core/device.h"
#include "engine/nn/module.h"
#include "engine/plan/scatter.h"

namespace lockstep::parallel {

// --- 1. scatter: a batch is cut into one shard per device (scatter_gather.cpp) ---

// Shards of x along dim, cut by plan::scatter_plan (torch.chunk): as many as the plan has parts,
// shard i on devices[i].
// Memory:   a shard along dim 0 that stays on x's device is a view of x; all others are copies.
// Gradient: gather of the shards' gradients onto x's device.
// Throws:   Error{Shape} when x has no such dim, Error{Usage} for no devices.
std::vector<Variable> scatter(const Variable& x, const std::vector<Device>& devices,
                              std::size_t dim = 0);

// The same for tensors without gradients, such as labels.
std::vector<Tensor> scatter(const Tensor& x, const std::vector<Device>& devices,
                            std::size_t dim = 0);

// --- 2. replicate: a copy of the model for each device (replicate.cpp) ---

// copies[d][i] is variables[i] on devices[d]. copies[0] shares the originals' memory; the others
// are copies: on the CPU made at the same time on their devices' workers, on CUDA enqueued by the
// caller.
// Gradient: the sum over devices, added in the order of the devices, on devices[0], when all
//           replicas have run backward.
// REQUIRES: all variables on devices[0], devices not empty.
// Source:   torch/nn/parallel/comm.py, broadcast_coalesced and reduce_add_coalesced.
std::vector<std::vector<Variable>> broadcast_coalesced(const std::vector<Variable>& variables,
                                                       const std::vector<Device>& devices);

// replicas[d] is a structural copy of the module whose parameters are on devices[d].
// Parameters: broadcast from devices[0] (broadcast_coalesced); backward sums their gradients there,
//             in the order of the devices. Replica 0 shares the original's memory.
// Buffers:    copied without gradient. Replica 0's changes stay, those of others are lost with the
//             replica.
// Members:    everything else in a module is copied with it; a plain member that forward() changes
//             is lost. Treat members as read-only in forward().
// Throws:     Error{Device} if a parameter or buffer is not on devices[0]: "module must have its
//             parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on
//             device cuda:1 ...".
std::vector<std::shared_ptr<nn::Module>> replicate(const nn::Module& module,
                                                   const std::vector<Device>& devices);

// Only checks, with the same error.
void require_on_device(const nn::Module& module, Device device);

// --- 3. parallel apply: every replica on its shard, all at the same time (parallel_apply.cpp) ---

// Calls task(i) for every device at the same time, each on its device's line of work: the caller's
// thread for device 0 of the list, the worker of devices[i] for the others. If a worker has not
// begun its task when the caller is done with its own, the caller's thread runs it, so that calls
// inside calls never wait in a circle. With Issue::by_caller (thread_context.h) the caller's thread
// runs them all, one after the other. Returns when all are done. The caller's ThreadContext (rank,
// grad mode, step) goes with them; trace spans of task i go to the track of its device.
// Throws: the error of the lowest i, with its number and device in front: "replica 1 on device
//         cpu:1: ...". The others still run to their end.
void for_each_device(const std::vector<Device>& devices,
                     const std::function<void(std::size_t)>& task);

// outputs[i] = replicas[i](inputs[i]), each on the line of work of its input's device: one thread
// per replica, all joined. Grad mode, step and rank carry over, and so does the number of the
// shard's first row, so that dropout masks do not depend on the sharding.
// Throws: Error{Usage} when the numbers of replicas and inputs differ; else the error of the lowest
//         replica with its number and device: "[parallel_apply] replica 1 on device cpu:1: ...".
std::vector<Variable> parallel_apply(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                                     const std::vector<Variable>& inputs);

// --- 4. gather: the replicas' outputs together on one device (scatter_gather.cpp) ---

// Concatenates along dim onto a device. Scalars become a vector of length n, in order.
// Gradient: scatter of y's gradient, each part to its input's device.
// Throws:   Error{Usage} for no inputs; Error{Shape} showing both shapes when sizes differ outside
//           dim; Error{DType} when dtypes differ.
Variable gather(const std::vector<Variable>& parts, Device output_device, std::size_t dim = 0);

// --- BatchNormRows::all (sync_batch_norm.cpp) ---

// Lets the batch norms of the replicas of one forward pass share their statistics: replica i gets
// groups[i].
// Throws Error{State} if one thread issues the work of all devices: it cannot wait for itself.
void sync_batch_norm(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                     const std::vector<std::shared_ptr<StatisticsExchange>>& groups);
// Groups for so many replicas, which meet as threads.
std::vector<std::shared_ptr<StatisticsExchange>> make_statistics_exchanges(
    std::size_t num_replicas);

}  // namespace lockstep::parallel
