// What one device of the CPU takes by itself, and beside others: the half of a calibration that
// needs no communication.
#pragma once

#include <cstddef>

#include "simulate/predict/measured_machine.h"
#include "tools/calibration/care.h"

namespace lockstep::tools {

// Each times cpu:0, whose threads are set (runtime/logical_device.h).
void measure_layers(predict::MeasuredMachine& measured, Care care);  // all three grids
void measure_batches(predict::MeasuredMachine& measured);
void measure_losses(predict::MeasuredMachine& measured);  // forward and backward

// With 1 ... num_devices devices at work.
void measure_traffic(std::size_t num_devices, predict::MeasuredMachine& measured, Care care);
void measure_layers_beside(std::size_t num_devices, predict::MeasuredMachine& measured, Care care);

}  // namespace lockstep::tools
