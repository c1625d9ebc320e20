// Pooling. Every task has images of its own, and gradients are gathered or added in the order of
// the windows, so bits do not depend on the number of threads.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels {
namespace {

// A window cut to the image: rows begin_y ... end_y - 1, columns likewise.
struct CutWindow {
  std::size_t begin_y, end_y, begin_x, end_x;
  std::size_t padded_y, padded_x;  // its first pixel, padding included
};

// begin and end of the part of [at, at + size) that lies in the image, without the padding.
struct Range {
  std::size_t begin, end;
};
Range cut(std::size_t at, std::size_t size, std::size_t padding, std::size_t limit) {
  return {at < padding ? 0 : at - padding,
          at + size <= padding ? 0 : std::min(at + size - padding, limit)};
}

// Calls body(window, out) for each window of one image; out: the pixel of its result.
template <typename Body>
void for_windows(const Windows& w, const Body& body) {
  for (std::size_t oy = 0; oy < w.out_height(); ++oy) {
    const Range y = cut(oy * w.stride, w.kernel_height, w.padding, w.height);
    for (std::size_t ox = 0; ox < w.out_width(); ++ox) {
      const Range x = cut(ox * w.stride, w.kernel_width, w.padding, w.width);
      body(CutWindow{y.begin, y.end, x.begin, x.end, oy * w.stride, ox * w.stride},
           oy * w.out_width() + ox);
    }
  }
}

// Calls body(pixel, place) for the pixels of a window; place: its number within the whole window.
template <typename Body>
void for_pixels(const Windows& w, const CutWindow& window, const Body& body) {
  for (std::size_t y = window.begin_y; y < window.end_y; ++y) {
    for (std::size_t x = window.begin_x; x < window.end_x; ++x) {
      body(y * w.width + x,
           (y + w.padding - window.padded_y) * w.kernel_width + (x + w.padding - window.padded_x));
    }
  }
}

template <typename T>
void average_forward(const Windows& w, const T* x, T* y) {
  const T factor = T(1) / static_cast<T>(w.kernel_height * w.kernel_width);
  const std::size_t channels = w.channels;
  for_windows(w, [&](const CutWindow& window, std::size_t out) {
    T* const to = y + out * channels;
    if (window.end_y - window.begin_y == 2 && window.end_x - window.begin_x == 2) {
      // The most common window, with sums in the same order but without going through memory.
      const T* const upper = x + (window.begin_y * w.width + window.begin_x) * channels;
      const T* const lower = upper + w.width * channels;
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < channels; ++c) {
        to[c] = (upper[c] + upper[channels + c] + lower[c] + lower[channels + c]) * factor;
      }
      return;
    }
    std::fill_n(to, channels, T(0));
    for_pixels(w, window, [&](std::size_t pixel, std::size_t) {
      const T* const from = x + pixel * channels;
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < channels; ++c) to[c] += from[c];
    });
    LOCKSTEP_INDEPENDENT
    for (std::size_t c = 0; c < channels; ++c) to[c] *= factor;
  });
}

// True if every pixel of an image lies in exactly one window.
bool are_tiles(const Windows& w) {
  return w.padding == 0 && w.kernel_height == w.stride && w.kernel_width == w.stride &&
         w.height % w.stride == 0 && w.width % w.stride == 0;
}

template <typename T>
void average_backward(const Windows& w, const T* grad_y, T* grad_x) {
  const T factor = T(1) / static_cast<T>(w.kernel_height * w.kernel_width);
  const std::size_t channels = w.channels;
  const bool adds = !are_tiles(w);
  if (adds) std::fill_n(grad_x, w.image_elements(), T(0));
  for_windows(w, [&](const CutWindow& window, std::size_t out) {
    const T* const from = grad_y + out * channels;
    for_pixels(w, window, [&](std::size_t pixel, std::size_t) {
      T* const to = grad_x + pixel * channels;
      if (adds) {
        LOCKSTEP_INDEPENDENT
        for (std::size_t c = 0; c < channels; ++c) to[c] += factor * from[c];
      } else {
        LOCKSTEP_INDEPENDENT
        for (std::size_t c = 0; c < channels; ++c) to[c] = factor * from[c];
      }
    });
  });
}

template <typename T>
void maximum_forward(const Windows& w, const T* x, T* y, std::int32_t* winners) {
  const std::size_t channels = w.channels;
  for_windows(w, [&](const CutWindow& window, std::size_t out) {
    T* const to = y + out * channels;
    std::int32_t* const winner = winners + out * channels;
    bool is_first = true;
    for_pixels(w, window, [&](std::size_t pixel, std::size_t place) {
      const T* const from = x + pixel * channels;
      const auto number = static_cast<std::int32_t>(place);
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < channels; ++c) {
        // A NaN is larger than any number, as in PyTorch.
        const bool wins = is_first || from[c] > to[c] || from[c] != from[c];
        to[c] = wins ? from[c] : to[c];
        winner[c] = wins ? number : winner[c];
      }
      is_first = false;
    });
  });
}

template <typename T>
void maximum_backward(const Windows& w, const std::int32_t* winners, const T* grad_y, T* grad_x) {
  const std::size_t channels = w.channels;
  std::fill_n(grad_x, w.image_elements(), T(0));
  for_windows(w, [&](const CutWindow& window, std::size_t out) {
    const T* const from = grad_y + out * channels;
    const std::int32_t* const winner = winners + out * channels;
    for_pixels(w, window, [&](std::size_t pixel, std::size_t place) {
      T* const to = grad_x + pixel * channels;
      const auto number = static_cast<std::int32_t>(place);
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < channels; ++c) to[c] += winner[c] == number ? from[c] : T(0);
    });
  });
}

// Calls body(image, x, y) for every image; x and y: offsets of its elements.
template <typename Body>
void for_images(Stream& stream, const Windows& w, const Body& body) {
  const std::size_t outputs = w.rows_per_image() * w.channels;
  parallel_rows(stream, w.images, w.image_elements() + outputs * w.kernel_height * w.kernel_width,
                [&](std::size_t begin, std::size_t end) {
                  for (std::size_t i = begin; i < end; ++i)
                    body(i * w.image_elements(), i * outputs);
                });
}

}  // namespace

void EigenBackend::pool_forward(Stream& stream, const PoolForward& call) {
  for_floating(call.x.dtype, "pool", [&]<typename T>() {
    for_images(stream, call.windows, [&](std::size_t at_x, std::size_t at_y) {
      const T* const from = data_of<T>(call.x) + at_x;
      T* const to = data_of<T>(call.y) + at_y;
      if (call.pooling == Pooling::average) return average_forward(call.windows, from, to);
      maximum_forward(call.windows, from, to, data_of<std::int32_t>(call.winners) + at_y);
    });
  });
}

void EigenBackend::pool_backward(Stream& stream, const PoolBackward& call) {
  for_floating(call.grad_y.dtype, "pool backward", [&]<typename T>() {
    for_images(stream, call.windows, [&](std::size_t at_x, std::size_t at_y) {
      const T* const from = data_of<T>(call.grad_y) + at_y;
      T* const to = data_of<T>(call.grad_x) + at_x;
      if (call.pooling == Pooling::average) return average_backward(call.windows, from, to);
      maximum_backward(call.windows, data_of<std::int32_t>(call.winners) + at_y, from, to);
    });
  });
}

}  // namespace lockstep::kernels
