// Times one CPU device, alone and with others at work: the half of a calibration that needs no
// communication. REQUIRES: the threads of each device are set (runtime/logical_device.h).
#pragma once

#include "tools/calibration/measurement.h"

namespace lockstep::tools {

// These time cpu:0.
void measure_layers(Measurement& measurement);  // forward, backward and weights_backward
void measure_batches(Measurement& measurement);
void measure_losses(Measurement& measurement);

// These time 1 ... num_devices devices that work at the same time.
void measure_traffic(Measurement& measurement);
void measure_layers_beside(Measurement& measurement);

}  // namespace lockstep::tools
