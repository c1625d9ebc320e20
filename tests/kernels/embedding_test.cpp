// Embedding beside loops that follow its definition.
#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, Floating);

struct TableCase {
  std::size_t batch, length, vocabulary, channels;
};
constexpr TableCase kTableCases[] = {{1, 1, 1, 1},     {3, 5, 7, 3},      {4, 33, 65, 40},
                                     {0, 4, 5, 6},     {2, 70, 3000, 33}, {2, 20, 9001, 40},
                                     {5, 307, 50, 130}};

std::vector<std::int64_t> tokens_of(const TableCase& c) {
  std::vector<std::int64_t> tokens;
  Rng rng(5);
  // Half of them are one token.
  for (std::size_t i = 0; i < c.batch * c.length; ++i) {
    tokens.push_back(i % 2 ? 0 : std::int64_t(rng.below(c.vocabulary)));
  }
  return tokens;
}

TYPED_TEST(Embedding, ReadsRowsOfTokensAndPositions) {
  using T = TypeParam;
  for (const TableCase& c : kTableCases) {
    const auto tokens = tokens_of(c);
    const auto weight = random_grid<T>(c.vocabulary, c.channels, 2, 1);
    const auto positions = random_grid<T>(c.length, c.channels, 1, 2);
    std::vector<T> plain, placed;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::size_t j = 0; j < c.channels; ++j) {
        plain.push_back(weight(std::size_t(tokens[i]), j));
        placed.push_back(plain.back() + positions(i % c.length, j));
      }
    }
    const OnDevice<std::int64_t> on_tokens(tokens);
    const GridOnDevice<T> on_weight(weight), on_positions(positions);
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> y(tokens.size(), c.channels, 3);
      tested().embedding_forward(stream, {on_tokens.view(), on_weight.view(), {}, y.view()});
      EXPECT_EQ(y.content(), plain);
      tested().embedding_forward(
          stream, {on_tokens.view(), on_weight.view(), on_positions.view(), y.view()});
      EXPECT_EQ(y.content(), placed);
    });
  }
}

TYPED_TEST(Embedding, AddsGradientsInTheOrderOfTheRows) {
  using T = TypeParam;
  for (const TableCase& c : kTableCases) {
    const auto tokens = tokens_of(c);
    const auto grad_y = random_grid<T>(tokens.size(), c.channels, 1, 3);
    Grid<T> weight(c.vocabulary, c.channels), positions(c.length, c.channels);
    for (Grid<T>* grid : {&weight, &positions})
      std::fill_n(grid->values.begin(), grid->values.size(), T(0));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::size_t j = 0; j < c.channels; ++j) {
        weight(std::size_t(tokens[i]), j) += grad_y(i, j);
        positions(i % c.length, j) += grad_y(i, j);
      }
    }
    const OnDevice<std::int64_t> on_tokens(tokens);
    const GridOnDevice<T> on_grad(grad_y);
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> to_weight(c.vocabulary, c.channels, 2),
          to_positions(c.length, c.channels, 1);
      tested().embedding_backward(
          stream, {on_tokens.view(), on_grad.view(), to_weight.view(), to_positions.view()});
      EXPECT_EQ(to_weight.content(), weight.content());
      EXPECT_EQ(to_positions.content(), positions.content());
    });
  }
}

TEST(EmbeddingErrors, ATokenOutsideTheVocabularyIsNamed) {
  for (const std::int64_t token : {-1, 4}) {
    const OnDevice<std::int64_t> tokens(std::vector<std::int64_t>{0, 3, token});
    const GridOnDevice<float> weight(4, 2), y(3, 2);
    const std::string place = test_device_type() == DeviceType::cpu ? " at position 2" : "";
    const std::string text =
        "token " + std::to_string(token) + place + " is outside the vocabulary of 4";
    expect_error(ErrorCode::Shape, text, [&] {
      tested().embedding_forward(stream(), {tokens.view(), weight.view(), {}, y.view()});
      y.content();
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels
