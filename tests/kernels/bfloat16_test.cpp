// Kernels whose activations are bfloat16: their results are those of the float32 kernels on the
// same values, rounded once more.
#include <functional>

#include "engine/core/half.h"
#include "kernels/matmul_precision.h"
#include "reference.h"

namespace lockstep::kernels {
namespace {

constexpr double kUnit = 0x1p-8;  // of bfloat16: the distance of two numbers, relative to them

// Makes the operands of a call, with the same values for both dtypes of activations.
struct Operands {
  DType activations;
  std::uint64_t seed = 1;

  Tensor parameter(const Shape& shape) {
    const auto values = random_values<float>(shape.num_elements(), seed++);
    return Tensor::from(values, shape, Device{}).to(test_device());
  }
  Tensor activation(const Shape& shape) { return rounded(parameter(shape)); }
  Tensor rounded(const Tensor& values) const { return values.to(DType::bfloat16).to(activations); }
  Tensor result(const Shape& shape) const {
    return Tensor::full(shape, 7, activations, test_device());
  }
  Tensor sums(const Shape& shape) const {
    return Tensor::full(shape, 7, DType::float32, test_device());
  }
};

using Outputs = std::vector<Tensor>;

class Bfloat16Activations : public ::testing::Test {
 protected:
  Bfloat16Activations() { set_matmul_precision(MatmulPrecision::bf16); }
  ~Bfloat16Activations() override { set_matmul_precision(MatmulPrecision::highest); }
};

// Runs the kernels of `run` with activations of both dtypes. Their results may differ by
// `tolerance` of each or of the largest, as those of products do.
enum class RelativeTo { each, largest };
void expect_alike(const std::function<Outputs(Operands&)>& run, RelativeTo scale = RelativeTo::each,
                  double tolerance = kUnit) {
  Operands wide{DType::float32}, half{DType::bfloat16};
  const Outputs expected = run(wide), found = run(half);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "result " << i);
    const auto values = expected[i].to_vector<double>();
    double largest = 1e-3;
    for (const double value : values) largest = std::max(largest, std::fabs(value));
    expect_close(found[i].to_vector<double>(), values, tolerance,
                 scale == RelativeTo::largest ? largest : 1e-3);
  }
}

TEST_F(Bfloat16Activations, ElementByElement) {
  expect_alike([](Operands& make) {
    const Shape shape{7, 33};
    const Tensor a = make.activation(shape), b = make.activation(shape), y = make.activation(shape);
    const Outputs results{make.result(shape), make.result(shape), make.result(shape), y};
    tested().add(stream(), {a.view(), b.view(), results[0].view()});
    tested().multiply(stream(), {a.view(), b.view(), results[1].view()});
    tested().scale(stream(), {a.view(), 0.3, results[2].view()});
    tested().axpy(stream(), {0.7, a.view(), y.view()});
    return results;
  });
}

TEST_F(Bfloat16Activations, OfEveryActivationFunction) {
  for (const auto function : {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh,
                              Activation::tanh, Activation::sigmoid}) {
    SCOPED_TRACE(static_cast<int>(function));
    expect_alike([&](Operands& make) {
      const Tensor x = make.activation({130}), grad = make.activation({130});
      const Outputs results{make.result({130}), make.result({130})};
      tested().activation_forward(stream(), {function, x.view(), results[0].view()});
      tested().activation_backward(stream(), {function, x.view(), grad.view(), results[1].view()});
      return results;
    });
  }
}

// Layers with aligned rows, with an odd number of elements, and with one.
constexpr std::size_t kLayerSizes[][3] = {{16, 32, 24}, {5, 7, 3}, {33, 1, 10}, {64, 130, 1}};

TEST_F(Bfloat16Activations, InALinearLayer) {
  for (const auto& [batch, in, out] : kLayerSizes) {
    SCOPED_TRACE(::testing::Message() << batch << " x " << in << " -> " << out);
    expect_alike(
        [&](Operands& make) {
          const Tensor x = make.activation({batch, in}), grad_z = make.activation({batch, out});
          const Tensor weight = make.parameter({out, in}), bias = make.parameter({out});
          const Outputs results{make.result({batch, out}), make.result({batch, out}),
                                make.result({batch, out}), make.result({batch, in}),
                                make.sums({out, in}),      make.sums({out})};
          tested().linear_forward(stream(), {x.matrix(),
                                             weight.matrix(),
                                             bias.view(),
                                             Activation::relu,
                                             results[0].matrix(),
                                             {}});
          tested().linear_forward(stream(),
                                  {x.matrix(), weight.matrix(), bias.view(), Activation::gelu_tanh,
                                   results[1].matrix(), results[2].matrix()});
          tested().linear_backward(
              stream(), {x.matrix(), weight.matrix(), grad_z.matrix(), results[3].matrix(),
                         results[4].matrix(), results[5].view()});
          return results;
        },
        RelativeTo::largest, 2 * kUnit);  // a GPU rounds the product before it adds the bias
  }
}

// 1 + 2^-8 is between two bfloat16 numbers, and rounded to 1. The sums show it, as they cancel it.
TEST_F(Bfloat16Activations, GetARoundedBias) {
  const DType half = DType::bfloat16;
  const Tensor x = Tensor::full({2, 1, 1, 1}, -1, half, test_device());
  const Tensor weight = Tensor::full({8, 1}, 1, DType::float32, test_device());
  const Tensor bias = Tensor::full({8}, 1 + 0x1p-8, DType::float32, test_device());
  const std::vector<float> zeros(16);
  for (const auto activation : {Activation::none, Activation::relu, Activation::gelu_erf,
                                Activation::gelu_tanh, Activation::tanh}) {
    SCOPED_TRACE(static_cast<int>(activation));
    const Tensor y = Tensor::full({2, 8}, 7, half, test_device()), z = y.clone();
    const MatrixView kept = needs_preactivation(activation) ? z.matrix() : MatrixView{};
    const auto expect_zeros = [&] {
      EXPECT_EQ(y.to_vector<float>(), zeros);
      if (kept.data) {
        EXPECT_EQ(z.to_vector<float>(), zeros);
      }
      y.fill(7);
      z.fill(7);
    };
    tested().linear_forward(stream(), {x.reshape({2, 1}).matrix(), weight.matrix(), bias.view(),
                                       activation, y.matrix(), kept});
    expect_zeros();
    const Windows pixels{2, 1, 1, 1, 1, 1, 1, 0};
    const Tensor scratch = Tensor::empty({tested().conv_scratch(pixels) + 1}, half, test_device());
    tested().conv_forward(stream(), {pixels, x.view(), weight.matrix(), bias.view(), activation,
                                     y.matrix(), kept, scratch.view()});
    expect_zeros();
  }
}

TEST_F(Bfloat16Activations, InProductsThatAreAdded) {
  expect_alike(
      [](Operands& make) {
        const Tensor a = make.activation({9, 17}), b = make.activation({17, 11});
        const Tensor c = make.activation({9, 11}), sums = make.parameter({9, 11});
        for (const Tensor& to : {c, sums}) {
          tested().matmul(stream(), {a.matrix(), Transpose::no, b.matrix(), Transpose::no,
                                     to.matrix(), Write::accumulate});
        }
        return Outputs{c, sums};
      },
      RelativeTo::largest);
}

TEST_F(Bfloat16Activations, OfImages) {
  constexpr Windows kWindows[] = {
      {2, 6, 5, 3, 3, 3, 1, 1}, {3, 4, 4, 8, 1, 1, 1, 0}, {2, 9, 9, 1, 5, 5, 2, 0}};
  for (const Windows& w : kWindows) {
    SCOPED_TRACE(::testing::Message() << w.channels << " channels");
    expect_alike(
        [&](Operands& make) {
          const std::size_t out = 6;
          const Tensor x = make.activation({w.images, w.height, w.width, w.channels});
          const Tensor grad_z = make.activation({w.rows(), out});
          const Tensor weight = make.parameter({out, w.cols()}), bias = make.parameter({out});
          const Tensor scratch = make.result({tested().conv_scratch(w)});
          const Outputs results{make.result({w.rows(), out}), make.result(x.shape()),
                                make.sums({out, w.cols()}), make.sums({out})};
          tested().conv_forward(stream(), {w,
                                           x.view(),
                                           weight.matrix(),
                                           bias.view(),
                                           Activation::relu,
                                           results[0].matrix(),
                                           {},
                                           scratch.view()});
          tested().conv_backward(stream(),
                                 {w, x.view(), weight.matrix(), grad_z.matrix(), results[1].view(),
                                  results[2].matrix(), results[3].view(), scratch.view()});
          return results;
        },
        RelativeTo::largest, 2 * kUnit);  // a GPU rounds each patch's gradient
  }
}

TEST_F(Bfloat16Activations, InPoolsAndTranspositions) {
  constexpr Windows kWindows{2, 6, 6, 3, 2, 2, 2, 0};
  for (const Pooling pooling : {Pooling::maximum, Pooling::average}) {
    expect_alike([&](Operands& make) {
      const Tensor x = make.activation({2, 6, 6, 3}), grad_y = make.activation({2, 3, 3, 3});
      const Tensor winners = Tensor::zeros(grad_y.shape(), DType::int32, test_device());
      const Outputs results{make.result(grad_y.shape()), make.result(x.shape()),
                            make.result(x.shape())};
      tested().pool_forward(stream(),
                            {kWindows, pooling, x.view(), results[0].view(), winners.view()});
      tested().pool_backward(stream(),
                             {kWindows, pooling, winners.view(), grad_y.view(), results[1].view()});
      tested().transpose(stream(), {{x.raw(), x.dtype(), 36, 3, 3, 2, 108}, results[2].view()});
      return results;
    });
  }
}

TEST_F(Bfloat16Activations, InLayerNorm) {
  expect_alike([](Operands& make) {
    const Shape shape{5, 70};
    const Tensor x = make.activation(shape), grad_y = make.activation(shape);
    const Tensor weight = make.parameter({70}), bias = make.parameter({70});
    const Outputs results{make.result(shape), make.sums({5}),  make.sums({5}),
                          make.result(shape), make.sums({70}), make.sums({70})};
    tested().layer_norm_forward(
        stream(), {x.matrix(), weight.view(), bias.view(), results[0].matrix(), results[1].view(),
                   results[2].view()});
    tested().layer_norm_backward(
        stream(), {x.matrix(), weight.view(), results[1].view(), results[2].view(), grad_y.matrix(),
                   results[3].matrix(), results[4].view(), results[5].view()});
    return results;
  });
}

TEST_F(Bfloat16Activations, InBatchNorm) {
  for (const Statistics statistics : {Statistics::batch, Statistics::running}) {
    expect_alike([&](Operands& make) {
      const Shape shape{40, 9}, features{9};
      const Tensor x = make.activation(shape), grad_y = make.activation(shape);
      const Tensor weight = make.parameter(features), bias = make.parameter(features);
      const Outputs results{make.result(shape),  make.sums(features), make.sums(features),
                            make.sums(features), make.sums(features), make.result(shape),
                            make.sums(features), make.sums(features)};
      tested().batch_norm_forward(stream(), {.x = x.matrix(),
                                             .weight = weight.view(),
                                             .bias = bias.view(),
                                             .y = results[0].matrix(),
                                             .mean = results[1].view(),
                                             .inverse_std = results[2].view(),
                                             .running_mean = results[3].view(),
                                             .running_var = results[4].view(),
                                             .statistics = statistics});
      tested().batch_norm_backward(stream(), {.x = x.matrix(),
                                              .weight = weight.view(),
                                              .mean = results[1].view(),
                                              .inverse_std = results[2].view(),
                                              .grad_y = grad_y.matrix(),
                                              .grad_x = results[5].matrix(),
                                              .grad_weight = results[6].view(),
                                              .grad_bias = results[7].view(),
                                              .statistics = statistics});
      return results;
    });
  }
}

TEST_F(Bfloat16Activations, InSharedBatchNorm) {
  expect_alike([](Operands& make) {
    const Tensor x = make.activation({12, 5}), grad_y = make.activation({12, 5});
    const Tensor mean = make.parameter({5}), scale = make.parameter({5});
    const Tensor moments = Tensor::zeros({11}, DType::float64, test_device());
    const Tensor sums = Tensor::zeros({11}, DType::float64, test_device());
    const Outputs results{moments, sums, make.result({12, 5})};
    tested().batch_moments(stream(), {x.matrix(), moments.view()});
    BatchNormSums call;
    call.x = x.matrix();
    call.mean = mean.view();
    call.inverse_std = scale.view();
    call.grad_y = grad_y.matrix();
    call.statistics = Statistics::shared;
    call.sums = sums.view();
    tested().batch_norm_sums(stream(), call);
    call.grad_x = results[2].matrix();
    tested().batch_norm_backward(stream(), call);
    return results;
  });
}

TEST_F(Bfloat16Activations, InAnEmbedding) {
  expect_alike([](Operands& make) {
    const std::vector<std::int64_t> numbers{3, 0, 3, 6, 5, 3, 0, 1};
    const Tensor tokens = Tensor::from(numbers, {8}, Device{}).to(test_device());
    const Tensor weight = make.parameter({7, 20}), positions = make.parameter({4, 20});
    const Tensor grad_y = make.activation({8, 20});
    const Outputs results{make.result({8, 20}), make.sums({7, 20}), make.sums({4, 20})};
    tested().embedding_forward(
        stream(), {tokens.view(), weight.matrix(), positions.matrix(), results[0].matrix()});
    tested().embedding_backward(
        stream(), {tokens.view(), grad_y.matrix(), results[1].matrix(), results[2].matrix()});
    return results;
  });
}

TEST_F(Bfloat16Activations, InAttention) {
  for (const std::size_t head_size : {3u, 16u, 24u, 64u}) {
    SCOPED_TRACE(::testing::Message() << "heads of " << head_size);
    const AttentionShape shape{2, 37, 2, head_size};
    expect_alike(
        [&](Operands& make) {
          const Shape inputs{2, 37, 3 * shape.channels()}, outputs{2, 37, shape.channels()};
          const Tensor qkv = make.activation(inputs), grad_y = make.activation(outputs);
          const Tensor scratch = make.sums({shape.num_rows()});
          const Outputs results{make.result(outputs), make.sums({shape.num_rows()}),
                                make.result(inputs)};
          tested().attention_forward(stream(),
                                     {shape, qkv.view(), results[0].view(), results[1].view()});
          const Tensor y = make.rounded(results[0]);
          tested().attention_backward(stream(), {shape, qkv.view(), y.view(), results[1].view(),
                                                 grad_y.view(), results[2].view(), scratch.view()});
          return results;
        },
        RelativeTo::largest);
  }
}

TEST_F(Bfloat16Activations, InACausalSoftmax) {
  expect_alike([](Operands& make) {
    const Tensor scores = make.activation({2, 9, 9}), grad_p = make.activation({2, 9, 9});
    const auto matrices = [](const Tensor& tensor) {
      return MatrixView{tensor.raw(), tensor.dtype(), 9, 9, 9, 2, 81};
    };
    const Outputs results{make.result(scores.shape()), make.result(scores.shape())};
    tested().causal_softmax_forward(stream(), {matrices(scores), 0.5, matrices(results[0])});
    const Tensor p = make.rounded(make.parameter({2, 9, 9}));
    tested().causal_softmax_backward(stream(),
                                     {matrices(p), matrices(grad_p), 0.5, matrices(results[1])});
    return results;
  });
}

TEST_F(Bfloat16Activations, UnderDropout) {
  expect_alike([](Operands& make) {
    const Tensor x = make.activation({6, 50}), y = make.result({6, 50});
    tested().dropout(stream(), {{.probability = 0.3, .seed = 5}, x.matrix(), y.matrix()});
    return Outputs{y};
  });
}

TEST_F(Bfloat16Activations, AsLogits) {
  for (const std::size_t classes : {17u, 1040u, 9008u}) {
    SCOPED_TRACE(classes);
    expect_alike(
        [&](Operands& make) {
          const std::vector<std::int64_t> last{2, 0, std::int64_t(classes) - 1};
          const Tensor labels = Tensor::from(last, {3}, Device{}).to(test_device());
          const Tensor logits = make.activation({3, classes}), loss = make.sums({1});
          const Tensor kept = make.result({3, classes}), grad = make.result({3, classes});
          const Tensor grad_loss = Tensor::full({1}, 0.5, DType::float32, test_device());
          const Tensor guesses = Tensor::zeros({3}, DType::int64, test_device());
          tested().softmax_cross_entropy_forward(
              stream(),
              {logits.matrix(), labels.view(), Reduction::mean, kept.matrix(), loss.view()});
          tested().softmax_cross_entropy_backward(
              stream(),
              {kept.matrix(), labels.view(), Reduction::mean, grad_loss.view(), grad.matrix()});
          tested().argmax_rows(stream(), {logits.matrix(), guesses.view()});
          return Outputs{loss, grad, guesses};
        },
        RelativeTo::each, 2 * kUnit);  // rounded forward and backward
  }
}

// The probability of the label is within 1e-4 of 1, where bfloat16 has no other number.
TEST_F(Bfloat16Activations, KeepTheGradientOfASureAnswer) {
  const Tensor logits = Tensor::from(std::vector<float>{10, 0}, {1, 2}, Device{})
                            .to(DType::bfloat16)
                            .to(test_device());
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{0}, {1}, Device{}).to(test_device());
  const Tensor loss = Tensor::zeros({1}, DType::float32, test_device());
  const Tensor grad_loss = Tensor::full({1}, 1, DType::float32, test_device());
  tested().softmax_cross_entropy_forward(
      stream(), {logits.matrix(), labels.view(), Reduction::sum, logits.matrix(), loss.view()});
  tested().softmax_cross_entropy_backward(stream(), {logits.matrix(), labels.view(), Reduction::sum,
                                                     grad_loss.view(), logits.matrix()});
  const double other = 1 / (1 + std::exp(10.0));
  expect_close(logits.to_vector<double>(), {-other, other}, kUnit, 0);
}

TEST_F(Bfloat16Activations, InAnOrderedReduce) {
  expect_alike([](Operands& make) {
    const Tensor a = make.activation({100}), b = make.activation({100}), y = make.result({100});
    const ConstTensorView sources[] = {a.view(), b.view(), a.view()};
    tested().ordered_reduce(stream(), {sources, 0.5, y.view()});
    return Outputs{y};
  });
}

}  // namespace
}  // namespace lockstep::kernels
