// Stage 2 of DataParallel: one copy of the model per device.
#pragma once

#include <memory>
#include <vector>

#include "engine/nn/module.h"

namespace lockstep::parallel {

// replicas[d] is a structural copy of the module whose parameters are on devices[d].
// Parameters: broadcast from devices[0] (broadcast_coalesced); backward sums their gradients there,
//             in the order of the devices. Replica 0 shares the original's memory.
// Buffers:    copied without gradient. What replica 0 writes into one stays, what others write is
//             lost with the replica.
// Members:    everything else in a module is copied with it; what a forward() writes into a plain
//             member is lost. Treat members as read-only in forward().
// Throws:     Error{Device} when a parameter or buffer is not on devices[0]:
//             "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but
//             found one of them on device cuda:1 ...".
std::vector<std::shared_ptr<nn::Module>> replicate(const nn::Module& module,
                                                   const std::vector<Device>& devices);

// A module of its own on a device: leaves with the values of the originals, and no gradients.
// Memory:  on another device copies; on its own device values and buffers are shared.
std::shared_ptr<nn::Module> copy_module(const nn::Module& module, Device device);

// The check alone.
void require_on_device(const nn::Module& module, Device device);

}  // namespace lockstep::parallel
