// Patches of images, and convolutions: linear layers over them. Forward and for the weight's
// gradient the product reads the patches from the images (gemm.h), and no matrix of patches is
// stored. For the images' gradient every thread takes a few images at a time: the gradient of their
// patches is a product, which is then added into them.
#include <algorithm>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/parallel.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels {
namespace {

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

// Calls inside(column, count, offset) for the parts of a row that lie in the image, `offset`
// elements after the first image's first element, and outside(column, count) for those in the
// padding.
template <typename Inside, typename Outside>
void for_stretches(const Windows& w, const PatchRow& row, const Inside& inside,
                   const Outside& outside) {
  const std::size_t length = w.kernel_width * w.channels;
  const std::size_t line = w.width * w.channels;
  const std::size_t margin = w.padding * w.channels;
  // Places in a padded line, which holds the image's line at margin ... margin + line - 1.
  const std::size_t left = row.x() * w.stride * w.channels;
  const std::size_t right = left + length;
  const std::size_t from = std::clamp(left, margin, margin + line);
  const std::size_t to = std::clamp(right, margin, margin + line);
  for (std::size_t ky = 0; ky < w.kernel_height; ++ky) {
    const std::size_t column = ky * length;
    const std::size_t padded_y = row.y() * w.stride + ky;
    if (padded_y < w.padding || padded_y >= w.padding + w.height || to <= from) {
      outside(column, length);
      continue;
    }
    if (left < from) outside(column, from - left);
    inside(column + (from - left), to - from,
           (row.image() * w.height + padded_y - w.padding) * line + from - margin);
    if (to < right) outside(column + (to - left), right - to);
  }
}

// A thread holds the gradient of so many rows of patches at a time: enough to make packing the
// weight worthwhile.
constexpr std::size_t kFoldedRows = 256;

// Adds the rows of patches of `count` images, from `first` on, to the images.
template <typename T>
void add_patches(const Windows& windows, const T* patches, std::size_t leading_dimension,
                 std::size_t first, std::size_t count, T* x) {
  std::fill_n(x + first * windows.image_elements(), count * windows.image_elements(), T(0));
  PatchRow row(windows, first * windows.rows_per_image());
  for (std::size_t i = 0; i < count * windows.rows_per_image(); ++i, row.advance()) {
    const T* const from = patches + i * leading_dimension;
    for_stretches(
        windows, row,
        [&](std::size_t column, std::size_t length, std::size_t offset) {
          T* const to = x + offset;
          const T* const values = from + column;
          LOCKSTEP_INDEPENDENT
          for (std::size_t j = 0; j < length; ++j) to[j] += values[j];
        },
        [](std::size_t, std::size_t) {});
  }
}

// The gradient of the images; that of their patches is grad_z * weight.
template <typename T>
void conv_backward_images(Stream& stream, const ConvBackward& call) {
  const Windows& w = call.windows;
  const std::size_t rows = w.rows_per_image();
  const std::size_t num_threads = stream.device().threads().num_threads();
  const std::size_t per_slice =
      std::clamp<std::size_t>(kFoldedRows / std::max<std::size_t>(rows, 1), 1,
                              std::max<std::size_t>(1, w.images / num_threads));
  const std::size_t num_slices = (w.images + per_slice - 1) / per_slice;
  stream.device().threads().parallel_for(num_slices, [&](std::size_t slice) {
    const std::size_t first = slice * per_slice;
    const std::size_t count = std::min(per_slice, w.images - first);
    T* const patches = thread_scratch<T>(count * rows * w.cols());
    gemm_in_thread<T>({.a = {row_of<T>(call.grad_z, first * rows), call.grad_z.leading_dimension},
                       .b = {data_of<T>(call.weight), call.weight.leading_dimension},
                       .c = patches,
                       .leading_dimension = w.cols(),
                       .rows = count * rows,
                       .cols = w.cols(),
                       .depth = call.weight.rows});
    add_patches(w, patches, w.cols(), first, count, data_of<T>(call.grad_x));
  });
}

// 0 without padding.
std::size_t padded_elements(const Windows& w) {
  if (w.padding == 0) return 0;
  return w.images * (w.height + 2 * w.padding) * (w.width + 2 * w.padding) * w.channels;
}

// Writes the images with their padding to `padded`.
template <typename T>
void write_padded(Stream& stream, const Windows& w, const T* images, T* padded) {
  const std::size_t margin = w.padding * w.channels;
  const std::size_t line = w.width * w.channels;
  const std::size_t border = w.padding * (line + 2 * margin);  // above an image, and below
  const std::size_t padded_image = 2 * border + w.height * (line + 2 * margin);
  parallel_rows(stream, w.images, padded_image, [&](std::size_t begin, std::size_t end) {
    const T* from = images + begin * w.image_elements();
    T* to = padded + begin * padded_image;
    for (std::size_t image = begin; image < end; ++image) {
      to = std::fill_n(to, border, T(0));
      for (std::size_t y = 0; y < w.height; ++y, from += line) {
        to = std::fill_n(to, margin, T(0));
        to = std::copy_n(from, line, to);
        to = std::fill_n(to, margin, T(0));
      }
      to = std::fill_n(to, border, T(0));
    }
  });
}

// The patches of images as a factor of products. Their padding is written out into scratch, which
// has padded_elements(windows) elements and outlives the products.
template <typename T>
Factor<T> patches_factor(Stream& stream, const Windows& w, ConstTensorView images,
                         TensorView scratch, Transpose transpose = Transpose::no) {
  Factor<T> factor{data_of<T>(images), w.cols(), transpose};
  if (w.are_pixels()) return factor;
  const std::size_t line = (w.width + 2 * w.padding) * w.channels;
  const std::size_t image = (w.height + 2 * w.padding) * line;
  factor.nested = {.rows = {.counts = {w.images, w.out_height(), w.out_width()},
                            .distances = {image, w.stride * line, w.stride * w.channels}},
                   .cols = {.counts = {1, w.kernel_height, w.kernel_width * w.channels},
                            .distances = {0, line, 1}}};
  if (w.padding == 0) return factor;
  write_padded(stream, w, factor.data, data_of<T>(scratch));
  factor.data = data_of<T>(scratch);
  return factor;
}

// The transpose [cols, out] of the weight's gradient (grad_z [rows, out])^T * patches [rows, cols].
// In this form the patches are the factor that is read in place, and the narrower grad_z is the
// packed one.
template <typename T>
ConstMatrixView transposed_weight_gradient(Stream& stream, const ConvBackward& call) {
  const Windows& windows = call.windows;
  const Factor<T> patches =
      patches_factor<T>(stream, windows, call.x, call.scratch, Transpose::yes);
  const std::size_t out = call.weight.rows;
  T* const transposed = thread_scratch<T>(windows.cols() * out);
  gemm<T>(stream, {.a = patches,
                   .b = {data_of<T>(call.grad_z), call.grad_z.leading_dimension},
                   .c = transposed,
                   .leading_dimension = out,
                   .rows = windows.cols(),
                   .cols = out,
                   .depth = windows.rows()});
  return matrix_view(transposed, call.x.dtype, windows.cols(), out);
}

}  // namespace

void EigenBackend::patches(Stream& stream, const Patches& call) {
  for_floating(call.x.dtype, "patches", [&]<typename T>() {
    parallel_rows(stream, call.patches.rows, call.patches.cols,
                  [&](std::size_t begin, std::size_t end) {
                    PatchRow row(call.windows, begin);
                    for (std::size_t i = begin; i < end; ++i, row.advance()) {
                      T* const to = row_of<T>(call.patches, i);
                      for_stretches(
                          call.windows, row,
                          [&](std::size_t column, std::size_t count, std::size_t offset) {
                            std::copy_n(data_of<T>(call.x) + offset, count, to + column);
                          },
                          [&](std::size_t column, std::size_t count) {
                            std::fill_n(to + column, count, T(0));
                          });
                    }
                  });
  });
}

void EigenBackend::fold_patches(Stream& stream, const FoldPatches& call) {
  for_floating(call.x.dtype, "patches backward", [&]<typename T>() {
    parallel_rows(
        stream, call.windows.images, call.windows.rows_per_image() * call.windows.cols(),
        [&](std::size_t begin, std::size_t end) {
          add_patches(call.windows, row_of<T>(call.patches, begin * call.windows.rows_per_image()),
                      call.patches.leading_dimension, begin, end - begin, data_of<T>(call.x));
        });
  });
}

std::size_t EigenBackend::conv_scratch(const Windows& windows) const {
  return padded_elements(windows);
}

void EigenBackend::conv_forward(Stream& stream, const ConvForward& call) {
  for_floating(call.x.dtype, "conv2d", [&]<typename T>() {
    kernels::linear_forward<T>(stream,
                               patches_factor<T>(stream, call.windows, call.x, call.scratch),
                               {.x = {},
                                .weight = call.weight,
                                .bias = call.bias,
                                .activation = call.activation,
                                .y = call.y,
                                .preactivation = call.preactivation});
  });
}

void EigenBackend::conv_backward(Stream& stream, const ConvBackward& call) {
  const Windows& w = call.windows;
  for_floating(call.x.dtype, "conv2d backward", [&]<typename T>() {
    if (w.are_pixels()) {
      const auto pixels = [&](auto* data) {
        return matrix_view(data, call.x.dtype, w.rows(), w.cols());
      };
      return linear_backward(stream, {pixels(call.x.data), call.weight, call.grad_z,
                                      call.grad_x.data ? pixels(call.grad_x.data) : MatrixView{},
                                      call.grad_weight, call.grad_bias});
    }
    if (call.grad_bias.data) {
      column_sums<T>(stream, w.rows(), call.weight.rows, data_of<T>(call.grad_bias),
                     [&](std::size_t row) { return row_of<T>(call.grad_z, row); });
    }
    if (call.grad_weight.data) {
      transpose(stream, {transposed_weight_gradient<T>(stream, call),
                         {call.grad_weight.data, call.x.dtype, w.cols() * call.weight.rows}});
    }
    if (call.grad_x.data) conv_backward_images<T>(stream, call);
  });
}

}  // namespace lockstep::kernels
