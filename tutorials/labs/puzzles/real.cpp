#include "tutorials/labs/puzzles/real.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/core/rng.h"

namespace lab {
namespace {

using lockstep::DType;
using lockstep::RequiresGrad;
using lockstep::Tensor;
using lockstep::Variable;
using lockstep::comm::Communicator;
using lockstep::comm::Launch;

constexpr std::size_t kWidth = 6;
constexpr std::size_t kRows = 4;  // of a micro-batch
constexpr double kLearningRate = 0.5;
constexpr double kMomentum = 0.9;
constexpr double kTolerance = 1e-9;
constexpr std::size_t kNumParameters = kWidth * kWidth;

// The state before the step, and the batch; the same for every schedule of these sizes.
struct Start {
  std::vector<Tensor> weights;   // by layer
  std::vector<Tensor> momentum;  // by layer
  Tensor inputs;
  Tensor targets;
};

Start make_start(const PuzzleSizes& sizes) {
  lockstep::Rng rng(20, 26);
  const auto draw = [&](std::size_t rows) {
    return Tensor::uniform({rows, kWidth}, -1, 1, rng, DType::float64);
  };
  Start start;
  for (int l = 0; l < sizes.num_layers; ++l) {
    start.weights.push_back(draw(kWidth));
    start.momentum.push_back(draw(kWidth));
  }
  const std::size_t num_rows = kRows * std::size_t(sizes.num_micro_batches);
  start.inputs = draw(num_rows);
  start.targets = draw(num_rows);
  return start;
}

Variable through_layer(const Variable& x, const Variable& weights) {
  return linear(tanh(x), weights, {});
}

// The share of these rows in the mean loss of the whole batch.
Variable loss_of(const Variable& y, const Tensor& targets, std::size_t num_rows_of_batch) {
  return scale(mse_loss(y, targets, lockstep::Reduction::sum),
               1.0 / static_cast<double>(num_rows_of_batch));
}

void update(const Tensor& weights, const Tensor& momentum, const Tensor& gradient) {
  momentum.scale_(kMomentum);
  momentum.add_(gradient);
  weights.add_(momentum, -kLearningRate);
}

std::vector<Tensor> train_one_device(const Start& start) {
  std::vector<Variable> leaves;
  Variable x(start.inputs);
  for (const Tensor& weights : start.weights) {
    leaves.emplace_back(weights.clone(), RequiresGrad::yes);
    x = through_layer(x, leaves.back());
  }
  loss_of(x, start.targets, start.inputs.size(0)).backward();
  std::vector<Tensor> trained;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    const Tensor weights = start.weights[l].clone();
    update(weights, start.momentum[l].clone(), leaves[l].grad());
    trained.push_back(weights);
  }
  return trained;
}

using Holders = std::vector<std::vector<int>>;  // by layer: ranks

Holders holders_of(const PuzzleSizes& sizes, const Programs& programs) {
  Holders holders(std::size_t(sizes.num_layers));
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Verb& verb : programs[rank]) {
      if (verb.op == Op::load) holders[std::size_t(verb.layer)].push_back(int(rank));
    }
  }
  return holders;
}

// The communicators of each set of holders, by rank.
using Groups = std::map<std::vector<int>, std::map<int, std::unique_ptr<Communicator>>>;

Groups make_groups(const Holders& holders) {
  Groups groups;
  for (const std::vector<int>& ranks : holders) {
    if (groups.contains(ranks)) continue;
    auto made = lockstep::comm::make_thread_group(int(ranks.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) groups[ranks][ranks[i]] = std::move(made[i]);
  }
  return groups;
}

// A GPU's part of a layer. Parameters are flat, and padded so that all shards are equally large.
struct Layer {
  Communicator* group = nullptr;
  Keep keep = Keep::whole;
  std::size_t shard_size = 0;
  Tensor shard;    // of the parameters; a view if the whole is kept
  Tensor weights;  // whole, or undefined
  Tensor momentum;
  Tensor gradient;
  Tensor gradient_shard;

  Tensor part(const Tensor& whole) const {
    return whole.slice(std::size_t(group->rank()) * shard_size, {shard_size});
  }
  Tensor matrix(const Tensor& whole) const { return whole.slice(0, {kWidth, kWidth}); }
  Tensor empty_whole() const {
    return Tensor::zeros({shard_size * std::size_t(group->world_size())}, DType::float64);
  }
};

class RealGpu {
 public:
  // world, back: for activations, and for gradients.
  RealGpu(const Start& start, const Holders& holders, const Groups& groups, Communicator& world,
          Communicator& back)
      : start_(start), world_(world), back_(back), layers_(holders.size()) {
    for (std::size_t l = 0; l < holders.size(); ++l) {
      const auto& group = groups.at(holders[l]);
      const auto mine = group.find(world.rank());
      if (mine == group.end()) continue;
      layers_[l].group = mine->second.get();
      layers_[l].shard_size = (kNumParameters + group.size() - 1) / group.size();
    }
  }

  void run(const Verb& verb) {
    Layer* const layer = verb.layer < 0 ? nullptr : &layers_[std::size_t(verb.layer)];
    switch (verb.op) {
      case Op::load:
        return load(verb, *layer);
      case Op::forward:
        return forward(verb, *layer);
      case Op::backward:
        return backward(verb, *layer);
      case Op::all_reduce:
      case Op::reduce_scatter:
      case Op::all_gather:
        return start(verb, *layer);
      case Op::wait:
        return wait(std::size_t(verb.other));
      case Op::update:
        return update_layer(*layer);
      case Op::free_parameters:
        layer->weights = {};
        return;
      case Op::free_gradient:
        layer->gradient = {};
        return;
      case Op::free_activation:
        activations_.erase({verb.layer, verb.micro_batch});
        return;
      default:
        return pass_on(verb);
    }
  }

  // Says what is wrong with the weights that it keeps.
  std::string compare(const std::vector<Tensor>& expected) const {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const Layer& layer = layers_[l];
      if (layer.group == nullptr) continue;
      const Tensor whole = layer.empty_whole();
      layer.matrix(whole).copy_from(expected[l]);
      const bool is_whole = layer.keep != Keep::shard;
      const auto wanted = (is_whole ? whole : layer.part(whole)).to_vector<double>();
      const auto found = (is_whole ? layer.weights : layer.shard).to_vector<double>();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (std::abs(wanted[i] - found[i]) <= kTolerance) continue;
        return fmt::format(
            "rank {} ends with other weights of layer {} than one device: element {} is {:.6g}, "
            "there {:.6g}",
            world_.rank(), l, i, found[i], wanted[i]);
      }
    }
    return {};
  }

 private:
  using Place = std::pair<int, int>;  // layer, micro-batch
  static Place place_of(const Verb& verb) { return {verb.layer, verb.micro_batch}; }

  Tensor rows_of(const Tensor& batch, int micro_batch) const {
    const std::size_t begin = kRows * std::size_t(micro_batch);
    return batch.rows(begin, begin + kRows);
  }

  void load(const Verb& verb, Layer& layer) {
    layer.keep = Keep(verb.other);
    const Tensor weights = layer.empty_whole();
    const Tensor momentum = layer.empty_whole();
    layer.matrix(weights).copy_from(start_.weights[std::size_t(verb.layer)]);
    layer.matrix(momentum).copy_from(start_.momentum[std::size_t(verb.layer)]);
    layer.shard = layer.keep == Keep::shard ? layer.part(weights).clone() : layer.part(weights);
    const bool is_alone = layer.group->world_size() == 1;
    if (layer.keep != Keep::shard || is_alone) layer.weights = weights;
    if (is_alone) layer.shard = weights;
    layer.momentum = layer.keep == Keep::whole ? momentum : layer.part(momentum).clone();
  }

  void forward(const Verb& verb, const Layer& layer) {
    const lockstep::NoGradScope no_grad;
    if (verb.layer == 0) activations_[place_of(verb)] = rows_of(start_.inputs, verb.micro_batch);
    const Variable x(activations_.at(place_of(verb)));
    const Variable y = through_layer(x, Variable(layer.matrix(layer.weights)));
    activations_[{verb.layer + 1, verb.micro_batch}] = y.value();
  }

  void backward(const Verb& verb, Layer& layer) {
    const Variable x(activations_.at(place_of(verb)), RequiresGrad::yes);
    const Variable weights(layer.matrix(layer.weights), RequiresGrad::yes);
    const Variable y = through_layer(x, weights);
    const Place behind{verb.layer + 1, verb.micro_batch};
    if (std::size_t(behind.first) == layers_.size()) {
      loss_of(y, rows_of(start_.targets, verb.micro_batch), start_.inputs.size(0)).backward();
      activations_.erase(behind);
    } else {
      y.backward(gradients_.at(behind));
      gradients_.erase(behind);
    }
    if (!layer.gradient.defined()) layer.gradient = layer.empty_whole();
    layer.matrix(layer.gradient).add_(weights.grad());
    if (verb.layer > 0) gradients_[place_of(verb)] = x.grad();
    activations_.erase(place_of(verb));
  }

  struct Started {
    Op op = Op::all_reduce;
    Layer* layer = nullptr;
    lockstep::comm::Work work;
    Tensor shard;  // of reduce_scatter
  };

  void start(const Verb& verb, Layer& layer) {
    Started started{verb.op, &layer, {}, {}};
    if (verb.op == Op::all_reduce) {
      started.work = layer.group->all_reduce(layer.gradient, {.launch = Launch::async});
    } else if (verb.op == Op::reduce_scatter) {
      started.shard = Tensor::zeros({layer.shard_size}, DType::float64);
      started.work =
          layer.group->reduce_scatter(layer.gradient, started.shard, {.launch = Launch::async});
    } else {
      if (!layer.weights.defined()) layer.weights = layer.empty_whole();
      started.work = layer.group->all_gather(layer.shard, layer.weights, Launch::async);
    }
    started_.push_back(std::move(started));
  }

  void wait(std::size_t number) {
    Started& started = started_[number];
    started.work.wait();
    if (!started.shard.defined()) return;
    Layer& layer = *started.layer;
    if (layer.gradient_shard.defined()) started.shard += layer.gradient_shard;
    layer.gradient_shard = std::exchange(started.shard, {});
  }

  void update_layer(Layer& layer) {
    const bool has_shard = layer.gradient_shard.defined();
    if (layer.keep == Keep::whole) {
      update(layer.weights, layer.momentum, has_shard ? layer.gradient_shard : layer.gradient);
    } else {
      update(layer.shard, layer.momentum,
             has_shard ? layer.gradient_shard : layer.part(layer.gradient));
    }
    if (!has_shard) layer.gradient = {};
    layer.gradient_shard = {};
  }

  void pass_on(const Verb& verb) {
    auto& tensors = verb.moves_activation() ? activations_ : gradients_;
    Communicator& way = verb.moves_activation() ? world_ : back_;
    if (verb.sends()) {
      way.send(tensors.at(place_of(verb)), verb.other);
      tensors.erase(place_of(verb));
    } else {
      const Tensor received = Tensor::zeros({kRows, kWidth}, DType::float64);
      way.recv(received, verb.other);
      tensors[place_of(verb)] = received;
    }
  }

  const Start& start_;
  Communicator& world_;
  Communicator& back_;
  std::vector<Layer> layers_;
  std::map<Place, Tensor> activations_;  // inputs of layers
  std::map<Place, Tensor> gradients_;    // of these inputs
  std::vector<Started> started_;
};

}  // namespace

std::string compare_with_one_device(const PuzzleSizes& sizes, const Programs& programs) {
  const Start start = make_start(sizes);
  const std::vector<Tensor> expected = train_one_device(start);
  const Holders holders = holders_of(sizes, programs);
  const Groups groups = make_groups(holders);
  const auto back = lockstep::comm::make_thread_group(int(programs.size()));
  std::vector<std::string> wrong(programs.size());
  lockstep::comm::run_ranks(int(programs.size()), [&](Communicator& world) {
    const auto rank = std::size_t(world.rank());
    RealGpu gpu(start, holders, groups, world, *back[rank]);
    for (const Verb& verb : programs[rank]) {
      if (verb.op == Op::load) gpu.run(verb);
    }
    for (const Verb& verb : programs[rank]) {
      if (verb.op != Op::load) gpu.run(verb);
    }
    world.barrier();
    wrong[rank] = gpu.compare(expected);
  });
  const auto first = std::ranges::find_if(wrong, [](const auto& text) { return !text.empty(); });
  return first == wrong.end() ? "" : *first;
}

}  // namespace lab
