// Losses: values are summed in double, in fixed blocks of rows.
#include <cmath>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/half.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kRowsPerBlock = 256;
constexpr std::size_t kElementsPerBlock = 8192;

void require_labels(const char* operation, const std::int64_t* labels, std::size_t rows,
                    std::size_t classes) {
  for (std::size_t i = 0; i < rows; ++i) {
    require(labels[i] >= 0 && static_cast<std::size_t>(labels[i]) < classes, ErrorCode::Shape,
            operation, "label {} of row {} is outside 0 ... {}", labels[i], i,
            static_cast<std::int64_t>(classes) - 1);
  }
}

// p = softmax(logits) of one row; returns -log p[label].
template <typename T>
double softmax_row(const T* logits, std::size_t classes, std::size_t label, T* p) {
  // A NaN need not be the maximum: it then shows up in the sum.
  T largest = logits[0];
  for (std::size_t j = 1; j < classes; ++j) largest = logits[j] > largest ? logits[j] : largest;
  const T label_logit = logits[label];
  for (std::size_t j = 0; j < classes; ++j) p[j] = exp_of(logits[j] - largest);
  T sum = 0;
  for (std::size_t j = 0; j < classes; ++j) sum += p[j];
  const T inverse = T(1) / sum;
  for (std::size_t j = 0; j < classes; ++j) p[j] *= inverse;
  return std::log(static_cast<double>(sum)) - static_cast<double>(label_logit - largest);
}

// The same for a row of bfloat16, which is rounded once, after the label's 1 is subtracted.
double softmax_row(const Bfloat16* logits, std::size_t classes, std::size_t label, Bfloat16* p) {
  float* const wide = thread_scratch<float>(classes);
  for (std::size_t j = 0; j < classes; ++j) wide[j] = number(logits[j]);
  const double loss = softmax_row(wide, classes, label, wide);
  wide[label] -= 1;
  for (std::size_t j = 0; j < classes; ++j) p[j] = Bfloat16(wide[j]);
  return loss;
}

// Calls function.operator()<X>() with the type of logits.
template <typename Function>
void for_logits(DType dtype, const char* operation, Function&& function) {
  if (dtype == DType::bfloat16) return function.template operator()<Bfloat16>();
  for_floating(dtype, operation, function);
}

// The divisor of a loss: its rows or elements for the mean.
double divisor(Reduction reduction, std::size_t count) {
  return reduction == Reduction::mean ? static_cast<double>(count) : 1.0;
}

double sum_in_order(const std::vector<double>& partials) {
  double total = 0;
  for (double partial : partials) total += partial;
  return total;
}

}  // namespace

void EigenBackend::softmax_cross_entropy_forward(Stream& stream,
                                                 const SoftmaxCrossEntropyForward& call) {
  const auto* name = "cross_entropy";
  const auto* label = data_of<std::int64_t>(call.labels);
  require_labels(name, label, call.logits.rows, call.logits.cols);
  for_logits(call.logits.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    std::vector<double> partials((call.logits.rows + kRowsPerBlock - 1) / kRowsPerBlock);
    parallel_blocks(stream, call.logits.rows, kRowsPerBlock, 4 * call.logits.cols,
                    [&](std::size_t block, std::size_t begin, std::size_t end) {
                      for (std::size_t i = begin; i < end; ++i) {
                        partials[block] += softmax_row(row_of<X>(call.logits, i), call.logits.cols,
                                                       static_cast<std::size_t>(label[i]),
                                                       row_of<X>(call.probabilities, i));
                      }
                    });
    *data_of<T>(call.loss) =
        static_cast<T>(sum_in_order(partials) / divisor(call.reduction, call.logits.rows));
  });
}

void EigenBackend::softmax_cross_entropy_backward(Stream& stream,
                                                  const SoftmaxCrossEntropyBackward& call) {
  const auto* name = "cross_entropy backward";
  const std::size_t rows = call.probabilities.rows;
  const std::size_t classes = call.probabilities.cols;
  const auto* label = data_of<std::int64_t>(call.labels);
  require_labels(name, label, rows, classes);
  for_logits(call.probabilities.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    const T factor = static_cast<T>(*data_of<T>(call.grad_loss) / divisor(call.reduction, rows));
    parallel_rows(stream, rows, classes, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const X* p = row_of<X>(call.probabilities, i);
        X* grad = row_of<X>(call.grad_logits, i);
        const auto hit = static_cast<std::size_t>(label[i]);
        const T at_label = (number(p[hit]) - (is_half<X> ? T(0) : T(1))) * factor;
        for (std::size_t j = 0; j < classes; ++j) grad[j] = static_cast<X>(number(p[j]) * factor);
        grad[hit] = static_cast<X>(at_label);
      }
    });
  });
}

void EigenBackend::mse_forward(Stream& stream, const MseForward& call) {
  for_floating(call.x.dtype, "mse", [&]<typename T>() {
    std::vector<double> partials((call.x.num_elements + kElementsPerBlock - 1) / kElementsPerBlock);
    const T* a = data_of<T>(call.x);
    const T* b = data_of<T>(call.target);
    parallel_blocks(stream, call.x.num_elements, kElementsPerBlock, 1,
                    [&](std::size_t block, std::size_t begin, std::size_t end) {
                      double sum = 0;
                      for (std::size_t i = begin; i < end; ++i) {
                        const double difference =
                            static_cast<double>(a[i]) - static_cast<double>(b[i]);
                        sum += difference * difference;
                      }
                      partials[block] = sum;
                    });
    *data_of<T>(call.loss) =
        static_cast<T>(sum_in_order(partials) / divisor(call.reduction, call.x.num_elements));
  });
}

void EigenBackend::mse_backward(Stream& stream, const MseBackward& call) {
  for_floating(call.x.dtype, "mse backward", [&]<typename T>() {
    const T factor = static_cast<T>(2 * *data_of<T>(call.grad_loss) /
                                    divisor(call.reduction, call.x.num_elements));
    parallel_elements(stream, call.x.num_elements, [&](std::size_t begin, std::size_t end) {
      const T* a = data_of<T>(call.x);
      const T* b = data_of<T>(call.target);
      T* grad = data_of<T>(call.grad_x);
      for (std::size_t i = begin; i < end; ++i) grad[i] = factor * (a[i] - b[i]);
    });
  });
}

}  // namespace lockstep::kernels
