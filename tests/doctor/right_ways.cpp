// right_ways NAME: trainings that are right and look like faults at first sight. The doctor must
// find nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datasets/digits.h"
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"

namespace {

using namespace lockstep;

constexpr std::size_t kSteps = 10;
constexpr std::size_t kRows = 30;  // each rank's rows in a step

struct Rank {
  comm::Communicator& group;
  Device device;
  data::LabelledTensors digits;
  std::shared_ptr<nn::Sequential> model;  // the same weights on all ranks

  std::size_t number() const { return static_cast<std::size_t>(group.rank()); }
  std::size_t world_size() const { return static_cast<std::size_t>(group.world_size()); }

  data::LabelledTensors take(std::size_t begin, std::size_t count) const {
    std::vector<std::size_t> rows;
    for (std::size_t row = begin; row < begin + count; ++row) rows.push_back(row % 1500);
    return digits.take(rows, device);
  }
  // Its rows of a batch.
  data::LabelledTensors batch(std::size_t step) const {
    return take((step * world_size() + number()) * kRows, kRows);
  }
};

Variable loss_of(nn::Module& net, const data::LabelledTensors& rows,
                 Reduction reduction = Reduction::mean) {
  return cross_entropy(net(Variable(rows.x)), rows.labels, reduction);
}

// The loop, of a model that reduces by itself or is helped by after_backward.
void train(
    nn::Module& net, const std::function<Variable(std::size_t)>& loss,
    const std::function<void()>& after_backward = [] {}) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.05});
  for (std::size_t step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    loss(step).backward();
    after_backward();
    sgd.step();
  }
}

// Replicas go their own ways and are averaged now and then.
void local_sgd(const Rank& rank) {
  optim::Sgd sgd(rank.model->parameters(), {.learning_rate = 0.05});
  for (std::size_t step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    loss_of(*rank.model, rank.batch(step)).backward();
    sgd.step();
    if (step % 4 != 3) continue;
    for (const Variable& parameter : rank.model->parameters()) {
      rank.group.all_reduce(parameter.value(), {.op = comm::ReduceOp::average});
    }
  }
}

// Each rank trains on all rows but those of its fold.
void cross_validation(const Rank& rank) {
  const std::size_t skipped = rank.number() * 60;
  train(*rank.model, [&](std::size_t step) {
    const std::size_t begin = step * kRows;
    return loss_of(*rank.model, rank.take(begin < skipped ? begin : begin + 60, kRows));
  });
}

// Ddp reduces after both passes; the average of an average is the same.
void accumulation_without_no_sync(const Rank& rank) {
  parallel::Ddp net(rank.model, rank.group);
  train(net, [&](std::size_t step) {
    scale(loss_of(net, rank.batch(2 * step)), 0.5).backward();
    return scale(loss_of(net, rank.batch(2 * step + 1)), 0.5);
  });
}

// Sums over rows, added up: the gradient of the sum over all.
void sum_of_losses(const Rank& rank) {
  train(
      *rank.model,
      [&](std::size_t step) { return loss_of(*rank.model, rank.batch(step), Reduction::sum); },
      [&] {
        for (const Variable& parameter : rank.model->parameters())
          rank.group.all_reduce(parameter.grad());
      });
}

// As for small number formats: the loss is scaled up, the gradient down again.
void scaled_loss(const Rank& rank) {
  parallel::Ddp net(rank.model, rank.group);
  train(
      net, [&](std::size_t step) { return scale(loss_of(net, rank.batch(step)), 1024); },
      [&] {
        for (const Variable& parameter : net.parameters()) {
          const Tensor& grad = parameter.grad();
          grad.bump_version();
          grad.backend().scale(grad.stream(), {grad.view(), 1.0 / 1024, grad.view()});
        }
      });
}

// Gradients are cut off after the average, on all ranks alike.
void clipped_values(const Rank& rank) {
  parallel::Ddp net(rank.model, rank.group);
  train(
      net, [&](std::size_t step) { return loss_of(net, rank.batch(step)); },
      [&] {
        for (const Variable& parameter : net.parameters()) {
          for (float& value : parameter.grad().host<float>())
            value = std::clamp(value, -0.01f, 0.01f);
        }
      });
}

void clipped_norm(const Rank& rank) {
  parallel::Ddp net(rank.model, rank.group);
  train(
      net, [&](std::size_t step) { return loss_of(net, rank.batch(step)); },
      [&] { optim::clip_grad_norm(net.parameters(), 0.1); });
}

// One buffer for all gradients, which are copied there and back.
void flat_buffer(const Rank& rank) {
  const Tensor flat = Tensor::empty({rank.model->num_parameters()}, DType::float32, rank.device);
  train(
      *rank.model, [&](std::size_t step) { return loss_of(*rank.model, rank.batch(step)); },
      [&] {
        std::size_t offset = 0;
        for (const Variable& parameter : rank.model->parameters()) {
          flat.slice(offset, parameter.shape()).copy_from(parameter.grad());
          offset += parameter.grad().num_elements();
        }
        rank.group.all_reduce(flat, {.op = comm::ReduceOp::average});
        offset = 0;
        for (const Variable& parameter : rank.model->parameters()) {
          parameter.grad().copy_from(flat.slice(offset, parameter.shape()));
          offset += parameter.grad().num_elements();
        }
      });
}

// The first layer stays as it is, and the two others have an optimizer each.
void frozen_layer_and_two_optimizers(const Rank& rank) {
  std::vector<Variable> all = rank.model->parameters();
  for (std::size_t i = 0; i < 2; ++i) all[i].set_requires_grad(RequiresGrad::no);
  parallel::Ddp net(rank.model, rank.group);
  optim::Sgd second({all[2], all[3]}, {.learning_rate = 0.05});
  optim::Sgd third({all[4], all[5]}, {.learning_rate = 0.01});
  for (std::size_t step = 0; step < kSteps; ++step) {
    second.zero_grad();
    third.zero_grad();
    loss_of(net, rank.batch(step)).backward();
    second.step();
    third.step();
  }
}

// Rank 0 trains a reference by itself before and after, with all rows.
void reference_on_rank_zero(const Rank& rank) {
  const auto reference = [&] {
    if (rank.number() != 0) return;
    const auto single = nn::make_mlp("mlp:64-16-12-10", /*seed=*/5);
    single->to(rank.device);
    train(*single, [&](std::size_t step) {
      return loss_of(*single, rank.take(step * 2 * kRows, 2 * kRows));
    });
  };
  reference();
  parallel::Ddp net(rank.model, rank.group);
  train(net, [&](std::size_t step) { return loss_of(net, rank.batch(step)); });
  reference();
}

// By messages, through rank 0.
void messages_through_rank_zero(const Rank& rank) {
  train(
      *rank.model,
      [&](std::size_t step) { return scale(loss_of(*rank.model, rank.batch(step)), 0.5); },
      [&] {
        for (const Variable& parameter : rank.model->parameters()) {
          const Tensor& grad = parameter.grad();
          if (rank.number() == 1) {
            rank.group.send(grad, 0);
            rank.group.recv(grad, 0);
            continue;
          }
          const Tensor other = Tensor::empty(grad.shape(), grad.dtype(), grad.device());
          rank.group.recv(other, 1);
          grad.bump_version();
          grad.backend().add(grad.stream(), {grad.view(), other.view(), grad.view()});
          rank.group.send(grad, 1);
        }
      });
}

using Way = std::function<void(const Rank&)>;
const std::map<std::string, Way> kWays{
    {"local_sgd", local_sgd},
    {"cross_validation", cross_validation},
    {"accumulation_without_no_sync", accumulation_without_no_sync},
    {"sum_of_losses", sum_of_losses},
    {"scaled_loss", scaled_loss},
    {"clipped_values", clipped_values},
    {"clipped_norm", clipped_norm},
    {"flat_buffer", flat_buffer},
    {"frozen_layer_and_two_optimizers", frozen_layer_and_two_optimizers},
    {"reference_on_rank_zero", reference_on_rank_zero},
    {"messages_through_rank_zero", messages_through_rank_zero}};

}  // namespace

int main(int argc, char** argv) {
  const auto way = kWays.find(argc == 2 ? argv[1] : "");
  if (way == kWays.end()) {
    fmt::print(stderr, "right_ways: expected the name of a way\n");
    return 2;
  }
  try {
    comm::run_ranks(2, [&](comm::Communicator& group) {
      const Device device{DeviceType::cpu, group.rank()};
      const auto model = nn::make_mlp("mlp:64-16-12-10", /*seed=*/0);
      model->to(device);
      way->second({group, device, datasets::load_digits().train, model});
    });
  } catch (const Error& error) {
    fmt::print(stderr, "right_ways: {}\n", error.what());
    return exit_code(error.code());
  }
  return 0;
}
