#include "engine/nn/mlp.h"

#include <array>
#include <charconv>
#include <string>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/nn/layers.h"

namespace lockstep::nn {
namespace {

// hint: about the word that was perhaps meant.
[[noreturn]] void fail_parse(std::string_view text, std::string_view why,
                             std::string_view hint = "") {
  fail(ErrorCode::Usage, "model",
       "'{}': {}; allowed is mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh], such as mlp:784-256-10{}",
       text, why, hint);
}

std::size_t parse_size(std::string_view text, std::string_view word) {
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
  if (error != std::errc{} || end != word.data() + word.size() || size == 0) {
    fail_parse(text, fmt::format("'{}' is not a positive layer size", word));
  }
  return size;
}

Activation parse_activation(std::string_view text, std::string_view word) {
  if (word == "relu") return Activation::relu;
  if (word == "gelu") return Activation::gelu_erf;
  if (word == "tanh") return Activation::tanh;
  const std::array<std::string, 3> words = {"relu", "gelu", "tanh"};
  fail_parse(text, fmt::format("'{}' is not an activation", word), did_you_mean(word, words));
}

std::shared_ptr<Module> make_activation(Activation activation) {
  if (activation == Activation::relu) return std::make_shared<ReLU>();
  if (activation == Activation::gelu_erf) return std::make_shared<GELU>();
  if (activation == Activation::tanh) return std::make_shared<Tanh>();
  fail(ErrorCode::Usage, "model", "an mlp needs an activation between its layers");
}

}  // namespace

MlpSpec parse_mlp(std::string_view text) {
  constexpr std::string_view kPrefix = "mlp:";
  if (!text.starts_with(kPrefix)) fail_parse(text, "unknown model");
  MlpSpec spec;
  std::string_view sizes = text.substr(kPrefix.size());
  if (const std::size_t colon = sizes.find(':'); colon != std::string_view::npos) {
    spec.activation = parse_activation(text, sizes.substr(colon + 1));
    sizes = sizes.substr(0, colon);
  }
  while (true) {
    const std::size_t dash = sizes.find('-');
    spec.sizes.push_back(parse_size(text, sizes.substr(0, dash)));
    if (dash == std::string_view::npos) break;
    sizes = sizes.substr(dash + 1);
  }
  if (spec.sizes.size() < 2) fail_parse(text, "it needs at least an input and an output size");
  return spec;
}

std::shared_ptr<Sequential> make_mlp(const MlpSpec& spec, std::uint64_t seed, DType dtype,
                                     Device device) {
  require(spec.sizes.size() >= 2, ErrorCode::Usage, "model",
          "an mlp needs at least an input and an output size, found {} sizes", spec.sizes.size());
  Rng rng(seed);
  LinearOptions options;
  options.dtype = dtype;
  options.device = device;
  std::vector<std::shared_ptr<Module>> modules;
  for (std::size_t i = 0; i + 1 < spec.sizes.size(); ++i) {
    if (i > 0) modules.push_back(make_activation(spec.activation));
    modules.push_back(std::make_shared<Linear>(spec.sizes[i], spec.sizes[i + 1], rng, options));
  }
  return std::make_shared<Sequential>(std::move(modules));
}

std::shared_ptr<Sequential> make_mlp(std::string_view text, std::uint64_t seed, DType dtype,
                                     Device device) {
  return make_mlp(parse_mlp(text), seed, dtype, device);
}

}  // namespace lockstep::nn
