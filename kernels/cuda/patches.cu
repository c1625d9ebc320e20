// Patches of images, their transpose, and convolutions: cuBLASLt's products over the patches of as
// many images at a time as the scratch memory holds, unless cuDNN convolves (cudnn_convolution.h).
// fold_patches gathers, so it needs no atomic additions and gives the same bits in every run.
#include <algorithm>
#include <bit>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cudnn_convolution.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/geometry.cuh"
#include "kernels/cuda/product.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels::cuda {
namespace {

// The most elements of patches at a time, unless one image has more: 64 MiB of float32.
constexpr std::size_t kScratchElements = std::size_t{16} << 20;

template <typename T>
__global__ void patches_kernel(Geometry g, const T* x, std::size_t rows, T* patches,
                               std::size_t leading_dimension) {
  for_matrix(rows, g.cols, [&](std::size_t row, std::size_t j) {
    const std::size_t image = row / g.rows_per_image;
    const auto window = static_cast<unsigned>(row - image * g.rows_per_image);
    const auto column = static_cast<unsigned>(j);
    const unsigned pixel = column / g.channels;
    // Includes the padding; values below it wrap around and are outside the image.
    const unsigned y = window / g.out_width * g.stride + pixel / g.kernel_width - g.padding;
    const unsigned px = window % g.out_width * g.stride + pixel % g.kernel_width - g.padding;
    const bool is_inside = y < g.height && px < g.width;
    const std::size_t at = ((image * g.height + y) * g.width + px) * g.channels;
    patches[row * leading_dimension + j] = is_inside ? x[at + (column - pixel * g.channels)] : T{};
  });
}

// The windows of one dimension that contain a pixel: first ... last - 1.
__device__ void windows_over(unsigned pixel, unsigned kernel, unsigned stride, unsigned padding,
                             unsigned count, unsigned& first, unsigned& last) {
  const unsigned at = pixel + padding;
  first = at < kernel ? 0 : (at - kernel) / stride + 1;
  last = at / stride + 1 < count ? at / stride + 1 : count;
}

template <typename T>
__global__ void fold_kernel(Geometry g, const T* patches, std::size_t leading_dimension,
                            std::size_t num_elements, T* x) {
  const unsigned out_height = g.rows_per_image / g.out_width;
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread(); i < num_elements; i += step) {
    const std::size_t per_image = std::size_t{g.height} * g.width * g.channels;
    const std::size_t image = i / per_image;
    const auto element = static_cast<unsigned>(i - image * per_image);
    const unsigned channel = element % g.channels;
    const unsigned px = element / g.channels % g.width;
    const unsigned y = element / g.channels / g.width;
    unsigned first_y, last_y, first_x, last_x;
    windows_over(y, g.kernel_height, g.stride, g.padding, out_height, first_y, last_y);
    windows_over(px, g.kernel_width, g.stride, g.padding, g.out_width, first_x, last_x);
    ArithmeticOf<T> sum = 0;
    for (unsigned oy = first_y; oy < last_y; ++oy) {
      for (unsigned ox = first_x; ox < last_x; ++ox) {
        const unsigned ky = y + g.padding - oy * g.stride;
        const unsigned kx = px + g.padding - ox * g.stride;
        const std::size_t row = image * g.rows_per_image + oy * g.out_width + ox;
        const std::size_t column = (ky * g.kernel_width + kx) * g.channels + channel;
        sum += number(patches[row * leading_dimension + column]);
      }
    }
    x[i] = static_cast<T>(sum);
  }
}

// The number of images whose patches fit into the scratch memory together. A power of two if that
// is not all of them: most batches then have slices of one size, and the sums of weight gradients
// have a length that can be divided among the cores of a GPU.
std::size_t images_per_slice(const Windows& w) {
  const std::size_t elements = w.rows_per_image() * w.cols();
  const std::size_t fit = elements == 0 ? w.images : kScratchElements / elements;
  if (fit >= w.images) return std::max<std::size_t>(w.images, 1);
  return std::bit_floor(std::max<std::size_t>(fit, 1));
}

// Rows of a matrix view.
template <typename View>
View rows_from(View view, std::size_t first, std::size_t count) {
  if (view.data == nullptr) return view;
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                  const std::byte, std::byte>;
  view.data = static_cast<Byte*>(view.data) + first * view.leading_dimension * size_of(view.dtype);
  view.rows = count;
  return view;
}

// Calls body(windows, first) for one slice of the images after another.
template <typename Body>
void for_slices(const Windows& w, const Body& body) {
  const std::size_t per_slice = images_per_slice(w);
  for (std::size_t first = 0; first < w.images; first += per_slice) {
    body(w.with_images(std::min(per_slice, w.images - first)), first);
  }
}

// A slice's part of the images x.
template <typename View>
View images_of(const View& x, const Windows& slice, std::size_t first) {
  return x.slice(first * slice.image_elements(), slice.images * slice.image_elements());
}

// From one row of patches to the next: bfloat16 rows are aligned as products read them.
std::size_t patch_stride(const Windows& windows) {
  return takes_bfloat16() ? (windows.cols() + 7) / 8 * 8 : windows.cols();
}

MatrixView scratch_of(const Windows& slice, const TensorView& scratch) {
  MatrixView rows = matrix_view(scratch.data, scratch.dtype, slice.rows(), slice.cols());
  rows.leading_dimension = patch_stride(slice);
  return rows;
}

}  // namespace

void CudaBackend::patches(Stream& stream, const Patches& call) {
  if (call.patches.num_elements() == 0) return;
  for_activations(call.x.dtype, "patches", [&]<typename T>() {
    launch(stream, "patches", row_tiles(call.patches.rows, call.patches.cols), patches_kernel<T>,
           Geometry(call.windows), data_of<T>(call.x), call.patches.rows, data_of<T>(call.patches),
           call.patches.leading_dimension);
  });
}

void CudaBackend::fold_patches(Stream& stream, const FoldPatches& call) {
  if (call.x.num_elements == 0) return;
  for_activations(call.x.dtype, "patches backward", [&]<typename T>() {
    launch(stream, "patches backward", covering(call.x.num_elements, kThreads), fold_kernel<T>,
           Geometry(call.windows), data_of<T>(call.patches), call.patches.leading_dimension,
           call.x.num_elements, data_of<T>(call.x));
  });
}

std::size_t CudaBackend::conv_scratch(const Windows& windows) const {
  if (windows.are_pixels()) return 0;
  return std::min(windows.images, images_per_slice(windows)) * windows.rows_per_image() *
         patch_stride(windows);
}

void CudaBackend::conv_forward(Stream& stream, const ConvForward& call) {
  if (call.windows.are_pixels()) {
    return linear_forward(stream,
                          {matrix_view(call.x.data, call.x.dtype, call.y.rows, call.windows.cols()),
                           call.weight, call.bias, call.activation, call.y, call.preactivation});
  }
  if (convolve_by_cudnn(stream, call)) return;
  for_slices(call.windows, [&](const Windows& slice, std::size_t first) {
    const std::size_t row = first * slice.rows_per_image();
    const MatrixView rows = scratch_of(slice, call.scratch);
    patches(stream, {slice, images_of(call.x, slice, first), rows});
    linear_forward(stream, {rows, call.weight, call.bias, call.activation,
                            rows_from(call.y, row, slice.rows()),
                            rows_from(call.preactivation, row, slice.rows())});
  });
}

void CudaBackend::conv_backward(Stream& stream, const ConvBackward& call) {
  const Windows& w = call.windows;
  const auto* name = "conv2d backward";
  if (w.are_pixels()) {
    const auto pixels = [&](auto* data) {
      return matrix_view(data, call.x.dtype, w.rows(), w.cols());
    };
    return linear_backward(stream, {pixels(call.x.data), call.weight, call.grad_z,
                                    call.grad_x.data ? pixels(call.grad_x.data) : MatrixView{},
                                    call.grad_weight, call.grad_bias});
  }
  const ConstMatrixView nothing = matrix_view(call.x.data, call.x.dtype, call.grad_z.rows, 0);
  linear_backward(stream, {nothing, call.weight, call.grad_z, {}, {}, call.grad_bias});
  const ConvBackward rest = left_by_cudnn(stream, call);
  if (!rest.grad_x.data && !rest.grad_weight.data) return;
  if (w.images == 0 && rest.grad_weight.data) zero_matrix(stream, rest.grad_weight);
  for_slices(w, [&](const Windows& slice, std::size_t first) {
    const MatrixView rows = scratch_of(slice, call.scratch);
    const ConstMatrixView grad_z =
        rows_from(call.grad_z, first * slice.rows_per_image(), slice.rows());
    if (rest.grad_weight.data) {
      patches(stream, {slice, images_of(call.x, slice, first), rows});
      run(stream, {name, grad_z, Transpose::yes, rows, Transpose::no, call.grad_weight,
                   first == 0 ? Write::overwrite : Write::accumulate});
    }
    if (rest.grad_x.data) {
      run(stream, {name, grad_z, Transpose::no, call.weight, Transpose::no, rows});
      fold_patches(stream, {slice, rows, images_of(call.grad_x, slice, first)});
    }
  });
}

}  // namespace lockstep::kernels::cuda
