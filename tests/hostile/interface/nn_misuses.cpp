#include <limits>
#include <memory>

#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/nn/mlp.h"
#include "engine/nn/state_dict.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

using nn::Linear;
using nn::Module;
using nn::Sequential;
using ModulePtr = std::shared_ptr<Module>;

// A module as a user writes one, whose registration is in reach.
class Custom final : public nn::ModuleOf<Custom> {
 public:
  Variable forward(const Variable& x) override { return x; }
  std::string type_name() const override { return "Custom"; }
  using Module::register_buffer;
  using Module::register_child;
  using Module::register_parameter;
};

// Layers with parameters and buffers, [batch, in] -> [batch, out].
std::shared_ptr<Sequential> some_model(Rng& rng, std::size_t in, std::size_t out) {
  return std::make_shared<Sequential>(std::vector<ModulePtr>{
      std::make_shared<Linear>(in, 3, rng), std::make_shared<nn::BatchNorm1d>(3),
      std::make_shared<nn::ReLU>(), std::make_shared<Linear>(3, out, rng)});
}

void input_that_does_not_fit(Rng& rng) {
  const std::size_t in = between(rng, 1, 5);
  const auto model = some_model(rng, in, 2);
  const std::vector<Variable> inputs{
      Variable(),
      Variable(random_values(rng, {4, in + 1})),
      Variable(random_values(rng, {in})),
      Variable(random_values(rng, {4, in, 1})),
      Variable(random_values(rng, {4, in}, DType::float64)),
      Variable(Tensor::zeros({4, in}, random_integer(rng))),
      Variable(random_values(rng, {4, in}, DType::float32, {DeviceType::cpu, 1})),
      Variable(random_values(rng, {1, in})),  // its variance is that of one row
  };
  (*model)(one_of(rng, inputs));
}

void sizes_that_cannot_be(Rng& rng) {
  const std::size_t huge = (std::size_t{1} << between(rng, 32, 62)) + rng.below(1000);
  switch (rng.below(6)) {
    case 0:
      Linear(0, between(rng, 0, 5), rng);
      break;
    case 1:
      Linear(between(rng, 0, 5), 0, rng);
      break;
    case 2:
      Linear(huge, huge, rng);
      break;
    case 3:
      nn::BatchNorm1d(0);
      break;
    case 4:
      nn::BatchNorm1d(huge << 1 | std::size_t{1} << 60);
      break;
    default:
      nn::make_mlp(nn::MlpSpec{std::vector<std::size_t>(rng.below(2), 3)}, 0);
  }
}

void replacements_that_cannot_be(Rng& rng) {
  const auto model = some_model(rng, 2, 2);
  const Variable parameter(random_values(rng, {3}), RequiresGrad::yes);
  std::vector<Variable> parameters = model->parameters();
  std::vector<Tensor> buffers = model->buffers();
  parameters[rng.below(parameters.size())] = Variable();
  buffers[rng.below(buffers.size())] = Tensor();
  const std::vector<std::function<void()>> uses{
      [&] { model->set_parameter(rng.below(parameters.size()), Variable()); },
      [&] { model->set_parameter(parameters.size() + rng.below(99), parameter); },
      [&] { model->set_parameters(parameters); },
      [&] { model->set_parameters(std::vector<Variable>(rng.below(6), parameter)); },
      [&] { model->set_buffer(rng.below(buffers.size()), Tensor()); },
      [&] { model->set_buffer(buffers.size() + rng.below(99), Tensor::zeros({3})); },
      [&] { model->set_buffers(buffers); },
      [&] { model->set_buffers(std::vector<Tensor>(rng.below(3), Tensor::zeros({3}))); },
      [&] { model->to(no_device(rng)); },
      [&] { model->to(random_integer(rng)); },
      [&] { (*model)[model->size() + rng.below(99)]; },
      [&] { Linear(2, 2, rng, {nn::Bias::no}).bias().grad(); },
  };
  one_of(rng, uses)();
}

void registrations_that_cannot_be(Rng& rng) {
  Custom module;
  module.register_buffer("taken", Tensor::zeros({1}));
  const std::string name = one_of<std::string>(rng, {"taken", "", "a.b", "."});
  const std::vector<std::function<void()>> uses{
      [&] { module.register_buffer(name, Tensor::zeros({1})); },
      [&] { module.register_parameter(name, Tensor::zeros({1})); },
      [&] { module.register_child(name, std::make_shared<Custom>()); },
      [&] { module.register_buffer("free", {}); },
      [&] { module.register_parameter("free", {}); },
      [&] { module.register_parameter("free", Tensor::zeros({1}, random_integer(rng))); },
      [&] { module.register_child("free", nullptr); },
      [&] { Sequential(std::vector<ModulePtr>(between(rng, 1, 5))); },
  };
  one_of(rng, uses)();
}

void state_that_does_not_fit(Rng& rng) {
  const auto model = some_model(rng, 2, 2);
  nn::StateDict state = nn::state_dict(*some_model(rng, 2, 2));
  const std::size_t entry = rng.below(state.size());
  switch (rng.below(6)) {
    case 0:
      state.erase(state.begin() + static_cast<std::ptrdiff_t>(entry));
      break;
    case 1:
      state.push_back(state[entry]);
      break;
    case 2:
      state.emplace_back(garbage(rng), Tensor::zeros({1}));
      break;
    case 3:
      state[entry].second = Tensor();
      break;
    case 4:
      state[entry].first = garbage(rng);
      break;
    default:
      state[entry].second = Tensor::zeros(other_shape(rng, state[entry].second.shape()));
  }
  nn::load_state_dict(*model, state);
}

void too_deep(Rng& rng) {
  ModulePtr model = std::make_shared<nn::ReLU>();
  for (std::size_t i = between(rng, 1001, 3000); i > 0; --i) {
    model = std::make_shared<Sequential>(std::vector<ModulePtr>{std::move(model)});
  }
  const Variable x = leaf(rng, {2});
  const std::vector<std::function<void()>> uses{
      [&] { (*model)(x); },      [&] { model->parameters(); },   [&] { model->train(); },
      [&] { model->buffers(); }, [&] { model->shallow_copy(); }, [&] { model->to_string(); },
  };
  one_of(rng, uses)();
}

void flatten_what_is_not_there(Rng& rng) {
  const int first = static_cast<int>(between(rng, 3, 9));
  nn::Flatten flatten = one_of<nn::Flatten>(
      rng, {nn::Flatten(first), nn::Flatten(0, first), nn::Flatten(2, 1), nn::Flatten(-first - 1)});
  flatten(leaf(rng, {2, 3, 4}));
}

}  // namespace

Misuses nn_misuses() {
  return {
      {"an input that does not fit", input_that_does_not_fit},
      {"sizes that cannot be", sizes_that_cannot_be},
      {"replacements that cannot be", replacements_that_cannot_be},
      {"registrations that cannot be", registrations_that_cannot_be},
      {"a state that does not fit", state_that_does_not_fit},
      {"modules nested too deep", too_deep},
      {"dimensions to flatten that are not there", flatten_what_is_not_there},
      {"a model that is none", [](Rng& rng) { nn::make_mlp(garbage(rng), 0); }},
      {"a probability that is none",
       [](Rng& rng) {
         const double nan = std::numeric_limits<double>::quiet_NaN();
         nn::Dropout(one_of<double>(rng, {-1e-9, 1.5, 1e300, nan}), 0, 0);
       }},
      {"guesses that cannot be compared",
       [](Rng& rng) {
         const std::size_t rows = between(rng, 1, 5);
         const std::vector<Tensor> labels{
             Tensor(), Tensor::zeros({rows + 1}, DType::int64),
             Tensor::zeros({rows, 1}, DType::int64),
             Tensor::zeros({rows}, DType::int64, {DeviceType::cpu, 1})};
         nn::count_correct(random_values(rng, {rows, 3}), one_of(rng, labels));
       }},
  };
}

}  // namespace lockstep::testing
