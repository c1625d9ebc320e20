// The bucket plan at work: how many all-reduces there are, in which order, over which bytes.
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/nn/layers.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/trace/recorder.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;
using parallel::DdpOptions;
using Groups = std::vector<std::vector<std::size_t>>;

DdpOptions with_limits(std::vector<std::size_t> limits) {
  DdpOptions options;
  options.reducer.bucket_byte_limits = std::move(limits);
  return options;
}

Groups groups_of(const plan::BucketPlan& plan) {
  Groups groups;
  for (const plan::Bucket& bucket : plan.buckets) groups.push_back(bucket.parameters());
  return groups;
}

// Layers of 16 x 16 without bias: one parameter of 1 KiB each, in float32.
std::vector<std::shared_ptr<nn::Module>> make_layers(std::size_t count) {
  std::vector<std::shared_ptr<nn::Module>> layers;
  for (std::size_t i = 0; i < count; ++i) {
    Rng rng(i);
    nn::LinearOptions options;
    options.bias = nn::Bias::no;
    layers.push_back(std::make_shared<nn::Linear>(16, 16, rng, options));
  }
  return layers;
}

Variable make_input() {
  return Variable(random_tensor({2, 16}, 1, DType::float32));
}

TEST(DdpBuckets, ParametersEnterInReverseOrder) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto net = std::make_shared<nn::Sequential>(make_layers(6));
    Ddp ddp(net, communicator, with_limits({1024, 2048}));
    EXPECT_EQ(groups_of(ddp.reducer().bucket_plan()), (Groups{{5}, {4, 3}, {2, 1}, {0}}));
    sum(ddp(make_input())).backward();
    EXPECT_EQ(ddp.reducer().num_all_reduces(), 4u);
  });
}

// Registered a, b, c, d; used so that gradients become ready in the order c, a, d, b.
std::shared_ptr<nn::Module> make_shuffled() {
  return make_function_module(make_layers(4), [](nn::Module& self, const Variable& x) {
    return call_child(self, 2, call_child(self, 0, call_child(self, 3, call_child(self, 1, x))));
  });
}

TEST(DdpBuckets, AreRebuiltOnceInTheReadyOrder) {
  run_ranks(3, [](comm::Communicator& communicator) {
    const auto module = make_shuffled();
    Ddp ddp(module, communicator, with_limits({1024, 2048}));
    EXPECT_EQ(groups_of(ddp.reducer().bucket_plan()), (Groups{{3}, {2, 1}, {0}}));
    EXPECT_FALSE(ddp.reducer().was_rebuilt());
    for (int step = 0; step < 3; ++step) {
      module->zero_grad();
      sum(ddp(make_input())).backward();
      EXPECT_TRUE(ddp.reducer().was_rebuilt());
      EXPECT_EQ(groups_of(ddp.reducer().bucket_plan()), (Groups{{2}, {0, 3}, {1}}));
    }
  });
}

TEST(DdpBuckets, AllUseTheReadyOrderOfRank0) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const bool is_first = communicator.rank() == 0;
    const auto module =
        make_function_module(make_layers(3), [is_first](nn::Module& self, const Variable& x) {
          return is_first ? call_child(self, 1, call_child(self, 2, call_child(self, 0, x)))
                          : call_child(self, 0, call_child(self, 1, call_child(self, 2, x)));
        });
    Ddp ddp(module, communicator, with_limits({1}));
    for (int step = 0; step < 3; ++step) {
      module->zero_grad();
      sum(ddp(make_input())).backward();
      EXPECT_EQ(groups_of(ddp.reducer().bucket_plan()), (Groups{{1}, {2}, {0}}));
    }
    const Tensor mine = module->parameters()[0].grad().clone();
    communicator.broadcast(mine, 0).wait();
    expect_close(module->parameters()[0].grad(), mine, kExact);
  });
}

TEST(DdpBuckets, AreLaunchedStrictlyInOrder) {
  LOCKSTEP_THREAD_RANKS_ONLY("reads the spans of both ranks");
  // Bucket sizes differ, so the all-reduces tell which bucket they were. On rank 1 gradients get
  // ready in the opposite order: its buckets have to wait for each other.
  trace::start();
  run_ranks(2, [](comm::Communicator& communicator) {
    std::vector<std::shared_ptr<nn::Module>> layers;
    for (std::size_t i = 0; i < 3; ++i) {
      Rng rng(i);
      nn::LinearOptions options;
      options.bias = nn::Bias::no;
      layers.push_back(std::make_shared<nn::Linear>(16, 16 * (i + 1), rng, options));
    }
    const bool is_first = communicator.rank() == 0;
    const auto module =
        make_function_module(layers, [is_first](nn::Module& self, const Variable& x) {
          std::vector<Variable> sums(3);
          for (std::size_t k = 0; k < 3; ++k) {
            const std::size_t i = is_first ? k : 2 - k;
            sums[i] = sum(call_child(self, i, x));
          }
          return add(sums[0], add(sums[1], sums[2]));
        });
    DdpOptions options = with_limits({1});
    options.reducer.rebuild = parallel::Rebuild::never;
    Ddp ddp(module, communicator, options);
    ddp(make_input()).backward();
    communicator.barrier().wait();
  });
  trace::stop();
  std::map<int, std::map<std::int64_t, std::size_t>> bytes_by_sequence;
  for (const trace::Span& span : trace::collect().spans) {
    if (std::string_view(span.name) == "all_reduce" && span.lane == trace::Lane::comm) {
      bytes_by_sequence[span.rank][span.sequence] = span.num_bytes;
    }
  }
  ASSERT_EQ(bytes_by_sequence.size(), 2u);
  for (const auto& [rank, calls] : bytes_by_sequence) {
    std::vector<std::size_t> bytes;
    for (const auto& [sequence, num_bytes] : calls) bytes.push_back(num_bytes);
    EXPECT_EQ(bytes, (std::vector<std::size_t>{3072, 2048, 1024})) << "rank " << rank;
  }
}

TEST(DdpBuckets, OverlapDecidesWhenTheyAreLaunched) {
  // With overlap the last bucket has nothing left to hide behind: the end of the pass takes it.
  for (const auto& [overlap, expected] : {std::pair{parallel::Overlap::during_backward, 3},
                                          std::pair{parallel::Overlap::after_backward, 0}}) {
    run_ranks(2, [overlap, expected](comm::Communicator& communicator) {
      DdpOptions options = with_limits({1024});
      options.reducer.overlap = overlap;
      const auto layers = make_layers(4);
      Variable first = layers[0]->parameters()[0];
      Ddp ddp(std::make_shared<nn::Sequential>(layers), communicator, options);
      std::size_t num_before_the_end = 99;
      first.on_grad_ready(
          [&](const Variable&) { num_before_the_end = ddp.reducer().num_all_reduces(); });
      sum(ddp(make_input())).backward();
      EXPECT_EQ(num_before_the_end, static_cast<std::size_t>(expected));
      EXPECT_EQ(ddp.reducer().num_all_reduces(), 4u);
    });
  }
}

TEST(DdpBuckets, BucketMibIsTheLimitOfEachBucket) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto net = std::make_shared<nn::Sequential>(make_layers(6));
    Ddp ddp(net, communicator, {.bucket_mib = 2.0 / 1024});
    EXPECT_EQ(groups_of(ddp.reducer().bucket_plan()), (Groups{{5, 4}, {3, 2}, {1, 0}}));
    expect_error(ErrorCode::Usage, "found 0", [&] { Ddp(net, communicator, {.bucket_mib = 0}); });
  });
}

}  // namespace
}  // namespace lockstep::testing
