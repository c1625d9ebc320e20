// Pooling over windows of images, and images as rows.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/images.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"
#include "kernels/image_calls.h"

namespace lockstep {
namespace {

using kernels::Pooling;
using kernels::Windows;

const char* name_of(Pooling pooling) {
  return pooling == Pooling::maximum ? "MaxPool2d" : "AvgPool2d";
}

// Maximum: each window's gradient goes to the pixel that won. Average: it goes to all of them
// equally, divided by the window's size.
Variable pool(const Variable& x, const Windows& windows, Pooling pooling) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, name_of(pooling));
  const Tensor& images = x.value();
  Tensor y =
      Tensor::empty({windows.images, windows.out_height(), windows.out_width(), windows.channels},
                    images.dtype(), images.device());
  Tensor winners;  // maximum only
  if (pooling == Pooling::maximum) winners = Tensor::empty(y.shape(), DType::int32, y.device());
  y.backend().pool_forward(y.stream(),
                           {windows, pooling, images.view(), y.view(), view_or_none(winners)});
  const auto backward = [windows, pooling](const Node& node, const Gradients& grad_outputs) {
    const Tensor grad_x = node.gradient_buffer(0);
    grad_x.backend().pool_backward(grad_x.stream(), {windows, pooling, view_or_none(node.saved(0)),
                                                     grad_outputs[0].view(), grad_x.view()});
    return Gradients{grad_x};
  };
  return record(name_of(pooling), {x}, std::move(y), {winners}, backward);
}

Windows pool_windows(const char* operation, const Variable& x, std::size_t kernel,
                     const WindowOptions& options) {
  require(options.padding <= kernel / 2, ErrorCode::Shape, operation,
          "pad should be at most half of the kernel size, but got pad={} and kernel_size={}",
          options.padding, kernel);
  return windows_over(operation, x.shape(), kernel, kernel, options);
}

}  // namespace

Variable max_pool2d(const Variable& x, std::size_t kernel, const WindowOptions& options) {
  return pool(x, pool_windows("max_pool2d", x, kernel, options), Pooling::maximum);
}

Variable avg_pool2d(const Variable& x, std::size_t kernel, const WindowOptions& options) {
  return pool(x, pool_windows("avg_pool2d", x, kernel, options), Pooling::average);
}

Variable global_avg_pool(const Variable& x) {
  const Shape& images = x.shape();
  require(images.num_dims() == 4, ErrorCode::Shape, "global_avg_pool",
          "expected images [batch, height, width, channels], found {}", to_string(images));
  const Windows all = windows_over("global_avg_pool", images, images[1], images[2], {});
  return reshape(pool(x, all, Pooling::average), {images[0], images[3]});
}

// y = each image's [pixels, channels] matrix, transposed; its gradient is transposed back.
Variable flatten_images(const Variable& x) {
  const Shape& images = x.shape();
  require(images.num_dims() == 4, ErrorCode::Shape, "flatten",
          "expected images [batch, height, width, channels], found {}", to_string(images));
  const std::size_t num_pixels = images[1] * images[2];
  const Shape rows{images[0], num_pixels * images[3]};
  if (images[3] == 1 || num_pixels == 1) return reshape(x, rows);
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "FlattenImages");
  const Tensor& from = x.value();
  Tensor y = Tensor::empty(rows, from.dtype(), from.device());
  y.backend().transpose(
      y.stream(),
      {{from.raw(), from.dtype(), num_pixels, images[3], images[3], images[0], rows[1]}, y.view()});
  const auto backward = [num_pixels](const Node& node, const Gradients& grad_outputs) {
    const Tensor& grad_y = grad_outputs[0];
    const Tensor grad_x = node.gradient_buffer(0);
    const Shape& shape = grad_x.shape();
    grad_x.backend().transpose(
        grad_x.stream(), {{grad_y.raw(), grad_y.dtype(), shape[3], num_pixels, num_pixels, shape[0],
                           shape[3] * num_pixels},
                          grad_x.view()});
    return Gradients{grad_x};
  };
  return record("FlattenImages", {x}, std::move(y), {}, backward);
}

}  // namespace lockstep
