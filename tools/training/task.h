// What is trained: the resolved meaning of the training flags, but for the devices.
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
#include "engine/parallel/sync_batch_norm.h"
#include "tools/cli/training_flags.h"
#include "tools/training/checkpoint.h"

namespace lockstep::tools {

enum class Sampler { exact, torch };
enum class Summation { plain, bitwise };  // --bitwise
enum class OptimizerKind { sgd, adamw };

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::sgd;
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 0;
  // matrices: no vector decays, as GPTs are trained.
  enum class Decays { all, matrices } decays = Decays::all;
  optim::SgdOptions::Kind momentum_kind = optim::SgdOptions::Kind::plain;
  optim::Schedule schedule;
  std::optional<double> clip_norm;
};

struct SlowMotion;  // slow_motion.h

struct TrainingTask {
  std::string model;  // "mlp:64-256-10", "lenet"; unless it was said, 256 neurons between the
                      // data's ends, for a text gpt:4-4-128-64
  DType dtype = DType::float32;
  std::shared_ptr<const datasets::Dataset> data;
  std::size_t batch = 64;      // rows per step over all devices
  std::size_t accumulate = 1;  // micro-batches that a step computes one after the other
  std::size_t num_steps = 0;
  std::uint64_t seed = 0;
  data::Shuffle shuffle = data::Shuffle::on;
  data::Augmentation augmentation;  // of training images
  Sampler sampler = Sampler::exact;
  Summation summation = Summation::plain;
  parallel::BatchNormRows batch_norm = parallel::BatchNormRows::own;  // --sync-batch-norm: all
  OptimizerSettings optimizer;
  std::optional<nn::StateDict> initial_weights;
  std::optional<CheckpointPlan> checkpoints;
  nlohmann::ordered_json settings;            // for the checkpoints
  std::shared_ptr<const Checkpoint> resumed;  // where the run goes on; nullptr: at its beginning
  std::size_t first_step() const { return resumed ? resumed->step : 0; }

  // graph: a whole step is captured once and then launched by one call (CUDA).
  enum class Launching { op_by_op, graph } launching = Launching::op_by_op;

  plan::AllReducePlan all_reduce_plan = plan::AllReducePlan::automatic;
  std::optional<comm::LinkSpec> link;             // modelled, between the ranks of ddp
  std::shared_ptr<const SlowMotion> slow_motion;  // --act-as; nullptr: at full speed
  double comm_timeout_seconds = 30;
  std::vector<std::size_t> bucket_byte_limits;

  // Each device normalises by the statistics of its own rows, so weights are not one device's.
  bool has_own_statistics() const;
  // The rows that the model takes: images, or features.
  nn::ModelData model_data() const;
  Shape batch_shape(std::size_t num_rows) const;  // of x: [num_rows, ...]
  DType batch_dtype() const;                      // of x
  Shape label_shape(std::size_t num_rows) const;  // [num_rows], of a text [num_rows, tokens]
  bool is_text() const { return data->train.is_text(); }
  std::size_t steps_per_epoch() const;
  std::size_t num_epochs() const;  // the last one may be cut short by num_steps
  // --batch, or all training rows if there are fewer.
  std::size_t rows_of_full_batch() const;
};

// Reads the flags' words. Throws Error{Usage} for contradictions and unknown names, Error{Io} for
// data and weights that cannot be read, and for output paths that cannot be written: all before
// training starts.
TrainingTask make_task(const TrainingFlags& flags, std::size_t num_devices);

// Its parts, for ranks that are processes. read_task looks at the words alone, and starts no
// thread (but for --graph); load_task reads data and weights. Outputs are rank 0's.
TrainingTask read_task(const TrainingFlags& flags, std::size_t num_devices);
void load_task(TrainingTask& task, const TrainingFlags& flags);
void require_writable_outputs(const TrainingFlags& flags);

// The same task with another batch, and as many steps as the flags ask for with that. REQUIRES: its
// data was loaded.
TrainingTask with_batch(TrainingTask task, const TrainingFlags& flags, std::size_t batch);

Shape batch_shape(const nn::ModelData& data, std::size_t num_rows);  // of x: [num_rows, ...]

// The rows for which a model is made without data: of --dataset, in its usual sizes; where that is
// empty, of a perceptron's own sizes, or the digits' images.
// Throws Error{Usage} as parse_model(), parse_dataset() and require_model_fits(), and for weights,
// gradients and momentum that do not fit into memory.
nn::ModelData rows_for(const std::string& model, const std::string& dataset);

// Why weights under --sampler torch differ from those of one device, and, unless rows keep the
// file's order, from PyTorch's; empty under exact.
std::string torch_sampler_note(const TrainingTask& task);

}  // namespace lockstep::tools
