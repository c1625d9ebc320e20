// The differentiable operations on images [batch, height, width, channels], channels last.
//
// A convolution is a linear layer over patches: conv2d(x, W, b) has the values of
//   linear(patches(x, KH, KW), W as [out, KH * KW * channels], b)
// reshaped to images again. All operations here throw Error{Shape} for inputs that are not images,
// a window larger than the padded image, and a stride of 0.
#pragma once

#include "engine/autograd/ops/ops.h"
#include "kernels/windows.h"

namespace lockstep {

struct WindowOptions {
  std::size_t stride = 1;
  std::size_t padding = 0;  // pixels of zeros on every side
};

// The pixels of each window as a row, [kernel_height, kernel_width, channels] flattened:
// [batch, height, width, channels] -> [batch * out_height * out_width, KH * KW * channels], where
// out_height = (height + 2 * padding - KH) / stride + 1.
// Source: PyTorch nn.Unfold, whose rows are columns and have the channels first.
Variable patches(const Variable& x, std::size_t kernel_height, std::size_t kernel_width,
                 const WindowOptions& options = {});

// y = activation(conv(x, W) + b). x [batch, height, width, in], W [out, KH, KW, in], b [out] or
// undefined -> y [batch, out_height, out_width, out]. No matrix of patches is stored on the CPU.
// Source: PyTorch nn.Conv2d, with the channels last here.
Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias,
                const WindowOptions& options = {}, Activation activation = Activation::none);

// The largest, or the average, of each window's pixels, per channel; the average counts padding as
// zeros. Throws Error{Shape} for padding of more than half a kernel.
// Source: PyTorch nn.MaxPool2d and nn.AvgPool2d.
Variable max_pool2d(const Variable& x, std::size_t kernel, const WindowOptions& options);
Variable avg_pool2d(const Variable& x, std::size_t kernel, const WindowOptions& options);
// The average of all pixels: [batch, height, width, channels] -> [batch, channels].
Variable global_avg_pool(const Variable& x);

// Rows in PyTorch's order, channel by channel, so that its weights of a linear layer fit:
// [batch, height, width, channels] -> [batch, channels * height * width].
Variable flatten_images(const Variable& x);

// The checked windows of an operation over images of that shape; errors have the tag `operation`.
kernels::Windows windows_over(std::string_view operation, const Shape& images,
                              std::size_t kernel_height, std::size_t kernel_width,
                              const WindowOptions& options);

}  // namespace lockstep
