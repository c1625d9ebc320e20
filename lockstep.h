// All of Lockstep that your own program uses, in the order of its layers:
//
//   #include <lockstep.h>            target_link_libraries(... lockstep::lockstep)
//
// Every name is in namespace lockstep. The engine itself and its tests include single headers.
#pragma once

// Names, numbers and errors.
#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/core/rng.h"
#include "engine/core/shape.h"

// Tracing: how the time of a step is spent.
#include "engine/trace/breakdown.h"
#include "engine/trace/chrome_trace.h"
#include "engine/trace/recorder.h"

// Devices, and memory on them.
#include "engine/runtime/logical_device.h"
#include "engine/tensor/tensor.h"

// Gradients.
#include "engine/autograd/gradient_check.h"
#include "engine/autograd/node.h"  // record(): an operation of your own
#include "engine/autograd/ops/images.h"
#include "engine/autograd/ops/ops.h"
#include "engine/autograd/ops/sequences.h"
#include "engine/autograd/variable.h"

// Ranks: as threads (thread_group.h), or as processes (launch/rendezvous.h, then process_group.h).
#include "engine/comm/communicator.h"
#include "engine/comm/process_group.h"
#include "engine/comm/thread_group.h"
#include "engine/comm/work.h"
#include "engine/launch/rank_environment.h"
#include "engine/launch/rendezvous.h"

// Data.
#include "datasets/csv.h"
#include "datasets/dataset.h"
#include "datasets/digits.h"
#include "engine/data/data_loader.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/sampler.h"

// Models and their training.
#include "engine/nn/gpt.h"
#include "engine/nn/image_layers.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/nn/models.h"
#include "engine/nn/module.h"
#include "engine/nn/sequence_layers.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"

// Several devices.
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/parallel/ddp/compression.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/parallel/ddp/join.h"
#include "engine/parallel/ddp/logging_data.h"
#include "engine/parallel/pipeline/pipeline_stage.h"
#include "engine/parallel/sharded/sharded.h"
#include "engine/parallel/strategies.h"
#include "engine/parallel/strategy.h"  // a mode of your own
#include "engine/parallel/sync_batch_norm.h"
#include "engine/parallel/tensor_parallel.h"
