// Instructions for tensor cores: one warp multiplies small matrices whose elements lie in its
// lanes' registers. And one for exponentials, which every GPU has. An emulated GPU
// (tests/emulated_gpu) puts a file of this name before it.
//
// All lanes of a warp call each of these together. With g = lane / 4 and t = lane % 4, a lane holds
//   of the sums [16, 8]:         (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
//   of TF32 factors [16, 8]:     (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
//                   [8, 8]:      (t, g), (t + 4, g)
//   of bfloat16 factors [16, 16] and [16, 8]: the same, with the pair 2t and 2t + 1 in the place of
//                                t, and from 2t + 8 on in that of t + 4.
// Source: NVIDIA, PTX ISA, "Warp-level matrix instructions": mma.m16n8k8, mma.m16n8k16, ldmatrix.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/core/half.h"

namespace lockstep::kernels::cuda {

// TF32 is a float32 of which the product reads 10 bits after the point.
struct Tf32 {};

// GPUs before Ampere (8.0) multiply neither type, and code for them must not call what follows.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool kHasTensorCores = false;
#else
inline constexpr bool kHasTensorCores = true;
#endif

// Four registers of a lane: of a row of sums, or a factor.
struct Four {
  unsigned at[4];
};

// sums += first * second; each product is exact, and sums are float32.
__device__ inline void multiply_add(Tf32, float& s0, float& s1, float& s2, float& s3,
                                    const Four& first, unsigned second0, unsigned second1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
      : "r"(first.at[0]), "r"(first.at[1]), "r"(first.at[2]), "r"(first.at[3]), "r"(second0),
        "r"(second1));
}
__device__ inline void multiply_add(Bfloat16, float& s0, float& s1, float& s2, float& s3,
                                    const Four& first, unsigned second0, unsigned second1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
      : "r"(first.at[0]), "r"(first.at[1]), "r"(first.at[2]), "r"(first.at[3]), "r"(second0),
        "r"(second1));
}

// 2 to the power of x, within 2 ulp; 0 instead of a result that is not normal.
__device__ inline float power_of_two(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}
// Rounds to TF32, to nearest, ties away from zero.
__device__ inline float rounded_to_tf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return float_of_bits(bits);
}
// Two numbers rounded to bfloat16, `low` in the lower half.
__device__ inline unsigned pair_of_bfloat16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Reads four matrices of 8 rows of 16 bytes from shared memory: row r of matrix m from the
// address that lane 8 m + r gives. Register m gets, of matrix m, the 4 bytes number t of row g; and
// from load_transposed, for bfloat16, the elements (2t, g) and (2t + 1, g).
__device__ inline Four load_matrices(const void* row) {
  Four to;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.at[0]), "=r"(to.at[1]), "=r"(to.at[2]), "=r"(to.at[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
  return to;
}
__device__ inline Four load_transposed(const void* row) {
  Four to;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.at[0]), "=r"(to.at[1]), "=r"(to.at[2]), "=r"(to.at[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
  return to;
}

}  // namespace lockstep::kernels::cuda
