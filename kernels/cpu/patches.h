// Rows of an image's patches, read from the image itself.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/gemm.h"
#include "kernels/windows.h"

namespace lockstep::kernels {

// The window that corresponds to a row of the patches.
class PatchRow {
 public:
  PatchRow() = default;
  PatchRow(const Windows& windows, std::size_t row)
      : out_height_(windows.out_height()), out_width_(windows.out_width()) {
    x_ = row % out_width_;
    y_ = row / out_width_ % out_height_;
    image_ = row / out_width_ / out_height_;
  }
  std::size_t image() const { return image_; }
  std::size_t y() const { return y_; }
  std::size_t x() const { return x_; }
  void advance() {
    if (++x_ < out_width_) return;
    x_ = 0;
    if (++y_ < out_height_) return;
    y_ = 0;
    ++image_;
  }

 private:
  std::size_t out_height_ = 0;
  std::size_t out_width_ = 0;
  std::size_t image_ = 0;
  std::size_t y_ = 0;
  std::size_t x_ = 0;
};

// Calls inside(column, count, offset) for the parts of a row's columns begin ... end - 1 that lie
// in the image, `offset` elements after the first image's first element, and outside(column, count)
// for those in the padding.
template <typename Inside, typename Outside>
void for_stretches(const Windows& w, const PatchRow& row, std::size_t begin, std::size_t end,
                   const Inside& inside, const Outside& outside) {
  const std::size_t length = w.kernel_width * w.channels;
  const std::size_t line = w.width * w.channels;
  const std::size_t margin = w.padding * w.channels;
  const std::size_t left = row.x() * w.stride * w.channels;  // margin included
  std::size_t ky = begin / length;
  for (std::size_t at = begin; at < end; ++ky) {
    const std::size_t stop = std::min(end, (ky + 1) * length);
    const std::size_t padded_y = row.y() * w.stride + ky;
    if (padded_y < w.padding || padded_y >= w.padding + w.height) {
      outside(at, stop - at);
      at = stop;
      continue;
    }
    // Places in the padded line, which holds the image's line at margin ... margin + line - 1.
    const std::size_t first = left + (at - ky * length);
    const std::size_t last = left + (stop - ky * length);
    const std::size_t from = std::clamp(first, margin, margin + line);
    const std::size_t to = std::clamp(last, margin, margin + line);
    if (to <= from) {
      outside(at, stop - at);
    } else {
      if (first < from) outside(at, from - first);
      inside(at + (from - first), to - from,
             (row.image() * w.height + padded_y - w.padding) * line + from - margin);
      if (to < last) outside(at + (to - first), last - to);
    }
    at = stop;
  }
}

// to[0 ... end - begin - 1] = columns begin ... end - 1 of a row of the patches of images x.
template <typename T>
void read_patch(const T* x, const Windows& windows, const PatchRow& row, std::size_t begin,
                std::size_t end, T* to) {
  for_stretches(
      windows, row, begin, end,
      [&](std::size_t column, std::size_t count, std::size_t offset) {
        std::copy_n(x + offset, count, to + (column - begin));
      },
      [&](std::size_t column, std::size_t count) {
        std::fill_n(to + (column - begin), count, T(0));
      });
}

// The patches of images as a factor of products. Their padding is written out into scratch, which
// has padded_elements(windows) elements, and `windows` then describes the padded images.
// REQUIRES: windows and scratch outlive the products.
template <typename T>
Factor<T> patches_factor(Stream& stream, Windows& windows, ConstTensorView images,
                         TensorView scratch, Transpose transpose = Transpose::no);

// 0 without padding.
std::size_t padded_elements(const Windows& windows);

extern template Factor<float> patches_factor(Stream&, Windows&, ConstTensorView, TensorView,
                                             Transpose);
extern template Factor<double> patches_factor(Stream&, Windows&, ConstTensorView, TensorView,
                                              Transpose);

}  // namespace lockstep::kernels
