// Models from a line of text.
#include "engine/nn/mlp.h"

#include <gtest/gtest.h>

#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_error;

TEST(ParseMlp, ReadsSizesAndActivation) {
  const MlpSpec spec = parse_mlp("mlp:784-256-10");
  EXPECT_EQ(spec.sizes, (std::vector<std::size_t>{784, 256, 10}));
  EXPECT_EQ(spec.activation, Activation::relu);
  EXPECT_EQ(parse_mlp("mlp:4-2").sizes, (std::vector<std::size_t>{4, 2}));
  EXPECT_EQ(parse_mlp("mlp:4-2:relu").activation, Activation::relu);
  EXPECT_EQ(parse_mlp("mlp:4-2:gelu").activation, Activation::gelu_erf);
  EXPECT_EQ(parse_mlp("mlp:4-2:tanh").activation, Activation::tanh);
}

TEST(ParseMlp, SaysWhatIsAllowed) {
  const std::string allowed = "allowed is mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh]";
  for (const char* text :
       {"", "cnn", "mlp", "mlp:", "mlp:784", "mlp:784-", "mlp:-10", "mlp:784--10", "mlp:784-0-10",
        "mlp:784-x-10", "mlp:784-1.5-10", "mlp:784-10:swish", "mlp:784-10:", "mlp:784-10:relu:relu",
        "MLP:784-10", "mlp:4 -2", "mlp:99999999999999999999-2"}) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::Usage, allowed, [&] { parse_mlp(text); });
    expect_error(ErrorCode::Usage, fmt::format("'{}'", text), [&] { parse_mlp(text); });
  }
  expect_error(ErrorCode::Usage, "'swish' is not an activation",
               [] { parse_mlp("mlp:784-10:swish"); });
}

TEST(MakeMlp, NamesItsLayersAsPyTorchsSequentialDoes) {
  const auto model = make_mlp("mlp:4-3-3-2:gelu", 1);
  EXPECT_EQ(model->to_string(), R"(Sequential(
  (0): Linear(in_features=4, out_features=3, bias=True)
  (1): GELU(approximate='none')
  (2): Linear(in_features=3, out_features=3, bias=True)
  (3): GELU(approximate='none')
  (4): Linear(in_features=3, out_features=2, bias=True)
))");
  EXPECT_EQ(model->named_parameters()[2].first, "2.weight");
}

TEST(MakeMlp, IsDeterminedByItsSeed) {
  const auto a = make_mlp("mlp:4-3-2", 1)->parameters();
  const auto b = make_mlp("mlp:4-3-2", 1)->parameters();
  const auto c = make_mlp("mlp:4-3-2", 2)->parameters();
  ASSERT_EQ(a.size(), 4u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].value().to_vector<float>(), b[i].value().to_vector<float>());
    EXPECT_NE(a[i].value().to_vector<float>(), c[i].value().to_vector<float>());
  }
}

}  // namespace
}  // namespace lockstep::nn
