// The gradients that backward leaves in a wrapped module, and where it leaves them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/nn/layers.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/parallel/sharded/sharded.h"
#include "engine/trace/counters.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;
using parallel::DdpOptions;

Variable input_of(int rank, std::size_t rows = 4, std::uint64_t step = 0) {
  return Variable(random_tensor({rows, 3}, 100 * step + static_cast<std::uint64_t>(rank)));
}

std::shared_ptr<nn::Module> make_net() {
  return std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      make_linear(3, 5, 1), std::make_shared<nn::Tanh>(), make_linear(5, 2, 2)});
}

// The mean over ranks of the gradients of mean(net(input_of(rank))), computed one by one.
std::vector<Tensor> mean_of_local_gradients(int world_size) {
  std::vector<Tensor> means;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto net = make_net();
    mean((*net)(input_of(rank))).backward();
    const std::vector<Variable> parameters = net->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (rank == 0) means.push_back(Tensor::zeros(parameters[i].shape(), DType::float64));
      means[i].backend().axpy(means[i].stream(),
                              {1.0 / world_size, parameters[i].grad().view(), means[i].view()});
    }
  }
  return means;
}

void expect_gradients(const nn::Module& module, const std::vector<Tensor>& expected) {
  const std::vector<Variable> parameters = module.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_close(parameters[i].grad(), expected[i], kFloat64);
  }
}

class DdpAverage : public ::testing::TestWithParam<int> {};

TEST_P(DdpAverage, IsTheMeanOfTheRanksLocalGradients) {
  const std::vector<Tensor> expected = mean_of_local_gradients(GetParam());
  run_ranks(GetParam(), [&](comm::Communicator& communicator) {
    const auto net = make_net();
    Ddp ddp(net, communicator);
    for (int step = 0; step < 3; ++step) {  // before and after the rebuild
      net->zero_grad();
      mean(ddp(input_of(communicator.rank()))).backward();
      expect_gradients(*net, expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpAverage, ::testing::Values(1, 2, 3, 5, 8));

// The gradient of mean(dropout(w * x)) in each of three steps, in a loop that counts nothing.
std::vector<std::vector<double>> dropout_gradients(const Tensor& x,
                                                   comm::Communicator* communicator) {
  const auto net = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      make_linear(3, 5, 1), std::make_shared<nn::Dropout>(0.5, 7, 0)});
  std::shared_ptr<nn::Module> model = net;
  if (communicator) model = std::make_shared<Ddp>(net, *communicator);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0});
  std::vector<std::vector<double>> gradients;
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    mean((*model)(Variable(x))).backward();
    gradients.push_back(net->parameters()[0].grad().to_vector<double>());
    sgd.step();
  }
  return gradients;
}

TEST(DdpGradients, DropoutInAnyLoopDrawsWhatOneDeviceDraws) {
  const Tensor x = random_tensor({8, 3}, 5);
  const auto alone = dropout_gradients(x, nullptr);
  EXPECT_NE(alone[0], alone[1]) << "every step draws another mask";
  EXPECT_NE(alone[1], alone[2]);
  run_ranks(2, [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto shared = dropout_gradients(x.rows(4 * rank, 4 * rank + 4), &communicator);
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < alone[step].size(); ++i) {
        EXPECT_NEAR(shared[step][i], alone[step][i], 1e-14);
      }
    }
  });
}

TEST(DdpGradients, EqualShardsGiveTheMeanOverTheBatch) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Tensor x = random_tensor({8, 3}, 5);
    const auto alone = make_net();
    mean((*alone)(Variable(x))).backward();
    const auto net = make_net();
    Ddp ddp(net, communicator);
    mean(ddp(Variable(x.rows(4 * rank, 4 * rank + 4)))).backward();
    expect_close(net->parameters()[0].grad(), alone->parameters()[0].grad(), kFloat64);

    net->zero_grad();
    mean(ddp(Variable(rank == 0 ? x.rows(0, 7) : x.rows(7, 8)))).backward();
    const double got = net->parameters()[0].grad().to_vector<double>()[0];
    EXPECT_GT(std::abs(got - alone->parameters()[0].grad().to_vector<double>()[0]), 1e-3);
  });
}

TEST(DdpGradients, ParametersOnSeveralDevicesAreReducedOnEach) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const Device first = test_device(2 * communicator.rank());
    const Device second = test_device(2 * communicator.rank() + 1);
    const auto a = make_linear(3, 4, 1);
    const auto b = make_linear(4, 2, 2);
    const auto c = make_linear(3, 2, 3);
    a->to(first);
    b->to(second);
    c->to(second);
    const auto module =
        make_function_module({a, b, c}, [first, second](nn::Module& self, const Variable& x) {
          const Variable left = call_child(self, 1, to(call_child(self, 0, x), second));
          return to(add(left, call_child(self, 2, to(x, second))), first);
        });
    Ddp ddp(module, communicator);
    ASSERT_EQ(ddp.reducer().bucket_plan().buckets.size(), 2u) << "one for each device";
    for (int step = 0; step < 10; ++step) {
      module->zero_grad();
      sum(ddp(Variable(random_tensor({4, 3}, 1, DType::float64, first)))).backward();
      expect_close(b->bias().grad(), {4, 4}, kFloat64);
      EXPECT_EQ(b->bias().grad().device(), second);
      EXPECT_EQ(a->bias().grad().device(), first);
    }
  });
}

TEST(DdpGradients, BuffersFollowRank0) {
  run_ranks(3, [](comm::Communicator& communicator) {
    const auto make = [] { return std::make_shared<nn::BatchNorm1d>(3); };
    const auto x = [](int rank) {
      return Variable(random_tensor({6, 3}, static_cast<std::uint64_t>(rank), DType::float32));
    };
    const auto first = make();  // what rank 0's module sees
    (*first)(x(0));
    const auto norm = make();
    Ddp ddp(norm, communicator);
    sum(ddp(x(communicator.rank()))).backward();
    norm->zero_grad();
    // The next forward pass starts from rank 0's statistics on every rank.
    (*first)(x(communicator.rank() + 10));
    sum(ddp(x(communicator.rank() + 10))).backward();
    for (std::size_t i = 0; i < 3; ++i) {
      expect_close(norm->buffers()[i], first->buffers()[i], kExact);
    }
  });
}

std::size_t num_broadcasts_of(int rank) {
  for (const trace::CollectiveCount& count : trace::collective_counts()) {
    if (count.rank == rank && count.operation == "broadcast") return count.num_calls;
  }
  return 0;
}

// wrap(net, communicator): trains it.
void expect_two_broadcasts(
    const std::function<std::shared_ptr<nn::Module>(const std::shared_ptr<nn::Module>& net,
                                                    comm::Communicator& communicator)>& wrap) {
  run_ranks(2, [&](comm::Communicator& communicator) {
    const auto net = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
        std::make_shared<nn::BatchNorm1d>(3), std::make_shared<nn::BatchNorm1d>(3)});
    const auto wrapped = wrap(net, communicator);
    std::size_t before = 0;
    for (const std::int64_t step : {1, 2, 3}) {
      before = num_broadcasts_of(communicator.rank());
      net->buffers()[3].fill(100 * communicator.rank());  // the second layer's mean
      sum((*wrapped)(Variable(random_tensor({4, 3}, 1, DType::float32)))).backward();
      EXPECT_LT(std::abs(net->buffers()[3][0]), 1) << "rank 0's, and the batch has mean 0";
      EXPECT_EQ(net->buffers()[2].item(), step);
      EXPECT_EQ(net->buffers()[5].item(), step);
    }
    EXPECT_EQ(num_broadcasts_of(communicator.rank()) - before, 2u)
        << "one of four statistics in float32, one of two counters in int64";
  });
}

TEST(DdpGradients, BuffersOfADtypeTravelInOneMessage) {
  expect_two_broadcasts([](const auto& net, comm::Communicator& communicator) {
    return std::make_shared<Ddp>(net, communicator);
  });
  expect_two_broadcasts([](const auto& net, comm::Communicator& communicator) {
    return std::make_shared<parallel::Sharded>(net, communicator, parallel::ShardDepth::optimizer);
  });
}

TEST(DdpGradients, BuffersThatAreReplacedFollowRank0Too) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto norm = std::make_shared<nn::BatchNorm1d>(3);
    Ddp ddp(norm, communicator);
    std::vector<Tensor> others;
    for (const Tensor& buffer : norm->buffers()) others.push_back(Tensor::zeros_like(buffer));
    others[2].fill(communicator.rank() + 5);
    norm->set_buffers(others);
    sum(ddp(Variable(random_tensor({4, 3}, 1, DType::float32)))).backward();
    EXPECT_EQ(norm->buffers()[2].item(), 6) << "rank 0's 5, and one batch more";
  });
}

// x * scale, where the scale is a buffer that backward needs again.
class Scaled final : public nn::ModuleOf<Scaled> {
 public:
  explicit Scaled(std::shared_ptr<nn::Module> then) {
    register_buffer("scale", Tensor::full({4, 3}, 2, DType::float32));
    register_child("then", std::move(then));
  }
  Variable forward(const Variable& x) override {
    return (*children()[0].second)(multiply(x, Variable(own_buffers()[0].second)));
  }
};

TEST(DdpGradients, ABufferThatBackwardNeedsMayStandBesideOneThatChanges) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto norm = std::make_shared<nn::BatchNorm1d>(3);
    Ddp ddp(std::make_shared<Scaled>(norm), communicator);
    Variable x(random_tensor({4, 3}, 1, DType::float32), RequiresGrad::yes);
    sum(ddp(x)).backward();
    EXPECT_TRUE(x.grad().defined());
    EXPECT_EQ(norm->buffers()[2].item(), 1);
  });
}

TEST(DdpGradients, BuffersMayStayEachRanksOwn) {
  run_ranks(2, [](comm::Communicator& communicator) {
    DdpOptions options;
    options.buffers = DdpOptions::Buffers::keep;
    const auto norm = std::make_shared<nn::BatchNorm1d>(3);
    Ddp ddp(norm, communicator, options);
    norm->buffers()[0].fill(communicator.rank());
    const Variable x(Tensor::full({4, 3}, 1.0, DType::float32));
    sum(ddp(x)).backward();
    expect_close(norm->buffers()[0], std::vector<double>(3, 0.9 * communicator.rank() + 0.1),
                 kFloat32);
  });
}

TEST(DdpGradients, EvaluationCommunicatesNothing) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto norm = std::make_shared<nn::BatchNorm1d>(3);
    Ddp ddp(norm, communicator);
    const Variable x(random_tensor({4, 3}, 1, DType::float32));
    // Were there a collective in it, rank 0 would wait for rank 1.
    if (communicator.rank() == 0) {
      const NoGradScope no_grad;
      ddp(x);
      ddp.eval();
      ddp(x);
      ddp.train();
    }
    sum(ddp(x)).backward();
    EXPECT_EQ(ddp.reducer().num_all_reduces(), 1u);
  });
}

}  // namespace
}  // namespace lockstep::testing
