// Patches of images, and the gradients of convolutions (forward: linear.cpp). Forward and for the
// weight's gradient the product reads the patches from the images (gemm.h), and no matrix of
// patches is stored. For the images' gradient every thread takes a few
// images at a time: the gradient of their patches is a product, which is then added up into them.
#include "kernels/cpu/patches.h"

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Rows of patches whose gradient a thread holds at a time: enough for the product to be worth its
// packing of the weight.
constexpr std::size_t kFoldedRows = 256;

// Adds the patches' rows, those of `count` images from `first` on, to the images.
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

// The gradient of the images: of their patches it is grad_z * weight.
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

}  // namespace

void EigenBackend::patches(Stream& stream, const Windows& windows, ConstTensorView x,
                           MatrixView patches) {
  for_floating(x.dtype, "patches", [&]<typename T>() {
    parallel_rows(stream, patches.rows, patches.cols, [&](std::size_t begin, std::size_t end) {
      PatchRow row(windows, begin);
      for (std::size_t i = begin; i < end; ++i, row.advance()) {
        read_patch(data_of<T>(x), windows, row, 0, patches.cols, row_of<T>(patches, i));
      }
    });
  });
}

void EigenBackend::fold_patches(Stream& stream, const Windows& windows, ConstMatrixView patches,
                                TensorView x) {
  for_floating(x.dtype, "patches backward", [&]<typename T>() {
    parallel_rows(stream, windows.images, windows.rows_per_image() * windows.cols(),
                  [&](std::size_t begin, std::size_t end) {
                    add_patches(windows, row_of<T>(patches, begin * windows.rows_per_image()),
                                patches.leading_dimension, begin, end - begin, data_of<T>(x));
                  });
  });
}

std::size_t EigenBackend::conv_scratch(const Windows& /*windows*/) const {
  return 0;
}

void EigenBackend::conv_backward(Stream& stream, const ConvBackward& call) {
  const Windows& w = call.windows;
  for_floating(call.x.dtype, "conv2d backward", [&]<typename T>() {
    if (w.are_pixels()) {
      return linear_backward(stream, matrix_view(call.x.data, call.x.dtype, w.rows(), w.cols()),
                             call.weight, call.grad_z,
                             call.grad_x.data
                                 ? matrix_view(call.grad_x.data, call.x.dtype, w.rows(), w.cols())
                                 : MatrixView{},
                             call.grad_weight, call.grad_bias);
    }
    if (call.grad_bias.data) {
      column_sums<T>(stream, w.rows(), call.weight.rows, data_of<T>(call.grad_bias),
                     [&](std::size_t row) { return row_of<T>(call.grad_z, row); });
    }
    if (call.grad_weight.data) {
      // [out, cols] = (grad_z [rows, out])^T * patches [rows, cols]
      gemm<T>(stream,
              {.a = {data_of<T>(call.grad_z), call.grad_z.leading_dimension, Transpose::yes},
               .b = patches_factor<T>(w, call.x),
               .c = data_of<T>(call.grad_weight),
               .leading_dimension = call.grad_weight.leading_dimension,
               .rows = call.weight.rows,
               .cols = w.cols(),
               .depth = w.rows()});
    }
    if (call.grad_x.data) conv_backward_images<T>(stream, call);
  });
}

}  // namespace lockstep::kernels
