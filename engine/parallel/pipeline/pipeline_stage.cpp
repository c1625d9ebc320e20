#include "engine/parallel/pipeline/pipeline_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/nn/loss.h"
#include "engine/nn/state_dict.h"
#include "engine/parallel/clip_over_ranks.h"
#include "engine/plan/collective_plan.h"
#include "engine/runtime/device_span.h"
#include "kernels/matmul_precision.h"

namespace lockstep::parallel {
namespace {

using Pass = plan::PipelineWork::Pass;

std::vector<double> costs_of(const std::vector<PipelineLayer>& layers) {
  std::vector<double> costs;
  for (const PipelineLayer& layer : layers) {
    double cost = 0;
    for (const auto& [name, module] : layer) cost += static_cast<double>(module->num_parameters());
    costs.push_back(cost);
  }
  return costs;
}

// The name of a span.
const char* name_of(const plan::PipelinePlan& plan, const plan::PipelineWork& work) {
  return trace::recording() ? trace::intern(plan::describe(plan, work)) : "";
}

// Shapes travel as a row's number of dimensions and sizes.
constexpr std::size_t kMostDims = 8;

Tensor pack_shape(const Shape& shape) {
  std::vector<std::int64_t> words(1 + kMostDims);
  words[0] = static_cast<std::int64_t>(shape.num_dims());
  for (std::size_t i = 0; i < shape.num_dims(); ++i) {
    words[1 + i] = static_cast<std::int64_t>(shape[i]);
  }
  return Tensor::from(words, {words.size()}, Device{});
}

Shape unpack_shape(const std::vector<std::int64_t>& words) {
  std::vector<std::size_t> sizes;
  for (std::int64_t i = 0; i < words[0]; ++i) {
    sizes.push_back(static_cast<std::size_t>(words[static_cast<std::size_t>(1 + i)]));
  }
  return Shape(sizes);
}

}  // namespace

plan::PipelinePlan pipeline_plan_for(const PipelineOptions& options, std::size_t num_stages,
                                     std::size_t num_layers) {
  const std::size_t num_parts = num_stages * options.num_chunks;
  require(num_parts <= num_layers, ErrorCode::Usage, "pipeline",
          "{} stages{} need {} layers or more, and the model has {}; use fewer, "
          "or a model with more layers",
          num_stages,
          options.num_chunks > 1 ? fmt::format(" of {} chunks", options.num_chunks) : "", num_parts,
          num_layers);
  return plan::pipeline_plan(options.schedule, num_stages, options.num_micro_batches,
                             options.num_chunks);
}

// One step, while it runs.
struct PipelineStage::Step {
  const Schedule& schedule;
  const Tensor& x;
  const Tensor& labels;
  std::size_t first_row;
  double weight;
  const MicroBatchLoss& loss;
  std::map<std::pair<std::size_t, std::size_t>, Kept> kept = {};  // keyed by chunk and micro-batch
  std::map<Message, Tensor> arrived = {};
  std::vector<std::size_t> num_received = {};  // indexed by sender
  Tensor loss_sum = {};

  plan::Chunk rows(std::size_t micro_batch) const {
    return plan::even_chunk(labels.size(0), schedule.plan.num_micro_batches, micro_batch);
  }
  Tensor rows_of(const Tensor& tensor, std::size_t micro_batch) const {
    return tensor.rows(rows(micro_batch).offset, rows(micro_batch).end());
  }
};

PipelineStage::PipelineStage(const std::shared_ptr<nn::Module>& model,
                             comm::Communicator& communicator, const PipelineOptions& options)
    : communicator_(&communicator),
      rank_(static_cast<std::size_t>(communicator.rank())),
      options_(options) {
  const std::vector<PipelineLayer> layers = layers_of(model);
  plan_ = pipeline_plan_for(options, static_cast<std::size_t>(communicator.world_size()),
                            layers.size());
  const std::vector<std::size_t> first = plan::balanced_parts(
      options.layer_costs.empty() ? costs_of(layers) : options.layer_costs, plan_.num_parts());
  std::vector<PipelineLayer> parts(plan_.num_parts());
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (std::size_t i = first[part]; i < first[part + 1]; ++i) {
      parts[part].insert(parts[part].end(), layers[i].begin(), layers[i].end());
    }
  }
  for (std::size_t chunk = 0; chunk < plan_.num_chunks; ++chunk) {
    chunks_.push_back(parts[plan_.part_of(rank_, chunk)]);
  }
  std::vector<std::set<const void*>> contents(plan_.num_stages);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    contents[plan_.stage_of(part)].merge(contents_of(parts[part]));
  }
  tensors_ = tensors_of(*model, contents[rank_]);
  const std::vector<Variable> parameters = tensors_->parameters();
  for (const Variable& parameter : parameters) {
    Shared shared{parameter, {}};
    for (std::size_t stage = 0; stage < contents.size(); ++stage) {
      if (contents[stage].contains(parameter.identity())) {
        shared.stages.push_back(static_cast<int>(stage));
      }
    }
    if (shared.stages.size() > 1) shared_.push_back(std::move(shared));
  }
  for (const auto& [name, tensor] : nn::state_dict(*model)) names_.push_back(name);
  device_ = parameters.at(0).device();
  dtype_ = parameters.at(0).dtype();
}

const PipelineStage::Schedule& PipelineStage::schedule_for(std::size_t num_micro_batches) {
  const auto [found, is_new] = schedules_.try_emplace(num_micro_batches);
  if (!is_new) return found->second;
  Schedule& schedule = found->second;
  schedule.plan =
      plan::pipeline_plan(plan_.schedule, plan_.num_stages, num_micro_batches, plan_.num_chunks);
  schedule.incoming.resize(plan_.num_stages);
  for (std::size_t from = 0; from < plan_.num_stages; ++from) {
    for (const plan::PipelineWork& work : schedule.plan.stages[from]) {
      const std::size_t part = plan_.part_of(from, work.chunk);
      const bool is_forward = work.pass == Pass::forward;
      if (is_forward ? part + 1 == plan_.num_parts() : part == 0) continue;
      const std::size_t to = is_forward ? part + 1 : part - 1;
      if (plan_.stage_of(to) == rank_) {
        schedule.incoming[from].push_back({work.pass, to, work.micro_batch});
      }
    }
  }
  return schedule;
}

Tensor PipelineStage::run_step(const Tensor& x, const Tensor& labels, std::size_t first_row,
                               double weight, const MicroBatchLoss& loss) {
  const Schedule& schedule = schedule_for(plan::fitting_micro_batches(
      plan_.schedule, plan_.num_stages, plan_.num_micro_batches, labels.size(0)));
  if (rank_ == 0) require_row_shape(x);
  Step step{schedule, x, labels, first_row, weight, loss};
  step.num_received.resize(plan_.num_stages);
  for (const plan::PipelineWork& work : schedule.plan.stages[rank_]) {
    thread_context().first_row = first_row + step.rows(work.micro_batch).offset;
    work.pass == Pass::forward ? forward(step, work) : backward(step, work);
  }
  thread_context().first_row = first_row;
  add_shared_gradients();
  return share_loss(step.loss_sum);
}

DType PipelineStage::activation_dtype() const {
  return kernels::activation_dtype(dtype_);
}

Variable PipelineStage::run_part(std::size_t part, const Variable& x) const {
  const nn::ForwardScope scope;
  return nn::run_in_turn(chunks_[part / plan_.num_stages], x);
}

void PipelineStage::forward(Step& step, const plan::PipelineWork& work) {
  const std::size_t part = plan_.part_of(rank_, work.chunk);
  const std::size_t i = work.micro_batch;
  Kept kept;
  kept.input = part == 0 ? Variable(step.rows_of(step.x, i))
                         : Variable(take(step, {Pass::forward, part, i}), RequiresGrad::yes);
  {
    const runtime::WorkSpan span(kept.input.value().stream(), trace::Lane::compute,
                                 trace::Category::forward, name_of(plan_, work));
    kept.output = run_part(part, kept.input);
    if (part + 1 < plan_.num_parts()) kept.output = to(kept.output, activation_dtype());
    if (part + 1 == plan_.num_parts()) {
      kept.output = step.loss(kept.output, step.rows_of(step.labels, i));
      const Tensor& loss = kept.output.value();
      step.loss_sum = step.loss_sum.defined() ? step.loss_sum.add_(loss) : loss.clone();
    }
  }
  if (part + 1 < plan_.num_parts()) {
    send(step, {Pass::forward, part + 1, i}, kept.output.value());
  }
  step.kept[{work.chunk, i}] = std::move(kept);
}

void PipelineStage::backward(Step& step, const plan::PipelineWork& work) {
  const std::size_t part = plan_.part_of(rank_, work.chunk);
  const std::size_t i = work.micro_batch;
  const Tensor grad = part + 1 == plan_.num_parts()
                          ? Tensor::cached_scalar(step.weight, dtype_, device_)
                          : take(step, {Pass::backward, part, i});
  const Kept kept = std::move(step.kept.extract({work.chunk, i}).mapped());
  {
    const runtime::WorkSpan span(grad.stream(), trace::Lane::compute, trace::Category::backward,
                                 name_of(plan_, work));
    kept.output.backward(grad);
  }
  if (part > 0) send(step, {Pass::backward, part - 1, i}, kept.input.grad());
}

void PipelineStage::send(Step& step, const Message& message, const Tensor& tensor) {
  const std::size_t to = plan_.stage_of(message.part);
  if (to == rank_) {
    step.arrived[message] = tensor;
  } else if (message.pass == Pass::forward) {
    send_activations(tensor, message.part);
  } else {
    communicator_->send(tensor, static_cast<int>(to));
  }
}

// Keeps what arrives before it is needed: a stage may send to another for several chunks.
Tensor PipelineStage::take(Step& step, const Message& message) {
  const std::size_t other = message.pass == Pass::forward ? message.part - 1 : message.part + 1;
  const std::size_t from = plan_.stage_of(other);
  while (!step.arrived.contains(message)) {
    const Message& next = step.schedule.incoming[from].at(step.num_received[from]++);
    if (next.pass == Pass::forward) {
      step.arrived[next] = receive_activations(next.part, step.rows(next.micro_batch).count);
      continue;
    }
    const Kept& kept = step.kept.at({next.part / plan_.num_stages, next.micro_batch});
    const Tensor grad = Tensor::empty_like(kept.output.value());
    communicator_->recv(grad, static_cast<int>(from)).wait();
    step.arrived[next] = grad;
  }
  return std::move(step.arrived.extract(message).mapped());
}

// Stages tell each other the shape of a row once, with the first activations.
void PipelineStage::require_row_shape(const Tensor& x) {
  const Shape& known = row_shapes_.try_emplace(0, x.shape()).first->second;
  require(x.shape() == known.with(0, x.size(0)), ErrorCode::Shape, "pipeline",
          "expected rows as in {}, found {}: all batches of a pipeline have rows of one shape",
          to_string(known), to_string(x.shape()));
}

void PipelineStage::send_activations(const Tensor& tensor, std::size_t part) {
  const int to = static_cast<int>(plan_.stage_of(part));
  const Shape& shape = tensor.shape();
  if (row_shapes_.try_emplace(part, shape).second) communicator_->send(pack_shape(shape), to);
  communicator_->send(tensor, to);
}

Tensor PipelineStage::receive_activations(std::size_t part, std::size_t num_rows) {
  const int from = static_cast<int>(plan_.stage_of(part - 1));
  if (!row_shapes_.contains(part)) {
    const Tensor words = Tensor::empty({1 + kMostDims}, DType::int64, Device{});
    communicator_->recv(words, from).wait();
    row_shapes_[part] = unpack_shape(words.to_vector<std::int64_t>());
  }
  const Tensor tensor =
      Tensor::empty(row_shapes_[part].with(0, num_rows), activation_dtype(), device_);
  communicator_->recv(tensor, from).wait();
  return tensor;
}

// The first stage that holds it adds up the gradients, in the order of stages, and tells the sum.
void PipelineStage::add_shared_gradients() const {
  const int rank = static_cast<int>(rank_);
  for (const auto& [parameter, stages] : shared_) {
    if (rank != stages[0]) {
      communicator_->send(parameter.grad(), stages[0]);
      communicator_->recv(parameter.grad(), stages[0]).wait();
      continue;
    }
    const Tensor other = Tensor::empty(parameter.shape(), dtype_, device_);
    for (const int stage : std::span(stages).subspan(1)) {
      communicator_->recv(other, stage).wait();
      parameter.grad().add_(other);
    }
    for (const int stage : std::span(stages).subspan(1)) {
      communicator_->send(parameter.grad(), stage);
    }
  }
}

Tensor PipelineStage::clip_gradients(double max_norm) const {
  std::vector<Variable> counted;
  for (const Variable& parameter : tensors_->parameters()) {
    const auto shared = std::ranges::find_if(
        shared_, [&](const Shared& s) { return s.parameter.is_same(parameter); });
    const bool counts = shared == shared_.end() || shared->stages[0] == static_cast<int>(rank_);
    if (counts) counted.push_back(parameter);
  }
  return clip_over_ranks(counted, tensors_->parameters(), max_norm, *communicator_, device_);
}

// By messages, which have arrived before the other stages are done: nobody waits.
Tensor PipelineStage::share_loss(const Tensor& loss) const {
  const int last = static_cast<int>(plan_.num_stages) - 1;
  if (static_cast<int>(rank_) == last) {
    for (int rank = 0; rank < last; ++rank) communicator_->send(loss, rank);
    return loss;
  }
  const Tensor received = Tensor::empty({}, dtype_, device_);
  communicator_->recv(received, last).wait();
  return received;
}

Variable PipelineStage::evaluate(const Tensor& x) {
  const NoGradScope no_grad;
  std::deque<nn::EvaluationScope> evaluation;
  for (const PipelineLayer& chunk : chunks_) {
    for (const auto& [name, module] : chunk) evaluation.emplace_back(*module);
  }
  Variable activations;
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const std::size_t part = plan_.part_of(rank_, chunk);
    if (part == 0) {
      require_row_shape(x);
      activations = Variable(x);
    } else if (plan_.num_stages > 1) {
      activations = Variable(receive_activations(part, x.size(0)));
    }
    activations = run_part(part, activations);
    if (part + 1 < plan_.num_parts() && plan_.num_stages > 1) {
      send_activations(activations.value().to(activation_dtype()), part + 1);
      activations = {};
    }
  }
  // Else the first stage would send batch after batch into memory.
  communicator_->barrier();
  return activations;
}

std::vector<PipelineStage::NamedTensors> PipelineStage::gather(const NamedTensors& mine) const {
  const std::vector<std::int64_t> counts =
      comm::gather_numbers({static_cast<std::int64_t>(mine.size())}, *communicator_);
  if (rank_ > 0) {
    for (const auto& [name, tensor] : mine) {
      const Tensor letters = Tensor::from(std::vector<std::uint8_t>(name.begin(), name.end()),
                                          {name.size()}, Device{});
      std::vector<std::int64_t> header = pack_shape(tensor.shape()).to_vector<std::int64_t>();
      header.push_back(static_cast<std::int64_t>(tensor.dtype()));
      header.push_back(static_cast<std::int64_t>(name.size()));
      communicator_->send(Tensor::from(header, {header.size()}, Device{}), 0);
      communicator_->send(letters, 0);
      if (tensor.num_elements() > 0) communicator_->send(tensor.to(Device{}), 0);
    }
    return {};
  }
  std::vector<NamedTensors> all(counts.size());
  for (const auto& [name, tensor] : mine) all[0].emplace_back(name, tensor.to(Device{}).clone());
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    const int from = static_cast<int>(rank);
    for (std::int64_t i = 0; i < counts[rank]; ++i) {
      const Tensor header = Tensor::empty({kMostDims + 3}, DType::int64, Device{});
      communicator_->recv(header, from).wait();
      const std::vector<std::int64_t> words = header.to_vector<std::int64_t>();
      const Tensor letters =
          Tensor::empty({static_cast<std::size_t>(words[kMostDims + 2])}, DType::uint8, Device{});
      communicator_->recv(letters, from).wait();
      const std::vector<std::uint8_t> name = letters.to_vector<std::uint8_t>();
      const Tensor tensor =
          Tensor::empty(unpack_shape(words), static_cast<DType>(words[kMostDims + 1]), Device{});
      if (tensor.num_elements() > 0) communicator_->recv(tensor, from).wait();
      all[rank].emplace_back(std::string(name.begin(), name.end()), tensor);
    }
  }
  return all;
}

PipelineStage::NamedTensors PipelineStage::gather_state() const {
  const std::vector<NamedTensors> stages = gather(nn::state_dict(*tensors_));
  NamedTensors whole;
  for (const std::string& name : names_) {
    for (const NamedTensors& stage : stages) {
      const auto found = std::ranges::find(stage, name, &NamedTensors::value_type::first);
      if (found == stage.end()) continue;
      whole.push_back(*found);
      break;  // a shared one is the same everywhere
    }
  }
  return whole;
}

}  // namespace lockstep::parallel
