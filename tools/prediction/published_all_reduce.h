// A published table of all-reduces: constants are fitted on every other row of a hardware, and the
// rows between are predicted.
//
// NCCL's rows: seconds = x / B + a * (bytes / MiB)^p, x the bytes that the algorithm moves (ring:
// 2(n-1)/n * bytes; NVLS: bytes). B, a and p are fitted per algorithm by least squares of the
// relative error; of fewer than three rows B and a (p = 0.2), of one row B alone, with the latency
// of NCCL's model (simulate/predict/all_reduce_cost.h). The power law stands for LL, LL128 and
// Simple taking over from each other: the exposed latency grows slowly with the size. Rows of a
// bandwidth without bytes: the preset's links, scaled. "reduce+broadcast on devices" and "through
// the CPU": the strategies device_all_reduce and cpu_reduce without an update, with the links, and
// the host's speed, scaled; through the CPU the copies and the sums of many arrays go on at the
// same time. Rows of a single copy (GBps): the preset's link, nothing fitted.
#pragma once

#include <string>
#include <vector>

#include "tools/prediction/csv_table.h"

namespace lockstep::tools {

struct AllReducePrediction {
  std::string hardware, interconnect, algorithm, unit;
  std::size_t gpus = 1;
  double bytes = 0;  // 0: the table gives none
  double measured = 0;
  double predicted = 0;
  std::string topology = {};

  double error() const { return (predicted - measured) / measured; }
};

// The first row of a hardware and interconnect is fitted, the second predicted, and so on; a lone
// row is predicted from its preset. Columns hardware, interconnect, algorithm, gpus, bytes, value,
// unit. Throws Error{Io} that names file and line.
std::vector<AllReducePrediction> predict_all_reduces(const CsvTable& table);

}  // namespace lockstep::tools
