// The arithmetic of a pass, by loops whose innermost runs over channels or features.
#include <algorithm>
#include <vector>

#include "tests/emulated_gpu/cudnn/problem.h"
#include "tests/emulated_gpu/rounding.h"

namespace emulated_gpu::cudnn {
namespace {

using Values = std::vector<float>;

Values read(const cudnnTensorStruct& tensor, const void* data, bool rounds) {
  Values result(num_elements(tensor));
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (tensor.type == CUDNN_DATA_BFLOAT16) {
      result[i] = from_bfloat16(static_cast<const std::uint16_t*>(data)[i]);
    } else {
      const float value = static_cast<const float*>(data)[i];
      result[i] = rounds ? round_to_bits(value, 10) : value;
    }
  }
  return result;
}

void write(const cudnnTensorStruct& tensor, void* data, const Values& values, float alpha,
           float beta) {
  const bool is_half = tensor.type == CUDNN_DATA_BFLOAT16;
  auto* const wide = static_cast<float*>(data);
  auto* const half = static_cast<std::uint16_t*>(data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = alpha * values[i];
    if (beta != 0) value += beta * (is_half ? from_bfloat16(half[i]) : wide[i]);
    if (is_half) {
      half[i] = to_bfloat16(value);
    } else {
      wide[i] = value;
    }
  }
}

// sum[i] += factor * values[i]
void add(float* sum, float factor, const float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += factor * values[i];
}

// One window of the images on one pixel: window is an index of y's pixels, pixel of x's, tap of a
// filter's.
struct Touch {
  std::size_t window, pixel, tap;
};

// Calls body(touch) for all pixels that a window covers.
template <typename Body>
void for_pixels(const Problem& problem, std::size_t window, const Body& body) {
  const auto& [x, y, filter, convolution] = problem;
  const int ox = static_cast<int>(window) % y.w, row = static_cast<int>(window) / y.w;
  const int oy = row % y.h, image = row / y.h;
  for (int ky = 0; ky < filter.h; ++ky) {
    const int py = oy * convolution.stride_h + ky - convolution.pad_h;
    if (py < 0 || py >= x.h) continue;
    for (int kx = 0; kx < filter.w; ++kx) {
      const int px = ox * convolution.stride_w + kx - convolution.pad_w;
      if (px < 0 || px >= x.w) continue;
      body(Touch{window, static_cast<std::size_t>((image * x.h + py) * x.w + px),
                 static_cast<std::size_t>(ky * filter.w + kx)});
    }
  }
}

template <typename Body>
void for_windows(const Problem& problem, bool is_reversed, const Body& body) {
  const std::size_t count = num_elements(problem.y) / static_cast<std::size_t>(problem.y.c);
  for (std::size_t i = 0; i < count; ++i) body(is_reversed ? count - 1 - i : i);
}

// Sizes of the loops.
struct Sizes {
  std::size_t channels, features, taps;
  explicit Sizes(const Problem& problem)
      : channels(static_cast<std::size_t>(problem.x.c)),
        features(static_cast<std::size_t>(problem.y.c)),
        taps(static_cast<std::size_t>(problem.filter.h) *
             static_cast<std::size_t>(problem.filter.w)) {}
};

Values forward(const Problem& problem, const Values& x, const Values& filter, bool in_parts) {
  const Sizes size(problem);
  // [taps, channels, features], so that the innermost loop is over features.
  Values turned(filter.size());
  for (std::size_t k = 0; k < size.features; ++k) {
    for (std::size_t i = 0; i < size.taps * size.channels; ++i) {
      turned[i * size.features + k] = filter[k * size.taps * size.channels + i];
    }
  }
  Values y(num_elements(problem.y)), part(size.features);
  for_windows(problem, false, [&](std::size_t window) {
    float* const sums = &y[window * size.features];
    for_pixels(problem, window, [&](const Touch& at) {
      if (in_parts) std::fill(part.begin(), part.end(), 0.0f);
      for (std::size_t c = 0; c < size.channels; ++c) {
        add(in_parts ? part.data() : sums, x[at.pixel * size.channels + c],
            &turned[(at.tap * size.channels + c) * size.features], size.features);
      }
      if (in_parts) add(sums, 1, part.data(), size.features);
    });
  });
  return y;
}

Values gradient_of_images(const Problem& problem, const Values& filter, const Values& grad_y,
                          bool is_reversed) {
  const Sizes size(problem);
  Values grad_x(num_elements(problem.x));
  for_windows(problem, is_reversed, [&](std::size_t window) {
    for_pixels(problem, window, [&](const Touch& at) {
      for (std::size_t k = 0; k < size.features; ++k) {
        add(&grad_x[at.pixel * size.channels], grad_y[window * size.features + k],
            &filter[(k * size.taps + at.tap) * size.channels], size.channels);
      }
    });
  });
  return grad_x;
}

Values gradient_of_filter(const Problem& problem, const Values& x, const Values& grad_y,
                          bool is_reversed, bool in_parts) {
  const Sizes size(problem);
  Values result(num_elements(problem.filter)), part(in_parts ? result.size() : 0);
  const std::size_t per_part = static_cast<std::size_t>(problem.y.h * problem.y.w);
  for_windows(problem, is_reversed, [&](std::size_t window) {
    Values& sums = in_parts ? part : result;
    for_pixels(problem, window, [&](const Touch& at) {
      for (std::size_t k = 0; k < size.features; ++k) {
        add(&sums[(k * size.taps + at.tap) * size.channels], grad_y[window * size.features + k],
            &x[at.pixel * size.channels], size.channels);
      }
    });
    if (!in_parts || (window + 1) % per_part != 0) return;  // the parts are the images
    add(result.data(), 1, part.data(), part.size());
    std::fill(part.begin(), part.end(), 0.0f);
  });
  return result;
}

}  // namespace

const Algorithm* algorithms_of(Pass pass) {
  using enum Algorithm::Sums;
  static constexpr Algorithm kForward[kNumAlgorithms] = {{1, CUDNN_DETERMINISTIC, in_parts, true},
                                                         {0, CUDNN_DETERMINISTIC, straight, false}};
  static constexpr Algorithm kBackward[kNumAlgorithms] = {
      {0, CUDNN_NON_DETERMINISTIC, straight, false}, {1, CUDNN_DETERMINISTIC, in_parts, true}};
  return pass == Pass::forward ? kForward : kBackward;
}

// More than the scratch memory of a small convolution, less than that of a large one.
std::size_t workspace_bytes(const Problem& problem, const Algorithm& algorithm) {
  return algorithm.needs_workspace ? 1024 + 8 * num_elements(problem.filter) : 0;
}

void compute(Pass pass, const Problem& problem, const Algorithm& algorithm,
             const Operands& operands, bool is_reversed) {
  const auto& [x, y, filter, convolution] = problem;
  const bool rounds = problem.rounds(), in_parts = algorithm.sums == Algorithm::Sums::in_parts;
  switch (pass) {
    case Pass::forward:
      return write(y, operands.result,
                   forward(problem, read(x, operands.first, rounds),
                           read(filter, operands.second, rounds), in_parts),
                   operands.alpha, operands.beta);
    case Pass::data:
      return write(x, operands.result,
                   gradient_of_images(problem, read(filter, operands.first, rounds),
                                      read(y, operands.second, rounds), is_reversed),
                   operands.alpha, operands.beta);
    case Pass::filter:
      return write(filter, operands.result,
                   gradient_of_filter(problem, read(x, operands.first, rounds),
                                      read(y, operands.second, rounds), is_reversed, in_parts),
                   operands.alpha, operands.beta);
  }
}

}  // namespace emulated_gpu::cudnn
