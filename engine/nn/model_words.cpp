// Reads the words that name models.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/nn/models.h"
#include "kernels/sequence_calls.h"

namespace lockstep::nn {
namespace {

constexpr std::string_view kAllowed =
    "mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh], lenet, lenet5, resnet18[:WIDTH], "
    "cnn:32c3-p2-64c3-p2-128-10, gpt:LAYERS-HEADS-CHANNELS-CONTEXT, gpt2 or gpt2-medium";
constexpr std::size_t kLargestNumber = 1 << 20;  // most channels, neurons or pixels

[[noreturn]] void fail_model(std::string_view text, std::string_view why,
                             std::string_view hint = "") {
  fail(ErrorCode::Usage, "model", "'{}': {}; allowed is {}{}", text, why, kAllowed, hint);
}

// 0 for anything but a number from 1 on.
std::size_t parse_number(std::string_view word, std::size_t largest = kLargestNumber) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc{} && end == word.data() + word.size() && number <= largest ? number : 0;
}

// The words between dashes.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('-', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

Activation parse_activation(std::string_view text, std::string_view word) {
  if (word == "relu") return Activation::relu;
  if (word == "gelu") return Activation::gelu_erf;
  if (word == "tanh") return Activation::tanh;
  const std::array<std::string, 3> words = {"relu", "gelu", "tanh"};
  fail_model(text, fmt::format("'{}' is not an activation", word), did_you_mean(word, words));
}

}  // namespace

MlpSpec parse_mlp(std::string_view text) {
  constexpr std::string_view kPrefix = "mlp:";
  if (!text.starts_with(kPrefix)) fail_model(text, "unknown model");
  MlpSpec spec;
  std::string_view sizes = text.substr(kPrefix.size());
  if (const std::size_t colon = sizes.find(':'); colon != std::string_view::npos) {
    spec.activation = parse_activation(text, sizes.substr(colon + 1));
    sizes = sizes.substr(0, colon);
  }
  for (const std::string_view word : split(sizes)) {
    spec.sizes.push_back(parse_number(word, std::numeric_limits<std::size_t>::max()));
    if (spec.sizes.back() == 0) {
      fail_model(text, fmt::format("'{}' is not a positive layer size", word));
    }
  }
  if (spec.sizes.size() < 2) fail_model(text, "it needs at least an input and an output size");
  return spec;
}

namespace {

CnnLayer parse_layer(std::string_view text, std::string_view word) {
  CnnLayer layer;
  if (word.starts_with('p') || word.starts_with('a')) {
    layer.kind = word[0] == 'p' ? CnnLayer::Kind::max_pool : CnnLayer::Kind::average_pool;
    layer.size = parse_number(word.substr(1));
  } else if (const std::size_t c = word.find('c'); c != std::string_view::npos) {
    layer.kind = CnnLayer::Kind::convolution;
    layer.size = parse_number(word.substr(0, c));
    layer.kernel = parse_number(word.substr(c + 1));
    if (layer.kernel % 2 == 0) layer.size = 0;
  } else {
    layer.size = parse_number(word);
  }
  if (layer.size == 0) {
    fail_model(text,
               fmt::format("'{}' is not a layer: NcK is a convolution of N channels with a K x "
                           "K kernel (K odd), pK or aK a pool, N a linear layer",
                           word));
  }
  return layer;
}

std::vector<CnnLayer> parse_layers(std::string_view text, std::string_view words) {
  std::vector<CnnLayer> layers;
  for (const std::string_view word : split(words)) {
    layers.push_back(parse_layer(text, word));
    const bool follows_linear =
        layers.size() > 1 && layers[layers.size() - 2].kind == CnnLayer::Kind::linear;
    if (follows_linear && layers.back().kind != CnnLayer::Kind::linear) {
      fail_model(text, "only linear layers can follow a linear layer");
    }
  }
  if (layers.back().kind != CnnLayer::Kind::linear) {
    fail_model(text, "its last layer must be a number, the number of classes");
  }
  return layers;
}

GptOptions parse_gpt(std::string_view text, std::string_view words) {
  std::vector<std::size_t> numbers;
  for (const std::string_view word : split(words)) numbers.push_back(parse_number(word));
  if (numbers.size() != 4 || std::ranges::count(numbers, 0U) > 0) {
    fail_model(text, "expected four numbers, such as gpt:4-4-128-64");
  }
  GptOptions options;
  options.layers = numbers[0];
  options.heads = numbers[1];
  options.channels = numbers[2];
  options.context = numbers[3];
  if (options.channels % options.heads != 0) {
    fail_model(text,
               fmt::format("{} heads do not divide {} channels", options.heads, options.channels));
  }
  if (options.channels / options.heads > kernels::kMaxHeadSize) {
    fail_model(text, fmt::format("a head may have {} channels at most, and these have {}",
                                 kernels::kMaxHeadSize, options.channels / options.heads));
  }
  return options;
}

}  // namespace

ModelSpec parse_model(std::string_view text) {
  ModelSpec spec;
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const std::string_view rest =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (word == "mlp" && colon != std::string_view::npos) {
    spec.mlp = parse_mlp(text);
  } else if (word == "cnn" && colon != std::string_view::npos) {
    spec.kind = ModelSpec::Kind::cnn;
    spec.layers = parse_layers(text, rest);
  } else if (word == "resnet18") {
    spec.kind = ModelSpec::Kind::resnet18;
    if (colon != std::string_view::npos) spec.width = parse_number(rest);
    if (spec.width == 0) fail_model(text, fmt::format("'{}' is not a number of channels", rest));
  } else if (text == "lenet") {
    spec.kind = ModelSpec::Kind::lenet;
  } else if (text == "lenet5") {
    spec.kind = ModelSpec::Kind::lenet5;
  } else if ((word == "gpt" && colon != std::string_view::npos) || text == "gpt2" ||
             text == "gpt2-medium") {
    spec.kind = ModelSpec::Kind::gpt;
    spec.gpt = parse_gpt(text, text == "gpt2"          ? "12-12-768-1024"
                               : text == "gpt2-medium" ? "24-16-1024-1024"
                                                       : rest);
  } else {
    const std::array<std::string, 8> words = {"mlp:", "lenet", "lenet5", "resnet18",
                                              "cnn:", "gpt:",  "gpt2",   "gpt2-medium"};
    const std::size_t end = std::min(text.find_first_of(":-"), text.size());
    fail_model(text, "unknown model",
               did_you_mean(text.substr(0, std::min(end + 1, text.size())), words));
  }
  return spec;
}

}  // namespace lockstep::nn
