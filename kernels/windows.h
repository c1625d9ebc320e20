// The windows that slide over images: the geometry of convolutions and poolings.
#pragma once

#include <compare>
#include <cstddef>

namespace lockstep::kernels {

// Images are [images, height, width, channels], channels last. Windows of kernel_height x
// kernel_width pixels are `stride` apart, on images with `padding` more pixels on every side.
//
// The patches of such images are a matrix [rows(), cols()]: row (image, oy, ox) has the pixels of
// one window, [kernel_height, kernel_width, channels]. So it consists of kernel_height stretches of
// kernel_width * channels elements, each of which is consecutive in the image's memory too.
// REQUIRES: stride > 0, and a padded image at least as large as the window.
struct Windows {
  std::size_t images = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
  std::size_t kernel_height = 1;
  std::size_t kernel_width = 1;
  std::size_t stride = 1;
  std::size_t padding = 0;

  auto operator<=>(const Windows&) const = default;
  std::size_t out_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t out_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::size_t rows_per_image() const { return out_height() * out_width(); }
  std::size_t rows() const { return images * rows_per_image(); }
  std::size_t cols() const { return kernel_height * kernel_width * channels; }
  std::size_t image_elements() const { return height * width * channels; }

  // True if the patches are the image itself: a 1x1 convolution.
  bool are_pixels() const {
    return kernel_height == 1 && kernel_width == 1 && stride == 1 && padding == 0;
  }
  // The same windows over `count` of the images.
  Windows with_images(std::size_t count) const {
    Windows result = *this;
    result.images = count;
    return result;
  }
};

// How a pooling reduces a window to one pixel. The average counts padding as zeros, as PyTorch's
// default does; the maximum ignores it, and a NaN is the largest.
enum class Pooling { maximum, average };

}  // namespace lockstep::kernels
