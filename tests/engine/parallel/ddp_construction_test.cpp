#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/nn/layers.h"
#include "engine/nn/state_dict.h"
#include "engine/parallel/ddp/ddp.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;
using ::testing::HasSubstr;
using ModuleMaker = std::function<std::shared_ptr<nn::Module>(int rank)>;

std::shared_ptr<nn::Module> sequence_of(std::vector<std::shared_ptr<nn::Module>> layers) {
  return std::make_shared<nn::Sequential>(std::move(layers));
}

// Wraps make(rank) on every rank; all of them must throw the same message, which is returned.
std::string shared_verdict(int world_size, ErrorCode code, const ModuleMaker& make) {
  const auto errors = errors_of_ranks(world_size, [&](comm::Communicator& communicator) {
    Ddp ddp(make(communicator.rank()), communicator);
  });
  for (const auto& error : errors) {
    if (!error) {
      ADD_FAILURE() << "a rank accepted the model";
      return "";
    }
    EXPECT_EQ(to_string(error->code()), to_string(code)) << error->what();
    EXPECT_STREQ(error->what(), errors[0]->what()) << "the verdict is shared";
  }
  return errors[0]->what();
}

TEST(DdpConstruction, AllRanksStartWithTheStateOfRank0) {
  run_ranks(4, [](comm::Communicator& communicator) {
    const auto seed = static_cast<std::uint64_t>(communicator.rank());
    const auto make = [](std::uint64_t from) {
      const auto norm = std::make_shared<nn::BatchNorm1d>(3);
      norm->buffers()[0].fill(static_cast<double>(from));
      return sequence_of({make_linear(4, 3, from, DType::float32), norm});
    };
    const auto module = make(seed);
    module->to(test_device(communicator.rank()));
    Ddp ddp(module, communicator);
    const auto first = make(0);
    const nn::StateDict expected = nn::state_dict(*first);
    const nn::StateDict state = nn::state_dict(*module);
    ASSERT_EQ(state.size(), 7u) << "two layers of two parameters, and three buffers";
    for (std::size_t i = 0; i < state.size(); ++i) {
      expect_close(state[i].second, expected[i].second, kExact);
      EXPECT_EQ(state[i].second.device().index, communicator.rank()) << "it stays on its device";
    }
  });
}

TEST(DdpConstruction, EveryRankNamesTheFirstDifference) {
  LOCKSTEP_THREAD_RANKS_ONLY("compares the errors of all ranks");
  struct Case {
    int world_size;
    ErrorCode code;
    std::string words;
    ModuleMaker make;
  };
  const std::vector<Case> cases{
      {4, ErrorCode::Comm, "rank 2 has 4 parameters, rank 0 has 2",
       [](int rank) {
         std::vector<std::shared_ptr<nn::Module>> layers{make_linear(2, 2, 1)};
         if (rank >= 2) layers.push_back(make_linear(2, 2, 1));
         return sequence_of(layers);
       }},
      {4, ErrorCode::Comm,
       "parameter 2 (1.weight) is [7, 5] float64 on rank 1, but [5, 5] float64 on rank 0",
       [](int rank) {
         const std::size_t hidden = rank == 1 ? 7 : rank == 3 ? 9 : 5;
         return sequence_of(
             {make_linear(2, 5, 1), make_linear(5, hidden, 1), make_linear(hidden, 1, 1)});
       }},
      {2, ErrorCode::Comm, "(weight) is [4, 6] float64 on rank 1, but [6, 4]",
       [](int rank) { return make_linear(rank == 1 ? 6 : 4, rank == 1 ? 4 : 6, 1); }},
      {3, ErrorCode::Comm,
       "parameter 2 (1.weight) is [1, 2] float32 on rank 2, but [1, 2] float64 on rank 0",
       [](int rank) {
         const DType dtype = rank == 2 ? DType::float32 : DType::float64;
         return sequence_of({make_linear(2, 2, 1), make_linear(2, 1, 1, dtype)});
       }},
      {2, ErrorCode::Comm, "(bias) is [2] float64 without gradient on rank 1",
       [](int rank) {
         const auto linear = make_linear(2, 2, 1);
         Variable bias = linear->bias();
         if (rank == 1) bias.set_requires_grad(RequiresGrad::no);
         return linear;
       }},
      {2, ErrorCode::Comm, "buffer",
       [](int rank) {
         std::vector<std::shared_ptr<nn::Module>> layers{make_linear(2, 2, 1, DType::float32)};
         nn::BatchNormOptions without_parameters;
         without_parameters.affine = nn::BatchNormOptions::Affine::no;
         if (rank == 0) {
           layers.push_back(std::make_shared<nn::BatchNorm1d>(3, without_parameters));
         }
         return sequence_of(layers);
       }},
      {2, ErrorCode::Usage, "parameters that require a gradient",
       [](int) {
         return make_function_module({}, [](nn::Module&, const Variable& x) { return x; });
       }},
      {2, ErrorCode::Usage, "no module", [](int) { return std::shared_ptr<nn::Module>(); }},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(shared_verdict(c.world_size, c.code, c.make), HasSubstr(c.words));
  }
}

TEST(DdpConstruction, RanksThatShareAModelAreNamed) {
  const auto shared = make_linear(3, 2, 1);
  run_ranks(2, [&](comm::Communicator& communicator) {
    if (communicator.transport() != "thread") return;
    expect_error(ErrorCode::Usage, "ranks 0 and 1 wrap the same parameters",
                 [&] { Ddp(shared, communicator); });
  });
}

TEST(DdpConstruction, PrintsAsInPyTorch) {
  run_ranks(2, [](comm::Communicator& communicator) {
    Ddp ddp(make_linear(10, 1, 1), communicator);
    EXPECT_EQ(ddp.to_string(),
              "DistributedDataParallel(\n"
              "  (module): Linear(in_features=10, out_features=1, bias=True)\n"
              ")");
    EXPECT_EQ(nn::state_dict(ddp)[0].first, "module.weight");
  });
}

TEST(DdpConstruction, DestroyingTheWrapperRestoresPlainBehaviour) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto linear = make_linear(3, 2, 1);
    const Variable x(Tensor::full({4, 3}, communicator.rank() + 1, DType::float64));
    {
      Ddp ddp(linear, communicator);
      sum(ddp(x)).backward();
      expect_close(linear->weight().grad(), std::vector<double>(6, 6.0), kFloat64);
    }
    EXPECT_FALSE(linear->weight().grad_slot().defined());
    linear->zero_grad();
    sum((*linear)(x)).backward();
    expect_close(linear->weight().grad(), std::vector<double>(6, 4.0 * (communicator.rank() + 1)),
                 kFloat64);
    Ddp again(linear, communicator);
    linear->zero_grad();
    sum(again(x)).backward();
    expect_close(linear->weight().grad(), std::vector<double>(6, 6.0), kFloat64);
  });
}

}  // namespace
}  // namespace lockstep::testing
