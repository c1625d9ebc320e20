// Every module has names, replacement, copies, moving, printing.
#include "engine/nn/module.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::random_tensor;
using lockstep::testing::test_device;
using Strings = std::vector<std::string>;

const Device kOther = test_device(1);

// A module as a user writes one: two layers and a parameter of its own.
class TwoLayers final : public ModuleOf<TwoLayers> {
 public:
  explicit TwoLayers(Rng& rng) {
    register_parameter("gain", Tensor::full({}, 2.0));
    register_child("first", std::make_shared<Linear>(3, 4, rng));
    register_child("norm", std::make_shared<BatchNorm1d>(4));
    register_child("second", std::make_shared<Linear>(4, 2, rng));
  }
  Variable forward(const Variable& x) override {
    Module& first = *children()[0].second;
    Module& norm = *children()[1].second;
    Module& second = *children()[2].second;
    return second(norm(first(x)));
  }
  std::string type_name() const override { return "TwoLayers"; }
  std::string extra_text() const override { return "gain=2.0"; }

  // Registration as users reach it, for the errors.
  void add(const std::string& name) { register_buffer(name, Tensor::zeros({1})); }
  void add_undefined(const std::string& name) { register_buffer(name, Tensor()); }
};

// Uses one layer twice.
class Shared final : public ModuleOf<Shared> {
 public:
  explicit Shared(const std::shared_ptr<Module>& layer) {
    register_child("a", layer);
    register_child("b", layer);
  }
  Variable forward(const Variable& x) override {
    return (*children()[1].second)((*children()[0].second)(x));
  }
  std::string type_name() const override { return "Shared"; }
};

Strings names(const std::vector<NamedParameter>& parameters) {
  Strings result;
  for (const auto& [name, parameter] : parameters) result.push_back(name);
  return result;
}

class ModuleTest : public ::testing::Test {
 protected:
  Rng rng_{1};
  TwoLayers model_{rng_};
};

TEST_F(ModuleTest, ListsParametersDepthFirstInOrderOfRegistration) {
  EXPECT_EQ(names(model_.named_parameters()),
            (Strings{"gain", "first.weight", "first.bias", "norm.weight", "norm.bias",
                     "second.weight", "second.bias"}));
  EXPECT_EQ(names(model_.named_parameters("module")).front(), "module.gain");
  EXPECT_EQ(model_.parameters().size(), 7u);
  EXPECT_EQ(model_.num_parameters(), 1u + 12 + 4 + 4 + 4 + 8 + 2);
}

TEST_F(ModuleTest, ASharedParameterIsListedOnce) {
  Shared shared(std::make_shared<Linear>(3, 3, rng_));
  EXPECT_EQ(names(shared.named_parameters()), (Strings{"a.weight", "a.bias"}));
  const auto copy = shared.shallow_copy();
  copy->set_parameters({Variable(Tensor::zeros({3, 3})), Variable(Tensor::full({3}, 1.0))});
  const Variable y = (*copy)(Variable(random_tensor({2, 3}, 1, DType::float32)));
  EXPECT_EQ(y.value().to_vector<double>(), std::vector<double>(6, 1.0));
  EXPECT_EQ(names(copy->named_parameters()), (Strings{"a.weight", "a.bias"}));
}

TEST_F(ModuleTest, ParametersRequireGradientsAndGetThem) {
  sum((model_)(Variable(random_tensor({5, 3}, 1, DType::float32)))).backward();
  for (const auto& [name, parameter] : model_.named_parameters()) {
    EXPECT_TRUE(parameter.requires_grad()) << name;
    EXPECT_EQ(parameter.grad().defined(), name != "gain") << name;
  }
  model_.zero_grad();
  for (const auto& [name, parameter] : model_.named_parameters()) {
    EXPECT_FALSE(parameter.grad().defined()) << name;
  }
}

TEST_F(ModuleTest, AShallowCopyRunsWithReplacedParameters) {
  const auto copy = model_.shallow_copy();
  std::vector<Variable> moved;
  for (const Variable& parameter : model_.parameters()) moved.push_back(to(parameter, kOther));
  std::vector<Tensor> buffers;
  for (const Tensor& buffer : model_.buffers()) buffers.push_back(buffer.to(kOther));
  copy->set_parameters(moved);
  copy->set_buffers(buffers);
  const Tensor x = random_tensor({5, 3}, 1, DType::float32);
  const Variable there = (*copy)(Variable(x.to(kOther)));
  EXPECT_EQ(there.device(), kOther);
  sum(there).backward();
  const Tensor grad = model_.parameters()[1].grad();
  EXPECT_EQ(grad.device(), test_device());
  // The copy wrote into buffers of its own.
  EXPECT_EQ(model_.buffers()[2].item(), 0);
  EXPECT_EQ(copy->buffers()[2].item(), 1);
  model_.zero_grad();
  const Variable here = model_(Variable(x));
  expect_close(there.value(), here.value().to_vector<double>(), kExact);
  sum(here).backward();
  expect_close(grad, model_.parameters()[1].grad(), kExact);
}

TEST_F(ModuleTest, ReplacingNeedsAsManyAsThereAre) {
  expect_error(ErrorCode::Usage, "TwoLayers has 7 parameters, found 0",
               [&] { model_.set_parameters({}); });
  expect_error(ErrorCode::State, "the variable for parameter 0 of TwoLayers is undefined",
               [&] { model_.set_parameters(std::vector<Variable>(7)); });
  std::vector<Tensor> buffers = model_.buffers();
  buffers[1] = Tensor();
  expect_error(ErrorCode::State, "the tensor for buffer 1 of TwoLayers is undefined",
               [&] { model_.set_buffers(buffers); });
  EXPECT_TRUE(model_.parameters()[0].defined());
  expect_error(ErrorCode::Usage, "TwoLayers has 3 buffers, found 1",
               [&] { model_.set_buffers({Tensor::zeros({1})}); });
}

TEST_F(ModuleTest, ModeReachesAllChildrenAndIsCopied) {
  EXPECT_TRUE(model_.is_training());
  model_.eval();
  EXPECT_FALSE(model_.children()[1].second->is_training());
  const auto copy = model_.shallow_copy();
  EXPECT_FALSE(copy->is_training());
  model_.train();
  EXPECT_TRUE(model_.children()[1].second->is_training());
  EXPECT_FALSE(copy->children()[1].second->is_training());
}

TEST_F(ModuleTest, MovingKeepsHandlesValidAndTakesGradientsAlong) {
  const std::vector<Variable> handles = model_.parameters();
  sum((model_)(Variable(random_tensor({5, 3}, 1, DType::float32)))).backward();
  const std::vector<double> before = handles[1].grad().to_vector<double>();
  model_.to(kOther);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    EXPECT_TRUE(handles[i].is_same(model_.parameters()[i]));
    EXPECT_EQ(handles[i].device(), kOther);
  }
  for (const Tensor& buffer : model_.buffers()) EXPECT_EQ(buffer.device(), kOther);
  EXPECT_EQ(handles[1].grad().device(), kOther);
  expect_close(handles[1].grad(), before, kExact);
}

TEST_F(ModuleTest, ADtypeAppliesToFloatingTensorsOnly) {
  model_.to(DType::float64);
  for (const Variable& parameter : model_.parameters()) {
    EXPECT_EQ(parameter.dtype(), DType::float64);
  }
  EXPECT_EQ(model_.buffers()[0].dtype(), DType::float64);
  EXPECT_EQ(model_.buffers()[2].dtype(), DType::int64);
  expect_error(ErrorCode::DType, "a module only takes floating dtypes, found int64",
               [&] { model_.to(DType::int64); });
}

TEST_F(ModuleTest, NamesAreUniqueAndHaveNoDots) {
  expect_error(ErrorCode::Usage, "the name 'gain' is taken", [&] { model_.add("gain"); });
  expect_error(ErrorCode::Usage, "the name 'first' is taken", [&] { model_.add("first"); });
  expect_error(ErrorCode::Usage, "must not be empty or have a dot", [&] { model_.add("a.b"); });
  expect_error(ErrorCode::Usage, "must not be empty or have a dot", [&] { model_.add(""); });
  expect_error(ErrorCode::State, "the buffer 'mean' is an undefined tensor",
               [&] { model_.add_undefined("mean"); });
}

TEST_F(ModuleTest, PrintsAsPyTorchDoes) {
  // print(nn.Sequential(nn.Linear(10, 1), nn.ReLU(), nn.Sequential(nn.Linear(1, 2, bias=False),
  //   nn.GELU()), nn.Dropout(1.0), nn.Flatten(), nn.Sigmoid(), nn.Tanh(), nn.GELU('tanh')))
  LinearOptions no_bias;
  no_bias.bias = Bias::no;
  const Sequential inner({std::make_shared<Linear>(1, 2, rng_, no_bias), std::make_shared<GELU>()});
  const Sequential model({std::make_shared<Linear>(10, 1, rng_), std::make_shared<ReLU>(),
                          inner.shallow_copy(), std::make_shared<Dropout>(1.0, 1, 0),
                          std::make_shared<Flatten>(), std::make_shared<Sigmoid>(),
                          std::make_shared<Tanh>(), std::make_shared<GELU>(GeluForm::tanh)});
  EXPECT_EQ(model.to_string(), R"(Sequential(
  (0): Linear(in_features=10, out_features=1, bias=True)
  (1): ReLU()
  (2): Sequential(
    (0): Linear(in_features=1, out_features=2, bias=False)
    (1): GELU(approximate='none')
  )
  (3): Dropout(p=1.0, inplace=False)
  (4): Flatten(start_dim=1, end_dim=-1)
  (5): Sigmoid()
  (6): Tanh()
  (7): GELU(approximate='tanh')
))");
  EXPECT_EQ(Sequential({}).to_string(), "Sequential()");
  EXPECT_EQ(
      BatchNorm1d(8).to_string(),
      "BatchNorm1d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)");
  EXPECT_EQ(Dropout(0.5, 1, 0).to_string(), "Dropout(p=0.5, inplace=False)");
}

TEST_F(ModuleTest, CloneHasValuesOfItsOwn) {
  Linear original(3, 2, rng_);
  const std::shared_ptr<Module> copy = original.clone();
  const std::vector<double> before = copy->parameters()[0].value().to_vector<double>();
  original.parameters()[0].value().fill(7);
  EXPECT_EQ(copy->parameters()[0].value().to_vector<double>(), before);
  EXPECT_TRUE(copy->parameters()[0].requires_grad());
}

class Halved : public ModuleOf<Halved> {
 public:
  Variable forward(const Variable& x) override { return scale(x, 0.5); }
};
class Quartered final : public Halved {
 public:
  Variable forward(const Variable& x) override { return scale(x, 0.25); }
};

TEST_F(ModuleTest, AClassThatWouldBeCopiedAsItsBaseIsNamed) {
  EXPECT_EQ(Halved().shallow_copy()->type_name(), "Halved");
  expect_error(ErrorCode::State, "a copy of this Quartered would be a Halved",
               [] { Quartered().shallow_copy(); });
}

// As a learner writes one: a layer is a member.
class Learner final : public ModuleOf<Learner> {
 public:
  Learner() { register_child("fc", fc); }
  Variable forward(const Variable& x) override { return fc(x); }

  // Registers a layer that is no member.
  void add_foreign(Module& layer) { register_child("foreign", layer); }
  Linear& layer() { return fc; }

 private:
  Linear fc{5, 2};
};

class Outer final : public ModuleOf<Outer> {
 public:
  Outer() { register_child("inner", inner); }
  Variable forward(const Variable& x) override { return relu(inner(x)); }
  Learner inner;
};

TEST(MemberLayers, AreListedMovedAndPrinted) {
  Outer model;
  EXPECT_EQ(names(model.named_parameters()), (Strings{"inner.fc.weight", "inner.fc.bias"}));
  EXPECT_EQ(model.to_string(),
            "Outer(\n  (inner): Learner(\n    (fc): Linear(in_features=5, out_features=2, "
            "bias=True)\n  )\n)");
  model.to(kOther);
  EXPECT_EQ(model.inner.layer().weight().device(), kOther);
  EXPECT_EQ(model(Tensor::zeros({3, 5}, DType::float32, kOther)).shape(), (Shape{3, 2}));
}

TEST(MemberLayers, OfACopyAreItsOwn) {
  Outer model;
  const Tensor before = model.parameters()[0].value();
  const std::shared_ptr<Module> copy = model.shallow_copy();
  EXPECT_TRUE(copy->parameters()[0].is_same(model.parameters()[0]));
  copy->set_parameters({Variable(Tensor::zeros({2, 5})), Variable(Tensor::full({2}, 7))});
  EXPECT_EQ((*copy)(Tensor::zeros({1, 5})).value().to_vector<double>(),
            (std::vector<double>{7, 7}));
  EXPECT_TRUE(model.inner.layer().weight().value().shares_memory_with(before));
}

TEST(MemberLayers, MustBeMembers) {
  Learner model;
  Linear other{5, 2};
  expect_error(ErrorCode::Usage, "not a member of this Learner", [&] { model.add_foreign(other); });
  expect_error(ErrorCode::Usage, "'fc' is taken", [&] {
    struct Twice final : ModuleOf<Twice> {
      Twice() {
        register_child("fc", fc);
        register_child("fc", fc);
      }
      Variable forward(const Variable& x) override { return x; }
      Linear fc{5, 2};
    } twice;
  });
}

TEST(MemberLayers, DrawFromTheThreadsGenerator) {
  manual_seed(3);
  Rng rng(3);
  expect_close(Linear(5, 2).weight().value(), Linear(5, 2, rng).weight().value(), kExact);
  std::thread([] {
    Rng fresh(0);
    expect_close(Linear(5, 2).weight().value(), Linear(5, 2, fresh).weight().value(), kExact);
  }).join();
}

}  // namespace
}  // namespace lockstep::nn
