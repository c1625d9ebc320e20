#include "tools/whatif/family.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

using predict::Recompute;
using predict::TransformerShape;

constexpr double kGptTokens = 50'257;
constexpr double kLlamaTokens = 32'000;
constexpr double kMostSize = 1e6;

// "32-32-4096-4096" as a shape; empty if it is none.
std::optional<TransformerShape> read_sizes(std::string_view text) {
  double sizes[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), sizes[i]);
    const bool is_size = error == std::errc() && sizes[i] >= 1 && sizes[i] <= kMostSize &&
                         sizes[i] == std::floor(sizes[i]);
    if (!is_size) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    const bool is_last = i == 3;
    if (is_last != text.empty() || (!is_last && text[0] != '-')) return std::nullopt;
    if (!is_last) text.remove_prefix(1);
  }
  return TransformerShape{sizes[0], sizes[1], sizes[2], sizes[3]};
}

// embedding: parameters before and behind the blocks. token_values: logits of a token, or 0.
Net transformer_net(const std::string& name, const TransformerShape& shape, double block,
                    predict::Kept kept, double embedding, double logits) {
  const double tokens_channels = shape.context * shape.channels;
  Net net;
  net.name = name;
  net.parameters = embedding + shape.layers * block;
  // Two operations for a weight that a token meets, and its attention's two products.
  net.forward_flops = shape.context * (2 * (shape.layers * block + logits * shape.channels) +
                                       4 * shape.layers * shape.context * shape.channels);
  net.shapes = transformer_shapes(static_cast<int>(shape.layers), shape.channels, shape.context,
                                  std::max(logits, 1.0));
  predict::NetMemory memory;
  memory.parameters = net.parameters;
  memory.largest_unit = std::max(block, embedding);
  memory.kept_values = shape.layers * kept.values + tokens_channels + shape.context * logits;
  memory.kept_bytes = shape.layers * kept.bytes + 4 * shape.context * logits;
  net.memory = memory;
  return net;
}

// Blocks of an attention and a feed-forward net four times as wide, with biases.
double plain_block(double channels) {
  return 12 * channels * channels + 13 * channels;
}

Net gpt(const std::string& name, const TransformerShape& shape, Recompute recompute) {
  const double c = shape.channels;
  return transformer_net(name, shape, plain_block(c), predict::kept_of_layer(shape, recompute),
                         (kGptTokens + shape.context) * c + 2 * c, kGptTokens);
}

Net bert(const std::string& name, const TransformerShape& shape, Recompute recompute) {
  const double c = shape.channels;
  return transformer_net(name, shape, plain_block(c), predict::kept_of_layer(shape, recompute),
                         (30'522 + shape.context + 2) * c + 2 * c + c * c + c, 0);
}

Net vit_b16(Recompute recompute) {
  TransformerShape shape{12, 12, 768, 197, false};
  return transformer_net("vit-b16", shape, plain_block(768),
                         predict::kept_of_layer(shape, recompute),
                         86'567'656 - 12 * plain_block(768), 0);
}

Net llama(const std::string& name, TransformerShape shape, Recompute recompute) {
  const double c = shape.channels;
  const double wide = 256 * std::ceil(8 * c / 3 / 256);
  shape.has_dropout = false;
  predict::Kept kept = predict::kept_of_layer(shape, recompute);
  // A SwiGLU keeps gate, up, their two products instead of the eight values of a plain net.
  if (recompute != Recompute::full) kept.values += shape.context * (4 * wide - 8 * c);
  return transformer_net(name, shape, 4 * c * c + 3 * c * wide + 2 * c, kept,
                         2 * kLlamaTokens * c + c, kLlamaTokens);
}

Net resnet50() {
  Net net = find_net("resnet50");
  constexpr double kOutputs = 11.1e6;
  net.memory = predict::NetMemory{net.parameters, 2.4e6, 2 * kOutputs + 3 * 224 * 224, 0};
  return net;
}

}  // namespace

std::string known_family_names() {
  return "resnet50, vit-b16, bert, bert:L-H-C-T, gpt:L-H-C-T, llama:L-H-C-T";
}

Net find_family(const std::string& text, Recompute recompute) {
  if (text == "resnet50") return resnet50();
  if (text == "vit-b16") return vit_b16(recompute);
  const std::string full = text == "bert" ? "bert:12-12-768-512" : text;
  const std::size_t colon = full.find(':');
  const std::string kind = full.substr(0, colon);
  const bool has_sizes = colon != std::string::npos;
  const std::optional<TransformerShape> shape =
      has_sizes ? read_sizes(std::string_view(full).substr(colon + 1)) : std::nullopt;
  const bool is_kind = kind == "bert" || kind == "gpt" || kind == "llama";
  require(is_kind, ErrorCode::Usage, "--family", "'{}' is not one of {}", shown(text),
          known_family_names());
  require(shape.has_value(), ErrorCode::Usage, "--family",
          "'{}' needs layers, heads, channels and tokens, as in {}:32-32-4096-4096", shown(text),
          kind);
  Net net = kind == "bert"  ? bert(text, *shape, recompute)
            : kind == "gpt" ? gpt(text, *shape, recompute)
                            : llama(text, *shape, recompute);
  if (recompute == Recompute::full) ++net.forward_passes;
  return net;
}

}  // namespace lockstep::tools
