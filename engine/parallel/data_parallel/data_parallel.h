// DataParallel: one process, one batch, several devices.
//
//   batch -> scatter -> replicate -> parallel_apply -> gather -> output on one device
//
// Each step is a function in steps.h. Gradients are summed, not averaged: the loss is
// computed from the gathered output, so it already belongs to the whole batch.
// Source: torch/nn/parallel/data_parallel.py.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/module.h"

namespace lockstep::parallel {

struct DataParallelOptions {
  // Replicas run on these, in this order; the first holds the parameters. Empty: all visible
  // devices of the parameters' type (for the CPU, which has devices on demand: one per core).
  std::vector<Device> devices;
  std::optional<Device> output_device = {};  // default: devices[0]
  std::size_t dim = 0;                       // dimension that is cut, and joined in the output
  // For training. own: as in PyTorch's DataParallel. all: see sync_batch_norm.h.
  BatchNormRows batch_norm = BatchNormRows::own;
};

// Checks the options for a module. Throws Error{Usage} for a module that is already wrapped,
// Error{Device} for devices that do not exist, appear twice, or have different types. Warns if the
// slowest device has less than 75 % of the fastest one's memory or threads.
DataParallelOptions resolve(const DataParallelOptions& options, const nn::Module& module);

// The functional form: evaluates a module once. If DataParallel already wraps the module, the
// wrapped module runs. With one device it is a plain call. If a batch has fewer rows than there are
// devices, some stay idle.
// Throws: what resolve() and the four steps throw.
Variable data_parallel(const std::shared_ptr<nn::Module>& module, const Variable& input,
                       const DataParallelOptions& options = {});

// The wrapper: a module whose forward() is data_parallel(). Its state has the prefix "module.".
class DataParallel final : public nn::ModuleOf<DataParallel> {
 public:
  explicit DataParallel(std::shared_ptr<nn::Module> module,
                        const DataParallelOptions& options = {});

  Variable forward(const Variable& input) override;

  // The wrapped module: save this one.
  const std::shared_ptr<nn::Module>& module() const { return children()[0].second; }
  const DataParallelOptions& options() const { return options_; }

  std::string type_name() const override { return "DataParallel"; }

 private:
  DataParallelOptions options_;
  // How replicas share statistics, by their number; made when a batch first has so many.
  std::map<std::size_t, std::vector<std::shared_ptr<StatisticsExchange>>> exchanges_;
};

}  // namespace lockstep::parallel
