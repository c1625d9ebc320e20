// The strategies of this folder: one for each way to train.
#pragma once

#include <memory>
#include <vector>

#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/parallel/pipeline/pipeline_stage.h"
#include "engine/parallel/strategy.h"

namespace lockstep::parallel {

// Each makes what its header says of the whole model, which all ranks have with the same values, or
// rank 0's. Communicators outlive what is made.
std::unique_ptr<Strategy> single_device(std::shared_ptr<nn::Module> model);
std::unique_ptr<Strategy> data_parallel_strategy(std::shared_ptr<nn::Module> model,
                                                 const DataParallelOptions& options);
std::unique_ptr<Strategy> ddp_strategy(std::shared_ptr<nn::Module> model,
                                       comm::Communicator& communicator,
                                       const DdpOptions& options = {});
std::unique_ptr<Strategy> sharded_strategy(std::shared_ptr<nn::Module> model,
                                           comm::Communicator& communicator, ShardDepth depth);
std::unique_ptr<Strategy> pipeline_strategy(const std::shared_ptr<nn::Module>& model,
                                            comm::Communicator& communicator,
                                            const PipelineOptions& options);
std::unique_ptr<Strategy> tensor_strategy(const nn::Module& model,
                                          comm::Communicator& communicator);
// On the devices of one process, or one of the ranks. Here gradients are those of
// weight * (the summed loss over the global batch), rounded once.
std::unique_ptr<Strategy> bitwise_strategy(std::shared_ptr<nn::Module> model,
                                           const std::vector<Device>& devices);
std::unique_ptr<Strategy> bitwise_strategy(std::shared_ptr<nn::Module> model,
                                           comm::Communicator& communicator);
// DDP whose ranks one thread drives, for a step that is one graph: by rank. Their add_gradients()
// are called in turn, from rank 0 on; the last one averages.
std::vector<std::unique_ptr<Strategy>> replica_strategies(const std::shared_ptr<nn::Module>& model,
                                                          const std::vector<Device>& devices,
                                                          const DdpOptions& options,
                                                          plan::AllReducePlan plan);

}  // namespace lockstep::parallel
