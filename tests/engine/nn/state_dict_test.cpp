// State by name, and loading it with PyTorch's words.
#include "engine/nn/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/layers.h"
#include "engine/nn/models.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::TempFolder;
using lockstep::testing::test_device;

const Device kOther = test_device(1);

Linear linear_layer(std::uint64_t seed = 1) {
  Rng rng(seed);
  return Linear(10, 1, rng);
}

// All values of a module, to see whether anything changed.
std::vector<std::vector<double>> values(const Module& module) {
  std::vector<std::vector<double>> all;
  for (const auto& [name, tensor] : state_dict(module)) all.push_back(tensor.to_vector<double>());
  return all;
}

std::string message_of(Module& module, const StateDict& state) {
  try {
    load_state_dict(module, state);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(StateDict, ListsParametersAndBuffersInPyTorchsOrder) {
  Rng rng(1);
  const Sequential model({std::make_shared<Linear>(3, 4, rng), std::make_shared<BatchNorm1d>(4)});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(model)) names.push_back(name);
  // list(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict())
  EXPECT_EQ(names,
            (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                      "1.running_var", "1.num_batches_tracked"}));
  EXPECT_EQ(state_dict(model, "module.")[0].first, "module.0.weight");
}

TEST(LoadStateDict, CopiesValuesIntoTheModulesOwnTensors) {
  Linear layer = linear_layer(1);
  const Linear other = linear_layer(2);
  const Variable handle = layer.weight();
  const LoadResult result = load_state_dict(layer, state_dict(other));
  EXPECT_TRUE(result.missing_keys.empty());
  EXPECT_TRUE(result.unexpected_keys.empty());
  expect_close(handle.value(), other.weight().value(), kExact);
  EXPECT_FALSE(handle.value().shares_memory_with(other.weight().value()));
}

TEST(LoadStateDict, ConvertsDevicesAndDtypes) {
  Linear layer = linear_layer(1);
  layer.to(kOther);
  Linear wide = linear_layer(2);
  wide.to(DType::float64);
  load_state_dict(layer, state_dict(wide));
  EXPECT_EQ(layer.weight().dtype(), DType::float32);
  EXPECT_EQ(layer.weight().device(), kOther);
  expect_close(layer.weight().value(), wide.weight().value().to_vector<double>(), kExact);
}

StateDict reversed(StateDict state) {
  std::ranges::reverse(state);
  return state;
}

TEST(FindPrefix, IsWhatStandsBeforeAllNames) {
  const Linear layer = linear_layer();
  for (const std::string prefix : {"", "module.", "_orig_mod.module.net."}) {
    const StateDict state = reversed(state_dict(linear_layer(2), prefix));
    EXPECT_EQ(find_prefix(state, layer), prefix);
    EXPECT_EQ(find_prefix(strip_prefix(state, prefix), layer), "");
  }
  EXPECT_EQ(find_prefix({}, layer), "");
  EXPECT_EQ(find_prefix({{"a.weight", Tensor::zeros({1})}, {"b.bias", Tensor::zeros({1})}}, layer),
            "");
  Rng rng(1);
  const Sequential model({std::make_shared<Linear>(2, 2, rng)});
  EXPECT_EQ(find_prefix(state_dict(model), model), "") << "a number is the module's own";
  EXPECT_EQ(find_prefix(state_dict(model, "0."), model), "0.");
}

TEST(LoadStateDict, SaysWhatToDoAboutAnotherPrefix) {
  Linear layer = linear_layer();
  const std::string message =
      message_of(layer, reversed(state_dict(linear_layer(2), "_orig_mod.")));
  EXPECT_THAT(message,
              ::testing::StartsWith(
                  "[load_state_dict] Error(s) in loading state_dict for Linear: Missing "
                  "key(s) in state_dict: \"weight\", \"bias\". Unexpected key(s) in "
                  "state_dict: \"_orig_mod.bias\", \"_orig_mod.weight\". Every name in the "
                  "state begins with \"_orig_mod.\":"));
  EXPECT_THAT(message, ::testing::HasSubstr("strip_prefix(state, \"_orig_mod.\")"));
}

TEST(LoadStateDict, AdvisesOnlyWhereThePrefixIsTheDifference) {
  Linear layer = linear_layer();
  EXPECT_EQ(message_of(layer, {{"weight", Tensor::zeros({1, 10})}}),
            "[load_state_dict] Error(s) in loading state_dict for Linear: Missing key(s) in "
            "state_dict: \"bias\".");
  EXPECT_EQ(message_of(layer, {{"weight", Tensor::zeros({1, 10})},
                               {"bias", Tensor::zeros({1})},
                               {"module.scale", Tensor::zeros({1})}}),
            "[load_state_dict] Error(s) in loading state_dict for Linear: Unexpected key(s) in "
            "state_dict: \"module.scale\".");
}

TEST(LoadStateDict, SizeMismatchesAreListedInPyTorchsWords) {
  Linear layer = linear_layer();
  const StateDict state{{"weight", Tensor::zeros({10})}, {"bias", Tensor::zeros({})}};
  EXPECT_EQ(message_of(layer, state),
            "[load_state_dict] Error(s) in loading state_dict for Linear: size mismatch for "
            "weight: copying a param with shape torch.Size([10]) from checkpoint, the shape in "
            "current model is torch.Size([1, 10]). size mismatch for bias: copying a param with "
            "shape torch.Size([]) from checkpoint, the shape in current model is torch.Size([1]).");
  expect_error(ErrorCode::Shape, "size mismatch", [&] { load_state_dict(layer, state); });
  expect_error(ErrorCode::Shape, "size mismatch",
               [&] { load_state_dict(layer, state, Strict::no); });
}

TEST(LoadStateDict, ChangesNothingWhenItFails) {
  Linear layer = linear_layer(1);
  const auto before = values(layer);
  const StateDict states[] = {
      {{"weight", Tensor::zeros({1, 10})}},
      {{"weight", Tensor::zeros({1, 10})}, {"bias", Tensor::zeros({2})}},
      {{"weight", Tensor::zeros({1, 10})},
       {"bias", Tensor::zeros({1})},
       {"bias", Tensor::zeros({1})}},
      {{"weight", Tensor::zeros({1, 10})},
       {"bias", Tensor::zeros({1})},
       {"other", Tensor::zeros({1})}},
  };
  for (const StateDict& state : states) {
    EXPECT_THROW(load_state_dict(layer, state), Error);
    EXPECT_EQ(values(layer), before);
  }
}

TEST(LoadStateDict, NotStrictLoadsWhatFits) {
  Linear layer = linear_layer(1);
  const LoadResult result = load_state_dict(
      layer, {{"weight", Tensor::zeros({1, 10})}, {"extra", Tensor::zeros({1})}}, Strict::no);
  EXPECT_EQ(result.missing_keys, (std::vector<std::string>{"bias"}));
  EXPECT_EQ(result.unexpected_keys, (std::vector<std::string>{"extra"}));
  EXPECT_EQ(layer.weight().value().to_vector<float>(), std::vector<float>(10, 0.0f));
}

TEST(StripPrefix, TakesAPrefixOffNames) {
  const StateDict state = strip_prefix(
      {{"module.weight", Tensor::zeros({1})}, {"bias", Tensor::zeros({1})}}, "module.");
  EXPECT_EQ(state[0].first, "weight");
  EXPECT_EQ(state[1].first, "bias");
  Linear layer = linear_layer(1);
  load_state_dict(layer, strip_prefix(state_dict(linear_layer(2), "module."), "module."));
  EXPECT_EQ(values(layer), values(linear_layer(2)));
}

TEST(LoadStateDict, CutsLongListsOfNames) {
  StateDict state;
  for (int i = 0; i < 1'000; ++i) {
    state.emplace_back(fmt::format("{}{}", i, std::string(1'000, 'x')), Tensor::zeros({1}));
  }
  Linear layer = linear_layer();
  const std::string message = message_of(layer, state);
  EXPECT_THAT(message, ::testing::HasSubstr("x...\" and 980 more."));
  EXPECT_LT(message.size(), 3'000u);
}

// --- weights in a file and back

TEST(WeightsFile, RoundTripsParametersAndBuffersFromAnyDevice) {
  const TempFolder folder;
  Rng rng(1);
  Sequential model({std::make_shared<Linear>(3, 4, rng), std::make_shared<BatchNorm1d>(4)});
  model.to(test_device(2));
  save_weights(folder / "w.safetensors", model);
  const StateDict loaded = load_weights(folder / "w.safetensors");
  EXPECT_EQ(loaded.size(), 7u);
  for (const auto& [name, tensor] : loaded) EXPECT_EQ(tensor.device(), Device{}) << name;
  Rng other(2);
  Sequential fresh({std::make_shared<Linear>(3, 4, other), std::make_shared<BatchNorm1d>(4)});
  load_state_dict(fresh, loaded);
  const StateDict expected = state_dict(model);
  const StateDict actual = state_dict(fresh);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_close(actual[i].second, expected[i].second, kExact);
    EXPECT_EQ(actual[i].second.dtype(), expected[i].second.dtype());
  }
}

TEST(WeightsFile, SaysThatItsTensorsArePyTorchs) {
  const TempFolder folder;
  save_weights(folder / "w.safetensors", *make_mlp("mlp:4-3-2", 1));
  EXPECT_EQ(checkpoint::read_safetensors(folder / "w.safetensors").metadata,
            (checkpoint::Metadata{{"format", "pt"}}));
}

}  // namespace
}  // namespace lockstep::nn
