// Weights in a file and back.
#include "engine/nn/state_dict.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/layers.h"
#include "engine/nn/mlp.h"
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
