// Stage 3 of DataParallel: run the replicas at the same time.
#pragma once

#include <functional>
#include <vector>

#include "engine/core/device.h"

namespace lockstep::parallel {

// Calls task(i) for every device at the same time, each on its device's line of work: the caller's
// thread for device 0 of the list, the worker of devices[i] for the others. A task whose worker has
// not begun it when the caller is done with its own runs on the caller's thread, so calls inside
// calls never wait in a circle. With Issue::by_caller (thread_context.h) the caller's thread runs
// them all, one after the other. Returns when all are done. The caller's ThreadContext (rank, grad
// mode, step) goes with them; trace spans of task i go to the track of its device. Throws: the
// error of the lowest i, with its number and device in front:
//         "replica 1 on device cpu:1: ...". The others still run to their end.
void for_each_device(const std::vector<Device>& devices,
                     const std::function<void(std::size_t)>& task);

}  // namespace lockstep::parallel
