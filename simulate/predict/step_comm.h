// What the strategies of step.cpp move, apart from all-reduces.
#pragma once

#include <cstddef>
#include <vector>

#include "simulate/predict/network.h"

namespace lockstep::predict {

struct Exchange {
  double reduce_seconds = 0;
  double broadcast_seconds = 0;
  double bytes_of_busiest = 0;  // sent by the device that sends most
};

// Each tensor is summed on one device and sent back from there. Tensors go, largest first, to the
// device that has the least so far; so a tensor that is most of the model is all on one link.
// Source: CommDevice of MXNet's src/kvstore/comm.h.
Exchange reduce_on_devices(Network& network, std::size_t num_devices,
                           std::vector<std::size_t> tensor_bytes);

// DataParallel: all devices send their gradients to device 0, which adds them up with a kernel for
// each tensor, once that has arrived. Parameters go back with the next step's rows, not here.
Exchange reduce_on_first(Network& network, std::size_t num_devices,
                         const std::vector<std::size_t>& tensor_bytes);

// Every device sends num_bytes to its host's memory, or receives them from there.
double to_host_seconds(Network& network, std::size_t num_devices, double num_bytes);
double from_host_seconds(Network& network, std::size_t num_devices, double num_bytes);

// The host, at so many bytes of memory traffic a second, adds n gradients up: it reads them and
// writes the sum, whose lines it first reads.
double host_sum_seconds(double host_bytes_per_second, std::size_t num_devices, double num_bytes);

// And applies it: SGD with momentum as two passes, each of which reads three arrays and writes one:
// nine times the bytes, with the lines that are read before they are written.
double host_update_seconds(double host_bytes_per_second, double num_bytes);

}  // namespace lockstep::predict
