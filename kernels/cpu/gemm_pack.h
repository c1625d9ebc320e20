// Brings the factors of a matrix product into the order in which gemm_kernel.h reads them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_kernel.h"

namespace lockstep::kernels {

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

// A part of the inner dimension.
struct DepthRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Width of the panel that starts with `cols` columns left: two vectors, or one if that is enough.
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

// Copies rows of a that is read transposed, `limit` columns wide in memory: to[p * rows + i].
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
    // In whole vectors: what is too much is overwritten by the next step.
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
    for (std::size_t p = 0; p < depth.size(); ++p) {
      const T* from = b.data + (depth.begin + p) * b.leading_dimension + col;
      std::copy(from, from + cols, to + p * width);
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

}  // namespace lockstep::kernels
