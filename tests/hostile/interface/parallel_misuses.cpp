#include <memory>

#include "engine/autograd/ops/ops.h"
#include "engine/comm/run_ranks.h"
#include "engine/nn/layers.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/data_parallel/stages.h"
#include "engine/parallel/ddp/ddp.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

using namespace parallel;
using ModulePtr = std::shared_ptr<nn::Module>;

const std::vector<Device> kDevices{{DeviceType::cpu, 0}, {DeviceType::cpu, 1}};

ModulePtr some_layer(Rng& rng) {
  return std::make_shared<nn::Linear>(3, 2, rng);
}

void wrap_what_cannot_be(Rng& rng) {
  const ModulePtr layer = some_layer(rng);
  const ModulePtr elsewhere = some_layer(rng);
  elsewhere->to(kDevices[1]);
  const Variable x = leaf(rng, {4, 3});
  const std::vector<std::function<void()>> uses{
      [&] { DataParallel(nullptr); },
      [&] { data_parallel(nullptr, x); },
      [&] { DataParallel(std::make_shared<DataParallel>(layer)); },
      [&] {
        DataParallel(layer, {{kDevices[0], kDevices[0]}});
      },
      [&] {
        DataParallel(layer, {{kDevices[0], no_device(rng)}});
      },
      [&] {
        DataParallel(layer, {kDevices, no_device(rng)});
      },
      [&] { DataParallel(elsewhere, {kDevices})(x); },
      [&] { DataParallel(layer, {kDevices})(Variable()); },
      [&] {
        DataParallel(layer, {kDevices})(leaf(rng, {4, 2}));
      },
      [&] {
        DataParallel(layer, {kDevices, {}, between(rng, 2, 99)})(x);
      },
  };
  one_of(rng, uses)();
}

void cut_what_cannot_be(Rng& rng) {
  const Shape shape = random_shape(rng);
  const Variable x = leaf(rng, shape);
  const std::size_t dim = shape.num_dims() + rng.below(99);
  const std::vector<std::function<void()>> uses{
      [&] { scatter(x, kDevices, dim); },
      [&] { scatter(x.value(), kDevices, dim); },
      [&] { scatter(leaf(rng, {4}), {}); },
      [&] { scatter(Variable(), kDevices); },
      [&] { scatter(Tensor(), kDevices); },
      [&] {
        scatter(leaf(rng, {4}), {kDevices[0], no_device(rng)});
      },
      [&] {
        scatter_with_sizes(leaf(rng, {4}), kDevices, {3, between(rng, 2, 99)});
      },
      [&] {
        scatter_with_sizes(leaf(rng, {4}), kDevices, {4, 0});
      },
      [&] { scatter_with_sizes(leaf(rng, {4}), kDevices, {4}); },
      [&] {
        scatter_with_sizes(x, kDevices, {1, 1}, dim);
      },
  };
  one_of(rng, uses)();
}

void join_what_does_not_fit(Rng& rng) {
  const Variable x = leaf(rng, {2, 3});
  const std::vector<std::function<void()>> uses{
      [&] { gather({}, kDevices[0]); },
      [&] {
        gather({x, Variable()}, kDevices[0]);
      },
      [&] {
        gather({x, leaf(rng, {2, 4})}, kDevices[0]);
      },
      [&] {
        gather({x, leaf(rng, {2})}, kDevices[0]);
      },
      [&] {
        gather({x, leaf(rng, {2, 3}, DType::float64)}, kDevices[0]);
      },
      [&] {
        gather({x, x}, kDevices[0], between(rng, 2, 99));
      },
      [&] {
        gather({x, x}, no_device(rng));
      },
  };
  one_of(rng, uses)();
}

void replicas_that_cannot_be(Rng& rng) {
  const ModulePtr layer = some_layer(rng);
  const Variable x = leaf(rng, {4, 3});
  const std::vector<std::function<void()>> uses{
      [&] { replicate(*layer, {}); },
      [&] {
        replicate(*layer, {kDevices[1], kDevices[0]});
      },
      [&] {
        replicate(*layer, {kDevices[0], no_device(rng)});
      },
      [&] { copy_module(*layer, no_device(rng)); },
      [&] {
        parallel_apply({layer}, {x, x});
      },
      [&] {
        parallel_apply({layer, nullptr}, {x, x});
      },
      [&] { parallel_apply({layer}, {Variable()}); },
      [&] {
        parallel_apply({layer}, {leaf(rng, {4, 2})});
      },
  };
  one_of(rng, uses)();
}

void ddp_that_cannot_be(Rng& rng) {
  const ModulePtr frozen = some_layer(rng);
  for (Variable& parameter : frozen->parameters()) {
    parameter.set_requires_grad(RequiresGrad::no);
  }
  const ModulePtr layer = some_layer(rng);
  const std::uint64_t kind = rng.below(5);
  comm::run_ranks(1, [&](comm::Communicator& communicator) {
    switch (kind) {
      case 0:
        Ddp(nullptr, communicator);
        break;
      case 1:
        Ddp(frozen, communicator);
        break;
      case 2:
        Ddp(std::make_shared<nn::ReLU>(), communicator);
        break;
      case 3: {
        Ddp ddp(layer, communicator);
        layer->to(DType::float64);
        ddp(Variable(Tensor::zeros({2, 3}, DType::float64)));
        break;
      }
      default: {
        Ddp ddp(layer, communicator);
        sum(layer->parameters()[0]).backward();  // the bias gets no gradient
      }
    }
  });
}

}  // namespace

Misuses parallel_misuses() {
  return {
      {"a module to wrap that cannot be", wrap_what_cannot_be},
      {"a cut that cannot be", cut_what_cannot_be},
      {"parts to join that do not fit", join_what_does_not_fit},
      {"replicas that cannot be", replicas_that_cannot_be},
      {"a distributed module that cannot be", ddp_that_cannot_be},
  };
}

}  // namespace lockstep::testing
