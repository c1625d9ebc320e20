// The emulated tensor cores multiply matrices whose elements lie in the lanes' registers where the
// PTX manual says ("Matrix Fragments for mma.m16n8k8", "... mma.m16n8k16", "ldmatrix").
#include "tests/emulated_gpu/test_support.h"

#include "kernels/cuda/tensor_core.cuh"

namespace emulated_gpu::testing {
namespace {

using lockstep::Bfloat16;
using lockstep::kernels::cuda::Four;
using lockstep::kernels::cuda::Tf32;

unsigned word_of(float value) {
  return lockstep::bits_of_float(value);
}
unsigned pair_of(float low, float high) {
  return lockstep::kernels::cuda::pair_of_bfloat16(low, high);
}

// c [16, 8] = a [16, k] * b [k, 8] with k = 8.
__global__ void multiply_tf32(const float* a, const float* b, float* c) {
  const unsigned group = threadIdx.x / 4;
  const unsigned thread = threadIdx.x % 4;
  Four first;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = i == 0 || i == 2 ? group : group + 8;
    const unsigned column = i < 2 ? thread : thread + 4;
    first.at[i] = word_of(a[row * 8 + column]);
  }
  float sums[4] = {};
  multiply_add(Tf32{}, sums[0], sums[1], sums[2], sums[3], first, word_of(b[thread * 8 + group]),
               word_of(b[(thread + 4) * 8 + group]));
  for (unsigned i = 0; i < 4; ++i) {
    c[(i < 2 ? group : group + 8) * 8 + thread * 2 + i % 2] = sums[i];
  }
}

// The same with k = 16. The second factor comes from shared memory, whose rows are b's.
__global__ void multiply_bfloat16(const float* a, const float* b, float* c) {
  alignas(16) __shared__ Bfloat16 rows[32][8];
  for (unsigned i = threadIdx.x; i < 32 * 8; i += 32) rows[i / 8][i % 8] = Bfloat16(b[i % 128]);
  __syncthreads();
  const unsigned group = threadIdx.x / 4;
  const unsigned thread = threadIdx.x % 4;
  Four first;
  for (unsigned i = 0; i < 4; ++i) {
    const float* const pair =
        a + (i == 0 || i == 2 ? group : group + 8) * 16 + thread * 2 + (i < 2 ? 0 : 8);
    first.at[i] = pair_of(pair[0], pair[1]);
  }
  const Four second = lockstep::kernels::cuda::load_transposed(rows[threadIdx.x]);
  float sums[4] = {};
  multiply_add(Bfloat16{}, sums[0], sums[1], sums[2], sums[3], first, second.at[0], second.at[1]);
  for (unsigned i = 0; i < 4; ++i) {
    c[(i < 2 ? group : group + 8) * 8 + thread * 2 + i % 2] = sums[i];
  }
}

// Small whole numbers, so that products are exact.
std::vector<float> numbers(std::size_t size, unsigned seed) {
  std::vector<float> result(size);
  for (float& value : result) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 28) - 8;
  }
  return result;
}

void expect_product(void (*kernel)(const float*, const float*, float*), std::size_t k) {
  const auto a = numbers(16 * k, 1);
  const auto b = numbers(k * 8, 2);
  std::vector<float> expected(16 * 8);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t j = 0; j < k; ++j) expected[i] += a[i / 8 * k + j] * b[j * 8 + i % 8];
  }
  const Stream stream;
  const Array<float> on_a(a), on_b(b), c(expected.size());
  EXPECT_OK(launch(stream, 1, 32, kernel, on_a.data(), on_b.data(), c.data()));
  EXPECT_EQ(c.values(), expected);
}
TEST(EmulatedTensorCores, MultiplyTf32) {
  expect_product(multiply_tf32, 8);
}
TEST(EmulatedTensorCores, MultiplyBfloat16) {
  expect_product(multiply_bfloat16, 16);
}

TEST(EmulatedTensorCores, RoundAsTheTypesDo) {
  using lockstep::kernels::cuda::rounded_to_tf32;
  EXPECT_EQ(rounded_to_tf32(1 + 0x1p-10f), 1 + 0x1p-10f);
  EXPECT_EQ(rounded_to_tf32(1 + 0x1p-11f), 1 + 0x1p-10f);  // a tie goes away from zero
  EXPECT_EQ(rounded_to_tf32(-1 - 0x1p-12f), -1);
  EXPECT_EQ(pair_of(1, -2), 0xC0003F80u);
}

__global__ void multiplies_in_half_a_warp() {
  float sums[4] = {};
  multiply_add(Tf32{}, sums[0], sums[1], sums[2], sums[3], Four{}, 0u, 0u);
}
__global__ void reads_between_pieces() {
  alignas(16) __shared__ Bfloat16 rows[33][8];
  (void)lockstep::kernels::cuda::load_matrices(&rows[threadIdx.x][1]);
}

TEST(EmulatedTensorCores, WhatIsUndefinedEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](void (*kernel)(), unsigned threads) {
    const Stream stream;
    (void)launch(stream, 1, threads, kernel);
    stream.wait();
  };
  EXPECT_DEATH(run(multiplies_in_half_a_warp, 16), "uses a tensor core without its whole warp");
  EXPECT_DEATH(run(reads_between_pieces, 32), "a row that is not aligned to 16 bytes");
}

}  // namespace
}  // namespace emulated_gpu::testing
