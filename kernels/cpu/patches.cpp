// Patches of images, and the gradients of convolutions (forward: linear.cpp). Forward and for the
// weight's gradient the product reads the patches from the images (gemm.h), and no matrix of
// patches is stored. For the images' gradient every thread takes a few images at a time: the
// gradient of their patches is a product, which is then added into them.
#include "kernels/cpu/patches.h"

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels {
namespace {

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
        windows, row, 0, windows.cols(),
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

// The transpose [cols, out] of the weight's gradient (grad_z [rows, out])^T * patches [rows, cols].
// In this form the patches are the factor that is read in place, and the narrower grad_z is the
// packed one.
template <typename T>
ConstMatrixView transposed_weight_gradient(Stream& stream, const ConvBackward& call) {
  Windows windows = call.windows;
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

std::size_t padded_elements(const Windows& w) {
  if (w.padding == 0) return 0;
  return w.images * (w.height + 2 * w.padding) * (w.width + 2 * w.padding) * w.channels;
}

template <typename T>
Factor<T> patches_factor(Stream& stream, Windows& windows, ConstTensorView images,
                         TensorView scratch, Transpose transpose) {
  const Windows w = windows;
  Factor<T> factor{data_of<T>(images), w.cols(), transpose};
  if (w.are_pixels()) return factor;
  factor.windows = &windows;
  if (w.padding == 0) return factor;
  windows.height += 2 * w.padding;
  windows.width += 2 * w.padding;
  windows.padding = 0;
  const std::size_t margin = w.padding * w.channels;
  const std::size_t line = w.width * w.channels;
  const std::size_t border = w.padding * (line + 2 * margin);  // above an image, and below
  T* const padded = data_of<T>(scratch);
  parallel_rows(stream, w.images, windows.image_elements(),
                [&](std::size_t begin, std::size_t end) {
                  const T* from = factor.data + begin * w.image_elements();
                  T* to = padded + begin * windows.image_elements();
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
  factor.data = padded;
  return factor;
}

template Factor<float> patches_factor(Stream&, Windows&, ConstTensorView, TensorView, Transpose);
template Factor<double> patches_factor(Stream&, Windows&, ConstTensorView, TensorView, Transpose);

void EigenBackend::patches(Stream& stream, const Patches& call) {
  for_floating(call.x.dtype, "patches", [&]<typename T>() {
    parallel_rows(stream, call.patches.rows, call.patches.cols,
                  [&](std::size_t begin, std::size_t end) {
                    PatchRow row(call.windows, begin);
                    for (std::size_t i = begin; i < end; ++i, row.advance()) {
                      read_patch(data_of<T>(call.x), call.windows, row, 0, call.patches.cols,
                                 row_of<T>(call.patches, i));
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
