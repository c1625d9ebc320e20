// The task to train: the resolved meaning of the training flags, without the devices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/comm/thread_group.h"
#include "engine/data/augmentation.h"
#include "engine/data/sampler.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/parallel/pipeline/pipeline_stage.h"
#include "engine/parallel/sharded/sharded.h"
#include "engine/parallel/sync_batch_norm.h"
#include "tools/flags/training_flags.h"
#include "tools/run/checkpoint.h"

namespace lockstep::tools {

enum class Sampler { exact, torch };
enum class Summation { plain, bitwise };  // --bitwise
enum class OptimizerKind { sgd, adamw };

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::sgd;
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 0;
  // matrices: vectors do not decay, as is usual for GPTs.
  using Decays = parallel::Sharded::Decays;
  Decays decays = Decays::all;
  optim::SgdOptions::Kind momentum_kind = optim::SgdOptions::Kind::plain;
  optim::Schedule schedule;
  std::optional<double> clip_norm;
};

struct SlowMotion;  // slow_motion.h

struct TrainingTask {
  std::string model;   // default: one hidden layer of 256 between the data's ends; for a text
                       // gpt:4-4-128-64
  double dropout = 0;  // a GPT's; no flag sets it
  DType dtype = DType::float32;
  std::shared_ptr<const datasets::Dataset> data;
  std::size_t batch = 64;      // rows per step over all devices
  std::size_t accumulate = 1;  // micro-batches that a step computes one after the other
  // One device takes the batch in the shares of so many: batch norm takes each share's own
  // statistics, and its running ones are the first share's.
  std::size_t num_shares = 1;
  // One device scales its loss as so many ranks do, and its gradients back, to round as they do.
  std::size_t loss_ranks = 1;
  std::size_t num_steps = 0;
  std::uint64_t seed = 0;
  data::Shuffle shuffle = data::Shuffle::on;
  data::Augmentation augmentation;  // for training images
  Sampler sampler = Sampler::exact;
  Summation summation = Summation::plain;
  parallel::BatchNormRows batch_norm = parallel::BatchNormRows::own;  // --sync-batch-norm: all
  std::optional<parallel::PipelineOptions> pipeline;                  // a pipeline's (pipeline.h)
  std::optional<parallel::ShardDepth> shard;  // what the ranks of ddp divide
  bool cuts_tensors = false;                  // --parallel tensor
  OptimizerSettings optimizer;
  std::optional<nn::StateDict> initial_weights;
  std::size_t table_rows = 0;  // a GPT's in initial_weights: tokens and padding
  std::optional<CheckpointPlan> checkpoints;
  nlohmann::ordered_json settings;            // for the checkpoints
  std::shared_ptr<const Checkpoint> resumed;  // where the run continues; nullptr: it starts afresh
  std::size_t first_step() const { return resumed ? resumed->step : 0; }
  std::optional<std::size_t> end_after;  // the run stops there, as after a signal

  // graph: a whole step is captured once and then launched by a single call (CUDA).
  enum class Launching { op_by_op, graph } launching = Launching::op_by_op;

  plan::AllReducePlan all_reduce_plan = plan::AllReducePlan::automatic;
  std::optional<comm::LinkSpec> link;             // modelled, between the ranks of ddp
  std::shared_ptr<const SlowMotion> slow_motion;  // --act-as; nullptr: at full speed
  double comm_timeout_seconds = 30;
  std::vector<std::size_t> bucket_byte_limits;

  // True if each device normalises by its own rows' statistics, so that weights differ from one
  // device's.
  bool has_own_statistics() const;
  // The rows that the model takes: images or features.
  nn::ModelData model_data() const;
  Shape batch_shape(std::size_t num_rows) const;  // x: [num_rows, ...]
  DType batch_dtype() const;                      // x's
  Shape label_shape(std::size_t num_rows) const;  // [num_rows]; for a text [num_rows, tokens]
  bool is_text() const { return data->train.is_text(); }
  std::size_t steps_per_epoch() const;
  std::size_t num_epochs() const;  // num_steps may cut the last one short
  // --batch, or all training rows if there are fewer.
  std::size_t rows_of_full_batch() const;
};

// Resolves the flags. Throws Error{Usage} for contradictions and unknown names, and Error{Io} for
// data and weights that cannot be read and output paths that cannot be written: all before training
// starts.
TrainingTask make_task(const TrainingFlags& flags, std::size_t num_devices);

// The model where none is said: a GPT for a text, else an MLP with 256 neurons between its layers.
// It has a layer for each of so many parts of a pipeline, and two at least.
std::string default_model(const TrainingFlags& flags, std::size_t num_parts = 2);

// The parts of make_task(), for ranks that are processes. read_task only looks at the flags and
// starts no thread (except for --graph); load_task reads data and weights. Only rank 0 has outputs.
TrainingTask read_task(const TrainingFlags& flags, std::size_t num_devices);
void load_task(TrainingTask& task, const TrainingFlags& flags);
void require_writable_outputs(const TrainingFlags& flags);

// The task with another batch, and with as many steps as the flags ask for at that batch. REQUIRES:
// its data is loaded.
TrainingTask with_batch(TrainingTask task, const TrainingFlags& flags, std::size_t batch);

Shape batch_shape(const nn::ModelData& data, std::size_t num_rows);  // x: [num_rows, ...]

// The rows for which a model is made without data: those of --dataset in its usual sizes; if that
// is empty, a perceptron's own sizes, or the digits' images.
// Throws Error{Usage} as parse_model(), parse_dataset() and require_model_fits() do, and for
// weights, gradients and momentum that do not fit into memory.
nn::ModelData rows_for(const std::string& model, const std::string& dataset);

// Says why weights under --sampler torch differ from one device's, and, unless rows keep the file's
// order, from PyTorch's; empty under exact.
std::string torch_sampler_note(const TrainingTask& task);

// "24 steps of 64 rows". If the batch is larger than the data, it gives the rows there are and the
// batch that was asked for: "1 step of 1500 rows (batch 100000 asked)".
std::string steps_text(const TrainingTask& task);

// The same for a step alone: "batch 64", "batch 1500 (100000 asked)".
std::string batch_text(const TrainingTask& task);

}  // namespace lockstep::tools
