// GPT-2: names, sizes, first weights, files, and one parameter with two uses.
#include "engine/nn/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/checkpoint/safetensors.h"
#include "engine/core/thread_context.h"
#include "engine/nn/models.h"
#include "engine/runtime/logical_device.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"
#include "tests/support/temp_folder.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::kFloat32;
using lockstep::testing::TempFolder;
using lockstep::testing::test_device;

constexpr GptOptions kSmall{.layers = 2, .heads = 2, .channels = 8, .context = 6, .vocabulary = 11};

Variable tokens(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Variable(Tensor::from(values, shape, test_device()));
}

Gpt small(DType dtype = DType::float32, GptOptions options = kSmall) {
  return Gpt(options, {dtype, test_device()});
}

double deviation(const Variable& parameter) {
  double squares = 0;
  for (const double value : parameter.value().to_vector<double>()) squares += value * value;
  return std::sqrt(squares / static_cast<double>(parameter.value().num_elements()));
}

TEST(Gpt, HasHuggingFacesNames) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : small().named_parameters()) names.push_back(name);
  EXPECT_EQ(names.size(), 2u + 2 * 12 + 2);
  EXPECT_THAT(
      names, ::testing::IsSupersetOf(
                 {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                  "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.bias",
                  "transformer.h.1.ln_2.bias", "transformer.h.1.mlp.c_fc.weight",
                  "transformer.h.1.mlp.c_proj.weight", "transformer.ln_f.bias"}));
}

TEST(Gpt, Gpt2HasTheDecayGroupsOfBuildNanoGpt) {
  GptOptions options = parse_model("gpt2").gpt;
  options.vocabulary = padded_vocabulary(options.vocabulary);
  EXPECT_EQ(options.vocabulary, 50304u);
  const GptParameterCounts counts = count_parameters(options);
  EXPECT_EQ(counts.matrices, 50u);
  EXPECT_EQ(counts.matrix_elements, 124'354'560);
  EXPECT_EQ(counts.vectors, 98u);
  EXPECT_EQ(counts.vector_elements, 121'344);
}

TEST(Gpt, StartsAsGpt2Does) {
  GptOptions options = kSmall;
  options.channels = 64;
  options.vocabulary = 500;
  for (const auto& [name, parameter] : small(DType::float32, options).named_parameters()) {
    const bool is_norm = name.find("ln_") != std::string::npos;
    const double expected = name.ends_with("bias")                     ? 0
                            : is_norm                                  ? 1
                            : name.find("c_proj") != std::string::npos ? 0.02 / 2
                                                                       : 0.02;
    EXPECT_NEAR(deviation(parameter), expected, 0.1 * expected) << name;
  }
}

TEST(Gpt, APositionDoesNotSeeLaterOnes) {
  Gpt model = small();
  const Tensor all = model(tokens({1, 2, 3, 4, 5, 6}, {1, 6})).value();
  const Tensor other = model(tokens({1, 2, 3, 4, 9, 0}, {1, 6})).value();
  EXPECT_EQ(all.shape(), (Shape{6, 64}));
  expect_close(all.rows(0, 4), other.rows(0, 4), kExact);
  EXPECT_NE(all.rows(4, 5).to_vector<float>(), other.rows(4, 5).to_vector<float>());
}

TEST(Gpt, ItsGradientsAreRight) {
  GptOptions options = kSmall;
  options.layers = 1;
  Gpt model = small(DType::float64, options);
  const Variable ids = tokens({1, 2, 0, 10, 2, 2}, {2, 3});
  const Tensor labels =
      Tensor::from(std::vector<std::int64_t>{2, 0, 4, 2, 2, 1}, {6}, test_device());
  std::vector<Variable> parameters = model.parameters();
  // Larger than at the start, so that every gradient can be compared.
  Rng rng(3);
  for (Variable& parameter : parameters) {
    parameter.value().copy_from(
        Tensor::normal(parameter.shape(), 0.1, 0.5, rng, DType::float64, test_device()));
  }
  lockstep::testing::expect_gradients_match(
      [&](const std::vector<Variable>&) { return cross_entropy(model(ids), labels); }, parameters);
}

TEST(Gpt, ThePaddingIsInMemoryOnly) {
  Gpt model = small();
  const Variable table = model.parameters()[0];
  EXPECT_EQ(table.shape(), (Shape{64, 8}));
  EXPECT_EQ(state_dict(model)[0].second.shape(), (Shape{11, 8}));
  const GptParameterCounts counts = count_parameters(kSmall);
  EXPECT_EQ(double(model.num_parameters()), counts.matrix_elements + counts.vector_elements);
  const Variable logits = model(tokens({1, 2}, {1, 2}));
  const std::vector<float> values = logits.value().to_vector<float>();
  EXPECT_TRUE(std::isfinite(values[10]));
  EXPECT_EQ(values[11], -std::numeric_limits<float>::infinity());
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{2, 0}, {2}, test_device());
  cross_entropy(logits, labels).backward();
  for (const float gradient : table.grad().rows(11, 64).to_vector<float>()) EXPECT_EQ(gradient, 0);
  expect_error(ErrorCode::Shape, "token 11", [&] {
    model(tokens({1, 11}, {1, 2}));
    runtime::logical_device(test_device()).compute_stream().synchronize();
  });
}

TEST(Gpt, DropoutIsDrawnByTheGlobalRow) {
  GptOptions options = kSmall;
  options.dropout = 0.5;
  Gpt model = small(DType::float32, options);
  const Tensor whole = model(tokens({1, 2, 3, 4, 5, 6}, {2, 3})).value();
  ThreadContext context = thread_context();
  context.first_row = 1;
  const ThreadContextScope scope(context);
  expect_close(model(tokens({4, 5, 6}, {1, 3})).value(), whole.rows(3, 6), kFloat32);
  model.eval();
  expect_close(model(tokens({4, 5, 6}, {1, 3})).value(), small()(tokens({4, 5, 6}, {1, 3})).value(),
               kExact);
}

TEST(Gpt, FilesHaveTheLinearLayersTransposed) {
  const TempFolder folder;
  Gpt model = small();
  const auto path = folder.path() / "gpt.safetensors";
  save_weights(path, model);
  std::size_t num_transposed = 0;
  for (const auto& array : checkpoint::read_safetensors(path).arrays) {
    if (array.name == "transformer.h.0.attn.c_attn.weight") {
      EXPECT_EQ(array.shape, (Shape{8, 24}));
      ++num_transposed;
    }
    if (array.name == "transformer.h.0.mlp.c_proj.weight") {
      EXPECT_EQ(array.shape, (Shape{32, 8}));
      ++num_transposed;
    }
  }
  EXPECT_EQ(num_transposed, 2u);
  GptOptions other = kSmall;
  other.seed = 9;
  Gpt copy = small(DType::float32, other);
  load_state_dict(copy, gpt_state(load_weights(path), 2));
  const auto expected = model.parameters(), found = copy.parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_close(found[i].value(), expected[i].value(), kExact);
  }
}

// As nanoGPT has them: nn.Linear's [out, in].
TEST(Gpt, FilesWithLinearLayersAsInMemoryAreReadToo) {
  const TempFolder folder;
  Gpt model = small();
  std::vector<checkpoint::NamedArrayView> arrays;
  StateDict state = state_dict(model);
  for (auto& [name, tensor] : state) {
    tensor = tensor.to(Device{});  // a file is written from the CPU's memory
    arrays.push_back({name,
                      tensor.dtype(),
                      tensor.shape(),
                      {static_cast<const std::byte*>(tensor.raw()), tensor.num_bytes()}});
  }
  checkpoint::write_safetensors(folder / "gpt.safetensors", arrays, {});
  const StateDict loaded = load_weights(folder / "gpt.safetensors");
  for (std::size_t i = 0; i < state.size(); ++i) {
    expect_close(loaded[i].second, state[i].second, kExact);
  }
}

TEST(Gpt, ReadsTheNamesThatFilesHave) {
  const Gpt model = small();
  const StateDict state = state_dict(model);
  StateDict hub = strip_prefix(state, "transformer.");
  hub.emplace_back("h.0.attn.bias", Tensor::zeros({1, 1, 6, 6}));
  hub.emplace_back("h.0.attn.masked_bias", Tensor::zeros({}));
  hub.emplace_back("lm_head.weight", state[0].second.clone());
  Gpt copy = small();
  load_state_dict(copy, gpt_state(hub, 2));
  // A file may have the last layer's name alone for the table.
  StateDict headed = state;
  headed[0].first = "lm_head.weight";
  load_state_dict(copy, gpt_state(headed, 2));
  hub.back().second = Tensor::zeros(state[0].second.shape());
  expect_error(ErrorCode::State, "are one parameter in this model, but differ",
               [&] { gpt_state(hub, 2); });
  expect_error(ErrorCode::State, "those of 2 layers, and the model has 3",
               [&] { gpt_state(state, 3); });
  GptOptions wide = kSmall;
  wide.channels = 16;
  Gpt wider = small(DType::float32, wide);
  expect_error(ErrorCode::Shape,
               "copying a param with shape torch.Size([8, 24]) from checkpoint, the shape in "
               "current model is torch.Size([16, 48])",
               [&] { load_state_dict(wider, gpt_state(state, 2)); });
}

TEST(Gpt, MistakesAreNamed) {
  expect_error(ErrorCode::Usage, "3 heads do not divide 64 channels",
               [] { parse_model("gpt:2-3-64-32"); });
  for (const char* text :
       {"gpt:2-2-64", "gpt:", "gpt:2-2-64-32-5", "gpt:2-0-64-32", "gpt:2-2--32"}) {
    expect_error(ErrorCode::Usage, "expected four numbers, such as gpt:4-4-128-64",
                 [&] { parse_model(text); });
  }
  const ModelData text{{32}, 65, ModelData::Values::tokens};
  expect_error(ErrorCode::Usage, "takes text, but digits has rows of 64 numbers", [] {
    require_model_fits("gpt:2-2-64-32", {{64}, 10}, "digits");
  });
  expect_error(ErrorCode::Usage, "takes rows of numbers, but book is a text",
               [&] { require_model_fits("mlp:32-65", text, "book"); });
  Gpt model = small();
  expect_error(ErrorCode::Shape, "longer than the 6 positions", [&] {
    model(tokens({1, 2, 3, 4, 5, 6, 7}, {1, 7}));
  });
}

}  // namespace
}  // namespace lockstep::nn
