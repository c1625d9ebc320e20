// How far off predictions were where a published table could be compared: the record that an
// answer's band comes from.
//
// Classes are by the way that gradients take between the devices, for it decides how good a
// prediction is, and by the strategy where that does. A class's rows are those of
// tests/docs/published of which nothing was fitted (docs/prediction-record.md, "Classes and
// bands"); check_prediction_test.py holds the figures to them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "simulate/predict/network.h"
#include "simulate/predict/step.h"

namespace lockstep::tools {

struct Record {
  std::string_view name;  // of the class, such as "NVLink"
  std::size_t num_rows = 0;
  double mean_error = 0;  // of |predicted - measured| / measured
  double largest_error = 0;
  // Nine rows of ten were at most so many times slower, or faster, than predicted.
  double factor = 1;
};

// The worst way between two neighbours of the first devices' ring.
enum class Way { nvlink, pcie, host_memory, network, cpu_memory };
Way way_of(predict::Network& network, std::size_t num_devices);

// The class of a step on the first devices. Empty where no published row is like it: other
// strategies than those of published tables, links of the CPU's memory, zero2 and zero3 over slower
// networks than theirs.
std::optional<Record> record_of(predict::Network& network, predict::Strategy strategy,
                                std::size_t num_devices);

// The record of a step on one device whose kernels are priced by the device's data sheet.
const Record& record_of_computed_kernels();

// "through host memory: 19 rows like this one: mean 3.1 %, largest 9.0 %".
std::string record_text(const Record& record);

}  // namespace lockstep::tools
