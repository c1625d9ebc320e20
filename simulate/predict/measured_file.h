// The part of a topology's file that `lockstep calibrate` measured: docs/prediction.md describes
// it.
#pragma once

#include <memory>

#include "engine/core/json_file.h"
#include "simulate/predict/topology.h"

namespace lockstep::predict {

// The object "measured" of a machine whose devices and links are known.
// Throws Error{Io} that names file, line and field for sizes that do not ascend, times that are
// missing, and devices that the machine does not have.
std::shared_ptr<const MeasuredMachine> read_measured(const JsonFields& fields,
                                                     const Topology& machine);

}  // namespace lockstep::predict
