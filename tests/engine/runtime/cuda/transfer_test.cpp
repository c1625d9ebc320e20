// Copies between devices follow what both sides do before and come before what they do after.
#include "engine/runtime/storage.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/calls.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

struct Pair {
  Device from;
  Device to;
};

class Transfers : public CudaTest, public ::testing::WithParamInterface<Pair> {};

constexpr std::size_t kSize = 100'000;

std::vector<float> counting(float start) {
  std::vector<float> values(kSize);
  std::iota(values.begin(), values.end(), start);
  return values;
}

TEST_P(Transfers, BringTheBytesThatEarlierWorkWrote) {
  const auto [from, to] = GetParam();
  const Tensor x = Tensor::from(counting(0), {kSize}, from);
  const Tensor y = Tensor::empty({kSize}, DType::float32, to);
  for (int round = 0; round < 5; ++round) {
    x.backend().axpy(x.stream(), {1, x.view(), x.view()});
    y.fill(-1);  // earlier work of the destination must not win
    y.copy_from(x);
  }
  std::vector<float> expected = counting(0);
  for (float& value : expected) value *= 32;
  EXPECT_EQ(values_of(y), expected);
}

TEST_P(Transfers, ComeBeforeLaterWorkOfBothSides) {
  const auto [from, to] = GetParam();
  for (int round = 0; round < 5; ++round) {
    const Tensor x = Tensor::from(counting(0), {kSize}, from);
    const Tensor y = Tensor::empty({kSize}, DType::float32, to);
    y.copy_from(x);
    x.fill(7);
    const Tensor z = y.clone();
    y.fill(8);
    EXPECT_EQ(values_of(z), counting(0));
    EXPECT_EQ(values_of(x), std::vector<float>(kSize, 7));
  }
}

std::string name_of(const ::testing::TestParamInfo<Pair>& test) {
  std::string name = to_string(test.param.from) + "_to_" + to_string(test.param.to);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, Transfers,
                         ::testing::Values(Pair{kCpu, kFirst}, Pair{kFirst, kCpu},
                                           Pair{kFirst, kSibling}, Pair{kFirst, kOther},
                                           Pair{kOther, kFirst}, Pair{kOther, kCpu},
                                           Pair{kFirst, kFirst}),
                         name_of);

class HostTransfers : public CudaTest {};

TEST_F(HostTransfers, AreDoneWhenTheyReturn) {
  const Tensor x = Tensor::empty({kSize}, DType::float32, kFirst);
  for (const Tensor& host : {Tensor::empty({kSize}, DType::float32, kCpu),
                             Tensor::empty_pinned({kSize}, DType::float32)}) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> values = counting(float(round));
      std::copy(values.begin(), values.end(), host.host<float>().begin());
      x.copy_from(host);
      std::fill_n(host.host<float>().begin(), kSize, -1.0f);
      host.copy_from(x);
      EXPECT_EQ(host.host<float>()[kSize - 1], values.back());
      EXPECT_EQ(values_of(x), values);
    }
  }
}

TEST_F(HostTransfers, BetweenGpusDoNotHoldUpTheHost) {
  for (const Device to : {kSibling, kOther}) {
    const Tensor x = Tensor::from(counting(1), {kSize}, kFirst);
    const Tensor y = Tensor::zeros({kSize}, DType::float32, to);
    Tensor::zeros({1}, DType::float32, kFirst).fill(0);
    compute(kFirst).synchronize();
    Gate gate;
    gate.block(compute(kFirst));
    y.copy_from(x);
    const auto copied = compute(to).record();
    EXPECT_FALSE(copied->has_passed());
    x.fill(0);
    gate.open();
    EXPECT_EQ(values_of(y), counting(1));
  }
}

}  // namespace
}  // namespace lockstep::runtime
