#include <fmt/format.h>

#include <numeric>

#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

// Images, and a window that slides over them.
struct Sliding {
  std::size_t images = 1, height = 4, width = 4, channels = 1;
  std::size_t size = 3, stride = 1, padding = 0;

  std::size_t places(std::size_t pixels) const {
    return (pixels + 2 * padding - size) / stride + 1;
  }
  std::size_t columns() const { return size * size * channels; }
  std::size_t num_copies() const { return images * places(height) * places(width) * columns(); }
  std::size_t num_elements() const { return images * height * width * channels; }

  // "image 0, pixel (1, 2), channel 0"
  std::string name_of(std::size_t element) const {
    return fmt::format("image {}, pixel ({}, {}), channel {}",
                       element / (height * width * channels), element / (width * channels) % height,
                       element / channels % width, element % channels);
  }
};

// By element of the images: where in the matrix of patches its copies are.
std::vector<Sizes> copies_of(const Sliding& s) {
  std::vector<Sizes> copies(s.num_elements());
  std::size_t place = 0;
  for (std::size_t image = 0; image < s.images; ++image) {
    for (std::size_t top = 0; top < s.places(s.height); ++top) {
      for (std::size_t left = 0; left < s.places(s.width); ++left) {
        for (std::size_t k = 0; k < s.columns(); ++k, ++place) {
          const std::size_t y = top * s.stride + k / s.channels / s.size;  // with padding
          const std::size_t x = left * s.stride + k / s.channels % s.size;
          const bool is_inside = y >= s.padding && y < s.padding + s.height && x >= s.padding &&
                                 x < s.padding + s.width;
          if (!is_inside) continue;
          const std::size_t pixel = (image * s.height + y - s.padding) * s.width + x - s.padding;
          copies[pixel * s.channels + k % s.channels].push_back(place);
        }
      }
    }
  }
  return copies;
}

Sliding sliding_of(const json& inputs) {
  const Sizes shape = inputs.at("shape").get<Sizes>();
  return {shape[0],
          shape[1],
          shape[2],
          shape[3],
          inputs.at("size"),
          inputs.at("stride"),
          inputs.at("padding")};
}

json fold_inputs(const Sliding& s, Numbers x, std::vector<Numbers> grads) {
  return json{{"shape", {s.images, s.height, s.width, s.channels}},
              {"size", s.size},
              {"stride", s.stride},
              {"padding", s.padding},
              {"x", std::move(x)},
              {"grads", std::move(grads)}};
}

// Numbers 1, 2, 3, ..., to be followed by eye.
json first_numbers(const Sliding& s) {
  Numbers x(s.num_elements()), grad(s.num_copies());
  std::iota(x.begin(), x.end(), 1);
  std::iota(grad.begin(), grad.end(), 1);
  return fold_inputs(s, std::move(x), {std::move(grad)});
}

json draw_fold(lockstep::Rng& rng, std::size_t num_grads) {
  Sliding s;
  s.images = draw_between(rng, 2, 3);
  s.size = draw_between(rng, 2, 3);
  s.height = draw_between(rng, s.size + 1, 7);
  s.width = s.height + 1;
  s.channels = draw_between(rng, 2, 3);
  s.stride = draw_between(rng, 1, 2);
  s.padding = draw_between(rng, 0, 1);
  std::vector<Numbers> grads;
  for (std::size_t i = 0; i < num_grads; ++i) {
    grads.push_back(draw_whole_numbers(rng, s.num_copies()));
  }
  return fold_inputs(s, draw_whole_numbers(rng, s.num_elements()), std::move(grads));
}

std::string judge_patches(const json& inputs, const json& answer) {
  const Sliding s = sliding_of(inputs);
  const Numbers x = inputs.at("x").get<Numbers>();
  const Numbers found = answer.at("patches").get<Numbers>();
  Numbers expected(s.num_copies());
  std::vector<std::string> names(s.num_copies(), "the padding");
  const std::vector<Sizes> copies = copies_of(s);
  for (std::size_t element = 0; element < copies.size(); ++element) {
    for (const std::size_t place : copies[element]) {
      expected[place] = x[element];
      names[place] = s.name_of(element);
    }
  }
  for (std::size_t i = 0; i < expected.size() && found.size() == expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return fmt::format("patch {}, element {} shows {}: expected {:.7g}, found {:.7g}",
                       i / s.columns(), i % s.columns(), names[i], expected[i], found[i]);
  }
  return differ("patches", expected, found);
}

// Names the mistake in a pixel's gradient, if it is one of the usual ones.
std::string fault_of_pixel(const Numbers& of_copies, double sum, double found) {
  if (of_copies.empty()) return "; no window shows it";
  if (of_copies.size() == 1) return {};
  if (found == of_copies.back()) return "; that is its last copy's alone: add, don't overwrite";
  if (found == of_copies.front()) return "; that is its first copy's alone";
  const bool is_mean = found * static_cast<double>(of_copies.size()) == sum;
  return is_mean ? "; that is the mean of its copies' gradients" : "";
}

std::string judge_fold(const json& inputs, const json& answer) {
  const Sliding s = sliding_of(inputs);
  const Numbers found = answer.at("grad").get<Numbers>();
  const std::vector<Sizes> copies = copies_of(s);
  if (found.size() != copies.size()) return differ("gradient", Numbers(copies.size()), found);
  for (std::size_t element = 0; element < copies.size(); ++element) {
    Numbers of_copies;
    for (const json& grad : inputs.at("grads")) {
      for (const std::size_t place : copies[element])
        of_copies.push_back(grad.at(place).get<double>());
    }
    const double sum = std::accumulate(of_copies.begin(), of_copies.end(), 0.0);
    if (found[element] == sum) continue;
    return fmt::format(
        "gradient of {}, which is in {} of the patches: expected {:.7g}, found {:.7g}{}",
        s.name_of(element), copies[element].size(), sum, found[element],
        fault_of_pixel(of_copies, sum, found[element]));
  }
  return {};
}

}  // namespace

Lab fold_patches_lab() {
  Lab lab{"13_fold_patches", "The backward of patches: every pixel sums its copies", {}};
  lab.checks = {
      visible("patches_of_an_image", 10,
              "pixel (i, j) of the window at (oy, ox) is pixel (oy * stride + i - padding, "
              "ox * stride + j - padding) of the image",
              first_numbers({}), judge_patches),
      visible("a_pixel_adds_up_its_copies", 20,
              "the pixel was copied into each window that shows it: the derivatives add up",
              first_numbers({}), judge_fold),
      visible("padding_has_no_gradient", 10,
              "what a window shows beyond the image is not a pixel: leave it out",
              first_numbers({.height = 3, .width = 3, .padding = 1}), judge_fold),
      visible("pixels_between_the_windows", 10,
              "the window at (oy, ox) begins at pixel (oy * stride, ox * stride)",
              first_numbers({.height = 5, .width = 5, .size = 2, .stride = 3}), judge_fold),
      hidden(
          "drawn_windows", 30,
          "several images and channels: element (image, y, x, channel) is at ((image * height + y) "
          "* "
          "width + x) * channels + channel",
          5, [](lockstep::Rng& rng) { return draw_fold(rng, 1); }, judge_fold),
      hidden(
          "patches_made_twice", 20,
          "return a fresh gradient for each call: the engine adds what arrives at a leaf twice", 2,
          [](lockstep::Rng& rng) { return draw_fold(rng, 2); }, judge_fold)};
  return lab;
}

}  // namespace lab
