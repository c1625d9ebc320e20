// DataParallel: one process, one batch, several devices.
//
//   batch -> scatter -> replicate -> parallel_apply -> gather -> output on one device
//
// Each stage is a file of its own in this folder. Gradients are summed, not averaged: the loss is
// taken on the gathered output, so it is already the whole batch's.
// Source: torch/nn/parallel/data_parallel.py.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/nn/module.h"
#include "engine/parallel/sync_batch_norm.h"

namespace lockstep::parallel {

struct DataParallelOptions {
  // Replicas run on these, in this order; the first holds the parameters. Empty: all devices of the
  // parameters' type that are visible (for the CPU, which has devices on demand: one per core).
  std::vector<Device> devices;
  std::optional<Device> output_device = {};  // default: devices[0]
  std::size_t dim = 0;                       // of the input that is cut, and of the output
  // In training; own: as PyTorch's DataParallel. all: see sync_batch_norm.h.
  BatchNormRows batch_norm = BatchNormRows::own;
};

// Checks the options against a module: Error{Usage} for a module that is wrapped already,
// Error{Device} for devices that do not exist, stand twice, or are of different types.
// Warns when the slowest device has less than 75 % of the fastest one's memory or threads.
DataParallelOptions resolve(const DataParallelOptions& options, const nn::Module& module);

// The functional form: evaluates a module once. The module may be one that DataParallel wraps; then
// the wrapped module is what runs. With one device it is a plain call. A batch with fewer rows than
// devices leaves devices idle.
// Throws: what resolve() and the four stages throw.
Variable data_parallel(const std::shared_ptr<nn::Module>& module, const Variable& input,
                       const DataParallelOptions& options = {});

// The wrapper: a module whose forward() is data_parallel(). Its state has the prefix "module.".
class DataParallel final : public nn::ModuleOf<DataParallel> {
 public:
  explicit DataParallel(std::shared_ptr<nn::Module> module,
                        const DataParallelOptions& options = {});

  Variable forward(const Variable& input) override;

  // The wrapped module: what to save.
  const std::shared_ptr<nn::Module>& module() const { return children()[0].second; }
  const DataParallelOptions& options() const { return options_; }

  std::string type_name() const override { return "DataParallel"; }

 private:
  DataParallelOptions options_;
  // By number of replicas: how they share statistics; made when a batch first has so many.
  std::map<std::size_t, std::vector<std::shared_ptr<ReplicaSums>>> replica_sums_;
};

}  // namespace lockstep::parallel
