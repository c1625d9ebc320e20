#include "fold_patches.h"

#include <limits>
#include <span>
#include <utility>

#include "engine/autograd/node.h"
#include "lab.h"

namespace lab {
namespace {

using lockstep::Gradients;
using lockstep::Shape;
using lockstep::Tensor;
using lockstep::Variable;

constexpr std::size_t kPadding = std::numeric_limits<std::size_t>::max();

std::size_t num_places(std::size_t pixels, const Window& window) {
  return (pixels + 2 * window.padding - window.size) / window.stride + 1;
}

// The place in the images, [images, height, width, channels] row by row, from which this element of
// the matrix of patches is copied; kPadding if it lies in the padding.
std::size_t source_of(const Window& window, const Shape& images, std::size_t row,
                      std::size_t column) {
  const std::size_t height = images[1], width = images[2], channels = images[3];
  const std::size_t out_height = num_places(height, window);
  const std::size_t out_width = num_places(width, window);
  const std::size_t image = row / (out_height * out_width);  // row (image, oy, ox)
  const std::size_t oy = row / out_width % out_height, ox = row % out_width;
  const std::size_t i = column / channels / window.size;  // column (i, j, channel)
  const std::size_t j = column / channels % window.size, channel = column % channels;
  // SOLUTION begin: source_of: return the place of pixel (oy * stride + i - padding, ox * stride +
  // j
  // - padding) of this image and channel, or kPadding
  const std::size_t y = oy * window.stride + i - window.padding;  // wraps around above the image
  const std::size_t x = ox * window.stride + j - window.padding;
  if (y >= height || x >= width) return kPadding;
  return ((image * height + y) * width + x) * channels + channel;
  // SOLUTION end
}

// grad_outputs[0] is the gradient of the matrix of patches. Returns that of the images.
Gradients patches_backward(const Window& window, const Shape& images,
                           const Gradients& grad_outputs) {
  const Tensor& grad_patches = grad_outputs[0];
  const std::size_t rows = grad_patches.size(0), columns = grad_patches.size(1);
  const std::span<const double> copies = grad_patches.host<const double>();
  const Tensor grad_images = Tensor::zeros(images, grad_patches.dtype());
  const std::span<double> pixels = grad_images.host<double>();
  // SOLUTION begin: patches_backward: every pixel's gradient = the sum of its copies' gradients
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t source = source_of(window, images, row, column);
      if (source != kPadding) pixels[source] += copies[row * columns + column];
    }
  }
  // SOLUTION end
  return {grad_images};
}

}  // namespace

Variable patches(const Variable& x, const Window& window) {
  const Shape& images = x.shape();
  const std::size_t rows =
      images[0] * num_places(images[1], window) * num_places(images[2], window);
  const std::size_t columns = window.size * window.size * images[3];
  Tensor matrix = Tensor::zeros({rows, columns}, x.dtype());
  const std::span<double> copies = matrix.host<double>();
  const std::span<const double> pixels = x.value().host<const double>();
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t source = source_of(window, images, row, column);
      if (source != kPadding) copies[row * columns + column] = pixels[source];
    }
  }
  const auto backward = [window, images](const lockstep::Node&, const Gradients& grad_outputs) {
    return patches_backward(window, images, grad_outputs);
  };
  return lockstep::record("LabPatches", {x}, std::move(matrix), {}, backward);
}

}  // namespace lab
