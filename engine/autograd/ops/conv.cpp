// Patches of images, and the convolution: a linear layer over them.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/images.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"
#include "kernels/image_calls.h"

namespace lockstep {

using kernels::Windows;

Windows windows_over(std::string_view operation, const Shape& images, std::size_t kernel_height,
                     std::size_t kernel_width, const WindowOptions& options) {
  require(images.num_dims() == 4, ErrorCode::Shape, operation,
          "expected images [batch, height, width, channels], found {}", to_string(images));
  require(options.stride > 0, ErrorCode::Shape, operation,
          "non-positive stride is not supported, found stride 0");
  require(kernel_height > 0 && kernel_width > 0, ErrorCode::Shape, operation,
          "kernel size should be greater than zero, found {}x{}", kernel_height, kernel_width);
  const std::size_t height = images[1] + 2 * options.padding;
  const std::size_t width = images[2] + 2 * options.padding;
  require(kernel_height <= height && kernel_width <= width, ErrorCode::Shape, operation,
          "kernel size ({} x {}) can't be greater than the padded input ({} x {}, of images {} x "
          "{} with padding {})",
          kernel_height, kernel_width, height, width, images[1], images[2], options.padding);
  return {images[0],     images[1],    images[2],      images[3],
          kernel_height, kernel_width, options.stride, options.padding};
}

namespace {

// Undefined if the device's convolutions need none.
Tensor scratch_for(const Windows& windows, const Tensor& like) {
  const std::size_t num_elements = like.backend().conv_scratch(windows);
  return num_elements == 0 ? Tensor() : Tensor::empty({num_elements}, like.dtype(), like.device());
}

void check_weight(const Shape& x, const Tensor& weight, const Tensor& bias) {
  require(weight.num_dims() == 4, ErrorCode::Shape, "conv2d",
          "expected a weight [out, kernel height, kernel width, in], found {}",
          to_string(weight.shape()));
  require(x.num_dims() != 4 || x[3] == weight.size(3), ErrorCode::Shape, "conv2d",
          "expected input {} to have {} channels, but got {} channels instead", to_string(x),
          weight.size(3), x[x.num_dims() - 1]);
  require(!bias.defined() || bias.shape() == Shape{weight.size(0)}, ErrorCode::Shape, "conv2d",
          "bias {} does not fit the {} channels that come out",
          bias.defined() ? to_string(bias.shape()) : "", weight.size(0));
}

}  // namespace

// Row r of the patches has copies of x's elements, so each element's gradient is the sum of theirs.
Variable patches(const Variable& x, std::size_t kernel_height, std::size_t kernel_width,
                 const WindowOptions& options) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Patches");
  const Tensor& images = x.value();
  const Windows windows =
      windows_over("patches", images.shape(), kernel_height, kernel_width, options);
  Tensor rows = Tensor::empty({windows.rows(), windows.cols()}, images.dtype(), images.device());
  rows.backend().patches(rows.stream(), {windows, images.view(), rows.matrix()});
  const auto backward = [windows](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    grad_x.backend().fold_patches(grad_x.stream(),
                                  {windows, grad_outputs[0].matrix(), grad_x.view()});
    return Gradients{grad_x};
  };
  return record("Patches", {x}, std::move(rows), {}, backward);
}

// y = f(z), z = P * W^T + b with P the patches of x, and fold the transpose of taking patches:
//   grad_z = grad_y * f'            [rows, out]
//   grad_x = fold(grad_z * W)       [batch, height, width, in]
//   grad_W = grad_z^T * P           [out, KH * KW * in]
//   grad_b = column sums of grad_z
Variable conv2d(const Variable& batch, const Variable& weight, const Variable& bias,
                const WindowOptions& options, Activation activation) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Conv2d");
  const Tensor& w = weight.value();
  const Tensor b = bias.defined() ? bias.value() : Tensor();
  const Variable x = as_activation("conv2d", batch, w.dtype());
  const Tensor& images = x.value();
  require_same_device("conv2d", {&images, &w, &b});
  require_same_dtype("conv2d", {&w, &b});
  check_weight(images.shape(), w, b);
  const Windows windows = windows_over("conv2d", images.shape(), w.size(1), w.size(2), options);
  Tensor y = Tensor::empty({windows.images, windows.out_height(), windows.out_width(), w.size(0)},
                           images.dtype(), images.device());
  Tensor activated;
  if (kernels::needs_preactivation(activation)) {
    activated = Tensor::empty_like(y);
  } else if (activation != Activation::none) {
    activated = y;
  }
  const Tensor scratch = scratch_for(windows, images);
  y.backend().conv_forward(
      y.stream(), {.windows = windows,
                   .x = images.view(),
                   .weight = w.matrix(),
                   .bias = view_or_none(b),
                   .activation = activation,
                   .y = rows_of(y),
                   .preactivation =
                       kernels::needs_preactivation(activation) ? rows_of(activated) : MatrixView{},
                   .scratch = view_or_none(scratch)});
  const auto backward = [windows, activation](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_z = gradient_before(activation, node.saved(2), grad_outputs[0]);
    Gradients grads = node.gradient_buffers();
    const Tensor& kept_x = grads[1].defined() ? node.saved(0) : node.unchecked(0);
    const Tensor& kept_weight = grads[0].defined() ? node.saved(1) : node.unchecked(1);
    const Tensor temporary = scratch_for(windows, grad_z);
    grad_z.backend().conv_backward(
        grad_z.stream(), {.windows = windows,
                          .x = kept_x.view(),
                          .weight = kept_weight.matrix(),
                          .grad_z = rows_of(grad_z),
                          .grad_x = view_or_none(grads[0]),
                          .grad_weight = grads[1].defined() ? grads[1].matrix() : MatrixView{},
                          .grad_bias = view_or_none(grads[2]),
                          .scratch = view_or_none(temporary)});
    return grads;
  };
  return record("Conv2d", {x, weight, bias}, std::move(y), {images, w, activated}, backward);
}

}  // namespace lockstep
