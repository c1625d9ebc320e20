// How the devices of a step share their gradients: what published tables compare, and what this
// engine does.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::predict {

enum class Strategy {
  single,         // one device
  data_parallel,  // one process: scatter, replicate, gather; gradients summed on device 0
  cpu_reduce,     // behind the backward pass: gradients to the host, summed and applied there
  cpu_parameter_server,  // the same tensor by tensor, beside the backward and the next forward pass
  device_all_reduce,     // behind the backward pass: each tensor summed on one device, sent back
  nccl_replicated,       // an NCCL 1 all-reduce of each tensor, beside the backward pass
  ddp,                   // buckets, all-reduced beside the backward pass
  hierarchical,          // the same with the engine's hierarchical plan
  zero1,                 // each device updates its share of the parameters, which are then gathered
  zero3,     // parameters, too, are in shares: gathered for each layer's forward and backward pass
  pipeline,  // parts of the model on the devices, through which micro-batches pass
};

std::string_view to_string(Strategy strategy);

// Its devices belong to one process, so they are all in one host.
bool is_of_one_process(Strategy strategy);

// All devices do the same, each on its own rows.
bool is_data_parallel(Strategy strategy);

// As above with '_'; and "dp" for data_parallel, "device_allreduce" for device_all_reduce.
// Throws Error{Usage} that lists the names.
Strategy parse_strategy(std::string_view name);

}  // namespace lockstep::predict
