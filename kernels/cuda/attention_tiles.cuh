// Products of attention's tiles, and the softmax of their sums. A warp multiplies 16 rows, which
// its lanes keep in registers, by a tile of rows in shared memory, in one of two ways:
//   multiply_rows:     sums[i][j] += factor row i * tile row j      (factor * tile^T)
//   multiply_columns:  sums[i][c] += factor row i * tile column c   (factor * tile)
//
// Two types make them. Fma does it by float32 or float64 arithmetic, TensorCores with TF32 or
// bfloat16 factors and float32 sums. Either type says which elements of the sums a lane has, and a
// factor lies in the registers as sums do: so the sums of one product become a factor of the next
// without leaving the lane.
//
// The columns of the sums (for multiply_columns, those of the factor) outside `seen` may be left
// out; they count as zero. Every sum has one order.
#pragma once

#include <numbers>

#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace lockstep::kernels::cuda {

inline constexpr unsigned kWarpRows = 16;

// A tile's rows begin ... end - 1.
struct Span {
  unsigned begin, end;

  __device__ bool is_empty() const { return begin >= end; }
  __device__ bool has_any_of(unsigned first, unsigned count) const {
    return first < end && first + count > begin;
  }
};

// Rows of channels in shared memory. The 16 bytes after each row make neighbouring rows begin in
// different banks, so that lanes can read a column at once.
template <typename Stored, unsigned kTileRows, unsigned kChannels>
struct alignas(16) Tile {
  Stored at[kTileRows][kChannels + 16 / sizeof(Stored)];
};

// A lane's elements of 16 rows: element [i][j] lies in row By::row(i) and column By::column(j).
template <typename By, unsigned kColumns>
struct LaneRows {
  typename By::Number at[By::kLaneRows][kColumns / By::kRowLanes];

  // Calls body(i, j, element).
  template <typename Body>
  __device__ void for_each(const Body& body) {
#pragma unroll
    for (unsigned i = 0; i < By::kLaneRows; ++i) {
#pragma unroll
      for (unsigned j = 0; j < kColumns / By::kRowLanes; ++j) body(i, j, at[i][j]);
    }
  }
};

__device__ inline unsigned lane_of_warp() {
  return threadIdx.x % kWarp;
}

template <typename T>
struct Fma {
  using Number = T;
  using Stored = T;                         // in tiles
  static constexpr unsigned kLaneRows = 4;  // rows of which a lane has elements
  static constexpr unsigned kRowLanes = 8;  // neighbouring lanes that share a row

  __device__ static unsigned row(unsigned i) { return lane_of_warp() / kRowLanes + 4 * i; }
  __device__ static unsigned column(unsigned j) { return lane_of_warp() % kRowLanes + 8 * j; }
  __device__ static unsigned factor_column(unsigned j) { return column(j); }

  template <unsigned kColumns>
  using Factor = LaneRows<Fma, kColumns>;
  template <unsigned kColumns>
  __device__ static Factor<kColumns> factor(const LaneRows<Fma, kColumns>& rows) {
    return rows;
  }
  __device__ static T rounded(T value) { return value; }
  __device__ static Vector<T> stored(const Vector<T>& values) { return values; }

  // Calls body(column, factors) for each column of the factor that is seen, with the lane's
  // `kLaneRows` elements of it, which it gets from the lane that has them.
  template <unsigned kColumns, typename Body>
  __device__ static void for_columns(const Factor<kColumns>& factor, Span seen, const Body& body) {
#pragma unroll
    for (unsigned first = 0; first < kColumns; first += kRowLanes) {
      if (!seen.has_any_of(first, kRowLanes)) continue;
#pragma unroll 4
      for (unsigned lane = 0; lane < kRowLanes; ++lane) {
        T factors[kLaneRows];
#pragma unroll
        for (unsigned i = 0; i < kLaneRows; ++i) {
          factors[i] = __shfl_sync(kAllLanes, factor.at[i][first / kRowLanes], lane, kRowLanes);
        }
        body(first + lane, factors);
      }
    }
  }

  template <unsigned kTileRows, unsigned kChannels>
  __device__ static void multiply_rows(LaneRows<Fma, kTileRows>& sums,
                                       const Factor<kChannels>& factor,
                                       const Tile<T, kTileRows, kChannels>& tile, Span) {
    for_columns(factor, {0, kChannels}, [&](unsigned channel, const T(&factors)[kLaneRows]) {
#pragma unroll
      for (unsigned j = 0; j < kTileRows / kRowLanes; ++j) {
        add(sums, j, factors, tile.at[column(j)][channel]);
      }
    });
  }
  template <unsigned kTileRows, unsigned kChannels>
  __device__ static void multiply_columns(LaneRows<Fma, kChannels>& sums,
                                          const Factor<kTileRows>& factor,
                                          const Tile<T, kTileRows, kChannels>& tile, Span seen) {
    for_columns(factor, seen, [&](unsigned row, const T(&factors)[kLaneRows]) {
#pragma unroll
      for (unsigned j = 0; j < kChannels / kRowLanes; ++j) {
        add(sums, j, factors, tile.at[row][column(j)]);
      }
    });
  }

 private:
  template <unsigned kColumns>
  __device__ static void add(LaneRows<Fma, kColumns>& sums, unsigned j,
                             const T (&factors)[kLaneRows], T value) {
#pragma unroll
    for (unsigned i = 0; i < kLaneRows; ++i) sums.at[i][j] += factors[i] * value;
  }
};

// Element: Tf32 or Bfloat16. An instruction multiplies a step of the factor, 32 bytes of each row,
// by 8 rows, or columns, of the tile; one read brings the tile's numbers for two of them.
template <typename Element>
struct TensorCores {
  static constexpr bool kIsTf32 = std::is_same_v<Element, Tf32>;
  using Number = float;
  using Stored = std::conditional_t<kIsTf32, float, Bfloat16>;
  static constexpr unsigned kLaneRows = 2;
  static constexpr unsigned kRowLanes = 4;
  static constexpr unsigned kStep = 32 / sizeof(Stored);

  __device__ static unsigned row(unsigned i) { return lane_of_warp() / 4 + 8 * i; }
  __device__ static unsigned column(unsigned j) {
    return j / 2 * 8 + lane_of_warp() % 4 * 2 + j % 2;
  }
  // An instruction sums over the columns of a factor, so they may stand in any order that both
  // factors have. TF32's places t and t + 4 hold columns 2t and 2t + 1 if the factor was a sum;
  // one from memory keeps the tile's order, in which ldmatrix brings the other factor.
  __device__ static unsigned factor_column(unsigned j) {
    return kIsTf32 ? j / 2 * 8 + j % 2 * 4 + lane_of_warp() % 4 : column(j);
  }

  template <unsigned kColumns>
  struct Factor {
    Four steps[kColumns / kStep];
  };
  template <unsigned kColumns>
  __device__ static Factor<kColumns> factor(const LaneRows<TensorCores, kColumns>& rows) {
    Factor<kColumns> result;
#pragma unroll
    for (unsigned s = 0; s < kColumns / kStep; ++s) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const auto& row = rows.at[i % 2];
        if constexpr (kIsTf32) {
          result.steps[s].at[i] = bits_of_float(rounded_to_tf32(row[2 * s + i / 2]));
        } else {
          const unsigned j = 4 * s + i / 2 * 2;
          result.steps[s].at[i] = pair_of_bfloat16(row[j], row[j + 1]);
        }
      }
    }
    return result;
  }
  // A number as it is in a factor or tile.
  __device__ static float rounded(float value) {
    return kIsTf32 ? rounded_to_tf32(value) : static_cast<float>(Bfloat16(value));
  }
  __device__ static Vector<Stored, 4> stored(const Vector<float>& values) {
    const auto& [v] = values;
    if constexpr (kIsTf32) {
      return {rounded(v[0]), rounded(v[1]), rounded(v[2]), rounded(v[3])};
    } else {
      const Vector<unsigned, 2> pairs{pair_of_bfloat16(v[0], v[1]), pair_of_bfloat16(v[2], v[3])};
      return __builtin_bit_cast(Vector<Stored, 4>, pairs);
    }
  }

  template <unsigned kTileRows, unsigned kChannels>
  __device__ static void multiply_rows(LaneRows<TensorCores, kTileRows>& sums,
                                       const Factor<kChannels>& factor,
                                       const Tile<Stored, kTileRows, kChannels>& tile, Span seen) {
    const unsigned lane = lane_of_warp();
#pragma unroll
    for (unsigned row = 0; row < kTileRows; row += 16) {
      if (!seen.has_any_of(row, 16)) continue;
      const Stored* const mine = &tile.at[row + lane / 16 * 8 + lane % 8][lane / 8 % 2 * kStep / 2];
#pragma unroll
      for (unsigned step = 0; step < kChannels / kStep; ++step) {
        add_two(sums, row, factor.steps[step], load_matrices(mine + step * kStep));
      }
    }
  }
  template <unsigned kTileRows, unsigned kChannels>
  __device__ static void multiply_columns(LaneRows<TensorCores, kChannels>& sums,
                                          const Factor<kTileRows>& factor,
                                          const Tile<Stored, kTileRows, kChannels>& tile,
                                          Span seen) {
#pragma unroll
    for (unsigned step = 0; step < kTileRows / kStep; ++step) {
      if (!seen.has_any_of(step * kStep, kStep)) continue;
#pragma unroll
      for (unsigned column = 0; column < kChannels; column += 16) {
        add_two(sums, column, factor.steps[step], load_columns(tile, step * kStep, column));
      }
    }
  }

 private:
  // Adds the products with 16 rows or columns of the tile, `first` and those after it.
  template <unsigned kColumns>
  __device__ static void add_two(LaneRows<TensorCores, kColumns>& sums, unsigned first,
                                 const Four& step, const Four& numbers) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned j = first / 4 + 2 * i;
      multiply_add(Element{}, sums.at[0][j], sums.at[0][j + 1], sums.at[1][j], sums.at[1][j + 1],
                   step, numbers.at[2 * i], numbers.at[2 * i + 1]);
    }
  }
  // The numbers of 16 columns in a step of rows. ldmatrix can transpose 16-bit elements only.
  template <unsigned kTileRows, unsigned kChannels>
  __device__ static Four load_columns(const Tile<Stored, kTileRows, kChannels>& tile, unsigned row,
                                      unsigned column) {
    const unsigned lane = lane_of_warp();
    if constexpr (kIsTf32) {
      Four result;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        result.at[i] =
            bits_of_float(tile.at[row + lane % 4 * 2 + i % 2][column + i / 2 * 8 + lane / 4]);
      }
      return result;
    } else {
      return load_transposed(&tile.at[row + lane % 16][column + lane / 16 * 8]);
    }
  }
};

// The type that multiplies on the GPU for which this code is compiled.
template <typename Wanted>
using Available =
    std::conditional_t<kHasTensorCores || std::is_same_v<typename Wanted::Number, double>, Wanted,
                       Fma<typename Wanted::Number>>;

// --- the softmax

// Powers of a type's base: 2 for float32, which takes one instruction, and e for float64, with
// which gradients are checked. Scores become logarithms to this base.
__device__ inline float power_of(float x) {
  return power_of_two(x);
}
__device__ inline double power_of(double x) {
  return exp_of(x);
}
template <typename T>
constexpr double kLogOfBase = std::is_same_v<T, float> ? std::numbers::ln2 : 1;

// op(... op(a, b) ...) over the lanes of a row, in all of them.
template <typename By, typename T, typename Op>
__device__ T over_row(T value, const Op& op) {
#pragma unroll
  for (unsigned distance = By::kRowLanes / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}
template <typename By, typename T>
__device__ T sum_over_row(T value) {
  return over_row<By>(value, [](T a, T b) { return a + b; });
}

// The softmax of the warp's queries over the tiles so far.
template <typename By>
struct RunningSoftmax {
  using T = typename By::Number;
  T largest[By::kLaneRows];  // scores, as logarithms to the base
  T sum[By::kLaneRows];      // of base^(score - largest) over the lane's own columns

  __device__ RunningSoftmax() {
    for (unsigned i = 0; i < By::kLaneRows; ++i) {
      largest[i] = -static_cast<T>(INFINITY);
      sum[i] = T(0);
    }
  }

  // Turns products into base^(scale * product - largest), and scales y to the largest score that is
  // now known.
  template <unsigned kRows, unsigned kChannels>
  __device__ void take(LaneRows<By, kRows>& scores, T scale, LaneRows<By, kChannels>& y) {
    T top[By::kLaneRows], kept[By::kLaneRows];
    for (unsigned i = 0; i < By::kLaneRows; ++i) top[i] = -static_cast<T>(INFINITY);
    scores.for_each(
        [&](unsigned i, unsigned, T& score) { top[i] = score > top[i] ? score : top[i]; });
#pragma unroll
    for (unsigned i = 0; i < By::kLaneRows; ++i) {
      top[i] = scale * over_row<By>(top[i], [](T a, T b) { return b > a ? b : a; });
      if (!(top[i] > largest[i])) top[i] = largest[i];
      kept[i] = power_of(largest[i] - top[i]);
      largest[i] = top[i];
      sum[i] *= kept[i];
    }
    scores.for_each([&](unsigned i, unsigned, T& score) {
      score = power_of(scale * score - top[i]);
      sum[i] += score;
    });
    y.for_each([&](unsigned i, unsigned, T& value) { value *= kept[i]; });
  }
};

}  // namespace lockstep::kernels::cuda
