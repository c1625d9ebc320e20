#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// --- factors, in the order in which gemm_kernel.h reads them

// Memory of one thread, aligned to a cache line and kept between products.
template <typename T>
class PackBuffer {
 public:
  T* reserve(std::size_t num_elements) {
    if (num_elements > size_) {
      const std::size_t num_bytes = (num_elements * sizeof(T) + 63) / 64 * 64;
      memory_.reset(static_cast<T*>(std::aligned_alloc(64, num_bytes)));
      if (!memory_) throw std::bad_alloc();
      size_ = num_elements;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> memory_;
  std::size_t size_ = 0;
};

// Columns whose packed panels of b stay in the second-level cache.
constexpr std::size_t kBlockCols = 256;

// A part of the inner dimension.
struct DepthRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// The width of a panel if `cols` columns are left: two vectors, or one if that is enough.
template <typename T>
std::size_t panel_width(std::size_t cols) {
  return cols > kWidth<T> ? kPanelCols<T> : kWidth<T>;
}

// Copies rows of an untransposed a: to[i * kPackedRow + p].
template <typename T>
void pack_rows(const Factor<T>& a, std::size_t row, std::size_t rows, DepthRange depth, T* to) {
  for (std::size_t i = 0; i < rows; ++i) {
    const T* from = a.data + (row + i) * a.leading_dimension;
    std::copy(from + depth.begin, from + depth.end, to + i * kPackedRow);
  }
}

// Copies rows of an a that is read transposed, `limit` columns wide in memory: to[p * rows + i].
template <typename T>
void pack_transposed_rows(const Factor<T>& a, std::size_t row, std::size_t rows, std::size_t limit,
                          DepthRange depth, T* to) {
  const T* from = a.data + depth.begin * a.leading_dimension + row;
  const std::size_t whole = (rows + kWidth<T> - 1) / kWidth<T> * kWidth<T>;
  for (std::size_t p = 0; p < depth.size(); ++p, from += a.leading_dimension, to += rows) {
    if (row + whole > limit) {
      std::copy(from, from + rows, to);
      continue;
    }
    // Copies whole vectors; the next step overwrites the excess.
    for (std::size_t i = 0; i < whole; i += kWidth<T>) {
      Eigen::internal::pstoreu(to + i, Eigen::internal::ploadu<Vector<T>>(from + i));
    }
  }
}

// A kWidth x kWidth block, transposed in registers.
template <typename T>
void transpose_block(const T* from, std::size_t from_stride, T* to, std::size_t to_stride) {
  Eigen::internal::PacketBlock<Vector<T>, static_cast<int>(kWidth<T>)> block;
  for (std::size_t i = 0; i < kWidth<T>; ++i) {
    block.packet[i] = Eigen::internal::ploadu<Vector<T>>(from + i * from_stride);
  }
  Eigen::internal::ptranspose(block);
  for (std::size_t i = 0; i < kWidth<T>; ++i) {
    Eigen::internal::pstoreu(to + i * to_stride, block.packet[i]);
  }
}

// One panel: to[p * width + j] = b(depth.begin + p, col + j) for j < cols, and 0 up to width.
template <typename T>
void pack_panel(const Factor<T>& b, std::size_t col, std::size_t cols, std::size_t width,
                DepthRange depth, T* to) {
  if (cols < width) std::fill(to, to + depth.size() * width, T(0));
  if (b.transpose == Transpose::no) {
    const T* from = b.data + depth.begin * b.leading_dimension + col;
    for (std::size_t p = 0; p < depth.size(); ++p, from += b.leading_dimension, to += width) {
      if (cols < width) {
        std::copy(from, from + cols, to);
        continue;
      }
      for (std::size_t j = 0; j < width; j += kWidth<T>) {
        Eigen::internal::pstore(to + j, Eigen::internal::ploadu<Vector<T>>(from + j));
      }
    }
    return;
  }
  // Row j of the stored matrix is column j of the panel.
  const T* from = b.data + col * b.leading_dimension + depth.begin;
  const std::size_t whole_cols = cols / kWidth<T> * kWidth<T>;
  const std::size_t whole_depth = depth.size() / kWidth<T> * kWidth<T>;
  for (std::size_t j = 0; j < whole_cols; j += kWidth<T>) {
    for (std::size_t p = 0; p < whole_depth; p += kWidth<T>) {
      transpose_block(from + j * b.leading_dimension + p, b.leading_dimension, to + p * width + j,
                      width);
    }
  }
  for (std::size_t j = 0; j < cols; ++j) {
    for (std::size_t p = j < whole_cols ? whole_depth : 0; p < depth.size(); ++p) {
      to[p * width + j] = from[j * b.leading_dimension + p];
    }
  }
}

// All panels of columns col_begin ... col_end - 1, one after another.
template <typename T>
void pack_panels(const Factor<T>& b, std::size_t col_begin, std::size_t col_end, DepthRange depth,
                 T* to) {
  for (std::size_t col = col_begin; col < col_end;) {
    const std::size_t width = panel_width<T>(col_end - col);
    pack_panel(b, col, std::min(width, col_end - col), width, depth, to);
    to += width * depth.size();
    col += width;
  }
}

// --- a nested factor, read where it lies

// A walk over the places of its rows, or of its columns.
class Walk {
 public:
  // REQUIRES: there is a place with this index.
  Walk(const NestedStrides& places, std::size_t index) : places_(places) {
    const auto& counts = places.counts;
    digits_ = {index / counts[2] / counts[1], index / counts[2] % counts[1], index % counts[2]};
    for (std::size_t k = 0; k < 3; ++k) offset_ += digits_[k] * places.distances[k];
  }
  std::size_t offset() const { return offset_; }
  // The places of the innermost loop from here on.
  std::size_t num_left() const { return places_.counts[2] - digits_[2]; }
  // REQUIRES: count <= num_left().
  void advance(std::size_t count) {
    offset_ += count * places_.distances[2];
    digits_[2] += count;
    for (std::size_t k = 2; k > 0 && digits_[k] == places_.counts[k]; --k) {
      offset_ += places_.distances[k - 1] - digits_[k] * places_.distances[k];
      digits_[k] = 0;
      ++digits_[k - 1];
    }
  }

 private:
  const NestedStrides& places_;
  std::array<std::size_t, 3> digits_{};
  std::size_t offset_ = 0;
};

// A range of inner steps.
void find_stretches(const NestedStrides& steps, DepthRange depth, std::vector<Stretch>& stretches) {
  stretches.clear();
  if (depth.size() == 0) return;
  Walk walk(steps, depth.begin);
  for (std::size_t at = depth.begin; at < depth.end;) {
    const std::size_t count = std::min(depth.end - at, walk.num_left());
    stretches.push_back({walk.offset(), count});
    walk.advance(count);
    at += count;
  }
}

// --- the product, tile by tile

// So many multiplications are worth a hand-over to another thread.
constexpr std::size_t kGemmGrain = 64 * 1024;

// If the steps of a transposed factor lie within so many bytes, they stay in the second-level cache
// and are read where they are; otherwise they evict each other, so they are packed.
constexpr std::size_t kCachedBytes = 512 * 1024;

std::size_t parts_of(std::size_t count, std::size_t largest) {
  return (count + largest - 1) / largest;
}

// c(panel) for one panel of b; if it reaches beyond the last column, by way of a copy.
template <typename T>
void run_panel(Kernel<T> kernel, KernelCall<T>& call, std::size_t rows, std::size_t cols,
               std::size_t width) {
  if (cols == width) return kernel(call);
  alignas(64) T copy[kPanelRows * kPanelCols<T>];  // as much as kNarrowRows * kWidth<T>
  T* const c = call.c;
  const std::size_t stride = call.leading_dimension;
  for (std::size_t i = 0; i < rows && call.write == Write::accumulate; ++i) {
    std::copy(c + i * stride, c + i * stride + cols, copy + i * width);
  }
  call.c = copy;
  call.leading_dimension = width;
  kernel(call);
  for (std::size_t i = 0; i < rows; ++i) {
    std::copy(copy + i * width, copy + i * width + cols, c + i * stride);
  }
  call.leading_dimension = stride;
}

// A few rows of c times the packed columns col_begin ... col_end - 1. The call is changed in place,
// because copying it for every panel costs more than a shallow panel.
template <typename T, RowLayout Layout>
void run_rows(KernelCall<T>& call, std::size_t rows, std::size_t col_begin, std::size_t col_end) {
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

// The part of a tile that comes from one block of packed columns and one range of the inner
// dimension.
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

// The same if a is nested.
template <typename T>
void multiply_nested(const Product<T>& p, const Tile& block, DepthRange depth, const T* panels,
                     Write write, const FinishTile* finish) {
  const bool is_transposed = p.a.transpose == Transpose::yes;
  const NestedStrides& steps = is_transposed ? p.a.nested->rows : p.a.nested->cols;
  static thread_local std::vector<Stretch> stretches;
  find_stretches(steps, depth, stretches);
  Walk walk(is_transposed ? p.a.nested->cols : p.a.nested->rows, block.row_begin);
  const std::size_t num_cols = block.col_end - block.col_begin;
  const std::size_t last_cols = num_cols % kPanelCols<T>;
  const std::size_t narrow_cols = last_cols <= kWidth<T> ? last_cols : 0;
  const std::size_t wide_end = block.col_end - narrow_cols;
  const std::size_t num_rows = block.row_end - block.row_begin;
  const std::size_t num_groups = parts_of(num_rows, kNarrowRows);
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::size_t row = block.row_begin + group * num_rows / num_groups;
    const std::size_t row_end = block.row_begin + (group + 1) * num_rows / num_groups;
    const T* rows[kNarrowRows];
    for (std::size_t i = 0; i < row_end - row; ++i, walk.advance(1)) {
      rows[i] = p.a.data + walk.offset();
    }
    KernelCall<T> call{.stride = steps.distances[2],
                       .stretches = stretches,
                       .depth = depth.size(),
                       .leading_dimension = p.leading_dimension,
                       .write = write};
    const std::size_t middle = row + (row_end - row + 1) / 2;
    for (const auto& [from, to] : {std::pair{row, middle}, std::pair{middle, row_end}}) {
      if (from == to || wide_end == block.col_begin) continue;
      call.rows = rows + (from - row);
      call.b = panels;
      call.c = p.c + from * p.leading_dimension;
      run_rows<T, RowLayout::scattered>(call, to - from, block.col_begin, wide_end);
    }
    if (narrow_cols > 0) {
      call.rows = rows;
      call.b = panels + (wide_end - block.col_begin) * depth.size();
      call.c = p.c + row * p.leading_dimension + wide_end;
      run_panel(kNarrowKernels<T>[row_end - row - 1], call, row_end - row, narrow_cols, kWidth<T>);
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
      const auto multiply = p.a.nested ? multiply_nested<T> : multiply_block<T>;
      multiply(p, block, depth, panels, k == 0 ? p.write : Write::accumulate,
               last && finish ? &finish : nullptr);
    }
  }
}

// How c is cut: rows x cols tiles of about equal size.
struct Grid {
  std::size_t rows = 1;
  std::size_t cols = 1;
};

// The cheapest grid of num_tiles tiles. Every tile packs its own columns of b, and the largest tile
// decides the time.
template <typename T>
Grid choose_grid(const Product<T>& p, std::size_t num_tiles) {
  Grid best;
  double best_cost = 0;
  for (std::size_t rows = 1; rows <= num_tiles; ++rows) {
    const std::size_t cols = num_tiles / rows;
    const double tile_rows = static_cast<double>(parts_of(p.rows, rows));
    const double tile_cols =
        static_cast<double>(parts_of(parts_of(p.cols, kWidth<T>), cols) * kWidth<T>);
    // In vector operations per inner step: packing an element costs about a third of one.
    const double cost =
        tile_rows * tile_cols / static_cast<double>(kWidth<T>) + tile_cols / 3 + tile_rows / 8;
    if (rows == 1 || cost < best_cost) {
      best = {rows, cols};
      best_cost = cost;
    }
  }
  return best;
}

template <typename T>
void multiply_in_tiles(Stream& stream, const Product<T>& p, const FinishTile& finish) {
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

// Calls multiply(product), rounded as the precision in force asks.
template <typename T, typename Multiply>
void with_factors(const Product<T>& product, const Multiply& multiply) {
  if (product.rows == 0 || product.cols == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    with_rounded_factors(product, multiply);
  } else {
    multiply(product);
  }
}

}  // namespace

template <typename T>
void gemm(Stream& stream, const Product<T>& product, const FinishTile& finish) {
  with_factors(product, [&](const Product<T>& p) { multiply_in_tiles(stream, p, finish); });
}

template <typename T>
void gemm_in_thread(const Product<T>& product) {
  with_factors(product, [](const Product<T>& p) {
    multiply_tile(p, {0, p.rows, 0, p.cols}, nullptr);
  });
}

template void gemm_in_thread(const Product<float>&);
template void gemm_in_thread(const Product<double>&);
template void gemm(Stream&, const Product<float>&, const FinishTile&);
template void gemm(Stream&, const Product<double>&, const FinishTile&);

}  // namespace lockstep::kernels
