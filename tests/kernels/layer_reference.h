// A linear layer with its gradients, by the formulas in double.
#pragma once

#include "reference.h"

namespace lockstep::kernels {

struct LayerSizes {
  std::size_t batch, in, out;
};

template <typename T>
struct Layer {
  explicit Layer(const LayerSizes& s)
      : x(random_grid<T>(s.batch, s.in, 2, 1)),
        weight(random_grid<T>(s.out, s.in, 1, 2, 0.1)),
        grad_z(random_grid<T>(s.batch, s.out, 4, 3)),
        bias(random_values<T>(s.out, 4)) {}
  Grid<T> x, weight, grad_z;
  std::vector<T> bias;
};

// x w^T + bias, in double. Tests are compiled without optimisation, so the inner loops of their
// references walk along rows by pointer.
template <typename T>
std::vector<double> product(const Layer<T>& layer, bool has_bias) {
  std::vector<double> result;
  for (std::size_t i = 0; i < layer.x.rows; ++i) {
    for (std::size_t j = 0; j < layer.weight.rows; ++j) {
      double sum = has_bias ? double(layer.bias[j]) : 0;
      const T *a = layer.x.row(i), *b = layer.weight.row(j);
      for (std::size_t k = 0; k < layer.x.cols; ++k) sum += double(a[k]) * double(b[k]);
      result.push_back(sum);
    }
  }
  return result;
}

struct Gradients {
  std::vector<double> x, weight, bias;
};

// The formulas by plain loops.
template <typename T>
Gradients expected_gradients(const Layer<T>& layer) {
  const std::size_t batch = layer.x.rows, in = layer.x.cols, out = layer.weight.rows;
  Gradients result{std::vector<double>(batch * in), std::vector<double>(out * in),
                   std::vector<double>(out)};
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t j = 0; j < out; ++j) {
      const double g = double(layer.grad_z(i, j));
      result.bias[j] += g;
      double *grad_x = result.x.data() + i * in, *grad_w = result.weight.data() + j * in;
      const T *x_row = layer.x.row(i), *w_row = layer.weight.row(j);
      for (std::size_t k = 0; k < in; ++k) {
        grad_x[k] += g * double(w_row[k]);
        grad_w[k] += g * double(x_row[k]);
      }
    }
  }
  return result;
}

// Forward and backward passes on the device under test, beside the formulas.
template <typename T>
void expect_layer(const Layer<T>& layer, double tolerance) {
  const std::size_t batch = layer.x.rows, in = layer.x.cols, out = layer.weight.rows;
  const GridOnDevice<T> x(layer.x), weight(layer.weight), grad_z(layer.grad_z);
  const GridOnDevice<T> y(batch, out), grad_x(batch, in), grad_weight(out, in);
  const OnDevice<T> bias(layer.bias), grad_bias(out);
  tested().linear_forward(stream(),
                          {x.view(), weight.view(), bias.view(), Activation::none, y.view(), {}});
  tested().linear_backward(stream(), {x.view(), weight.view(), grad_z.view(), grad_x.view(),
                                      grad_weight.view(), grad_bias.view()});
  const Gradients expected = expected_gradients(layer);
  expect_close(y.content(), product(layer, true), tolerance);
  expect_close(grad_x.content(), expected.x, tolerance);
  expect_close(grad_weight.content(), expected.weight, tolerance, 10);
  expect_close(grad_bias.values(), expected.bias, tolerance, 10);
}

}  // namespace lockstep::kernels
