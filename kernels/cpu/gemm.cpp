#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Multiplications that repay a hand-over to another thread.
constexpr std::size_t kGemmGrain = 64 * 1024;

// A transposed factor whose steps lie within these bytes stays in the second-level cache and is
// read where it is; further apart, its steps drive each other out, and are packed.
constexpr std::size_t kCachedBytes = 512 * 1024;

// Columns whose packed panels of b stay in the second-level cache.
constexpr std::size_t kBlockCols = 256;

std::size_t parts_of(std::size_t count, std::size_t largest) {
  return (count + largest - 1) / largest;
}

// c(panel) for one panel of b; where it reaches beyond the last column, by way of a copy.
template <typename T>
void run_panel(Kernel<T> kernel, KernelCall<T> call, std::size_t rows, std::size_t cols,
               std::size_t width) {
  if (cols == width) return kernel(call);
  alignas(64) T copy[kPanelRows * kPanelCols<T>];
  T* const c = call.c;
  for (std::size_t i = 0; i < rows; ++i) {
    std::copy(c + i * call.leading_dimension, c + i * call.leading_dimension + cols,
              copy + i * width);
  }
  const std::size_t stride = call.leading_dimension;
  call.c = copy;
  call.leading_dimension = width;
  kernel(call);
  for (std::size_t i = 0; i < rows; ++i) {
    std::copy(copy + i * width, copy + i * width + cols, c + i * stride);
  }
}

// A few rows of c times the packed columns col_begin ... col_end - 1.
template <typename T, RowLayout Layout>
void run_rows(KernelCall<T> call, std::size_t rows, std::size_t col_begin, std::size_t col_end) {
  const Kernel<T> wide = kKernels<T, Layout, 2>[rows - 1];
  const Kernel<T> narrow = kKernels<T, Layout, 1>[rows - 1];
  T* const c = call.c;
  for (std::size_t col = col_begin; col < col_end;) {
    const std::size_t width = panel_width<T>(col_end - col);
    call.c = c + col;
    run_panel(width == kPanelCols<T> ? wide : narrow, call, rows, std::min(width, col_end - col),
              width);
    call.b += width * call.depth;
    col += width;
  }
}

// The part of a tile that one block of packed columns and one range of the inner dimension give.
template <typename T>
void multiply_block(const Product<T>& p, const Tile& block, DepthRange depth, const T* panels,
                    Write write, const FinishTile* finish) {
  alignas(64) static thread_local T packed_rows[kPanelRows * kPackedRow];
  const std::size_t num_rows = block.row_end - block.row_begin;
  const std::size_t num_groups = parts_of(num_rows, kPanelRows);
  for (std::size_t group = 0; group < num_groups; ++group) {
    // Groups of equal height: 64 rows are 13 + 13 + 13 + 13 + 12, not 14 * 4 + 8.
    const std::size_t row = block.row_begin + group * num_rows / num_groups;
    const std::size_t row_end = block.row_begin + (group + 1) * num_rows / num_groups;
    KernelCall<T> call{.b = panels,
                       .depth = depth.size(),
                       .c = p.c + row * p.leading_dimension,
                       .leading_dimension = p.leading_dimension,
                       .write = write};
    if (p.a.transpose == Transpose::no) {
      pack_rows(p.a, row, row_end - row, depth, packed_rows);
      call.a = packed_rows;
      run_rows<T, RowLayout::packed>(call, row_end - row, block.col_begin, block.col_end);
    } else {
      call.a = p.a.data + depth.begin * p.a.leading_dimension + row;
      call.stride = p.a.leading_dimension;
      if (depth.size() * call.stride * sizeof(T) > kCachedBytes) {
        pack_transposed_rows(p.a, row, row_end - row, p.rows, depth, packed_rows);
        call.a = packed_rows;
        call.stride = row_end - row;
      }
      run_rows<T, RowLayout::strided>(call, row_end - row, block.col_begin, block.col_end);
    }
    if (finish) (*finish)({row, row_end, block.col_begin, block.col_end});
  }
}

template <typename T>
void multiply_tile(const Product<T>& p, const Tile& tile, const FinishTile& finish) {
  static thread_local PackBuffer<T> buffer;
  T* const panels = buffer.reserve(kMaxDepth * (kBlockCols + kPanelCols<T>));
  const std::size_t num_depths = std::max<std::size_t>(1, parts_of(p.depth, kMaxDepth));
  for (std::size_t col = tile.col_begin; col < tile.col_end; col += kBlockCols) {
    const Tile block{tile.row_begin, tile.row_end, col, std::min(col + kBlockCols, tile.col_end)};
    for (std::size_t k = 0; k < num_depths; ++k) {
      const DepthRange depth{k * p.depth / num_depths, (k + 1) * p.depth / num_depths};
      const bool last = k + 1 == num_depths;
      pack_panels(p.b, block.col_begin, block.col_end, depth, panels);
      multiply_block(p, block, depth, panels, k == 0 ? p.write : Write::accumulate,
                     last && finish ? &finish : nullptr);
    }
  }
}

// How c is cut: rows x cols tiles of about equal size.
struct Grid {
  std::size_t rows = 1;
  std::size_t cols = 1;
};

// The cheapest grid of num_tiles tiles. Every tile packs its own columns of b, and the time ends
// with the largest tile.
template <typename T>
Grid choose_grid(const Product<T>& p, std::size_t num_tiles) {
  Grid best;
  double best_cost = 0;
  for (std::size_t rows = 1; rows <= num_tiles; ++rows) {
    const std::size_t cols = num_tiles / rows;
    const double tile_rows = static_cast<double>(parts_of(p.rows, rows));
    const double tile_cols =
        static_cast<double>(parts_of(parts_of(p.cols, kWidth<T>), cols) * kWidth<T>);
    // In vector operations per inner step: a packed element costs about a third of one.
    const double cost =
        tile_rows * tile_cols / static_cast<double>(kWidth<T>) + tile_cols / 3 + tile_rows / 8;
    if (rows == 1 || cost < best_cost) {
      best = {rows, cols};
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

template <typename T>
void gemm(Stream& stream, const Product<T>& p, const FinishTile& finish) {
  if (p.rows == 0 || p.cols == 0) return;
  runtime::ThreadPool& threads = stream.device().threads();
  const std::size_t num_tiles =
      std::min(threads.num_threads(), p.rows * p.cols * p.depth / kGemmGrain + 1);
  const Grid grid = num_tiles > 1 ? choose_grid(p, num_tiles) : Grid{};
  const std::size_t col_units = parts_of(p.cols, kWidth<T>);
  threads.parallel_for(grid.rows * grid.cols, [&](std::size_t i) {
    const std::size_t row = i / grid.cols;
    const std::size_t col = i % grid.cols;
    const Tile tile{row * p.rows / grid.rows, (row + 1) * p.rows / grid.rows,
                    col * col_units / grid.cols * kWidth<T>,
                    std::min(p.cols, (col + 1) * col_units / grid.cols * kWidth<T>)};
    if (tile.row_begin < tile.row_end && tile.col_begin < tile.col_end) {
      multiply_tile(p, tile, finish);
    }
  });
}

template void gemm(Stream&, const Product<float>&, const FinishTile&);
template void gemm(Stream&, const Product<double>&, const FinishTile&);

}  // namespace lockstep::kernels
