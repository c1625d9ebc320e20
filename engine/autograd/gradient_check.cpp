#include "engine/autograd/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/variable.h"
#include "engine/core/error.h"

namespace lockstep {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

double norm(const std::vector<double>& x) {
  return std::sqrt(dot(x, x));
}

}  // namespace

double GradientCheckResult::largest() const {
  return relative_errors.empty()
             ? 0.0
             : *std::max_element(relative_errors.begin(), relative_errors.end());
}

GradientCheckResult check_gradients(const std::function<Variable(const std::vector<Variable>&)>& f,
                                    std::vector<Variable> inputs,
                                    const GradientCheckOptions& options) {
  require(f != nullptr, ErrorCode::Usage, "check_gradients", "there is no function to check");
  for (Variable& input : inputs) {
    require(input.dtype() == DType::float64, ErrorCode::DType, "check_gradients",
            "inputs must be float64, found {}", to_string(input.dtype()));
    input.clear_grad();
  }
  const Variable result = f(inputs);
  Rng rng(options.seed);
  const Tensor weights =
      Tensor::uniform(result.shape(), -1, 1, rng, DType::float64, result.device());
  const std::vector<double> direction = weights.to_vector<double>();
  result.backward(weights);

  GradientCheckResult check;
  for (Variable& input : inputs) {
    const std::vector<double> analytic =
        input.grad().defined() ? input.grad().to_vector<double>()
                               : std::vector<double>(input.value().num_elements(), 0.0);
    const Tensor original = input.value();
    std::vector<double> values = original.to_vector<double>();
    std::vector<double> numeric(values.size());
    const auto objective = [&] {
      NoGradScope no_grad;
      input.set_value(Tensor::from(values, original.shape(), original.device()));
      return dot(f(inputs).value().to_vector<double>(), direction);
    };
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double center = values[i];
      values[i] = center + options.step;
      const double above = objective();
      values[i] = center - options.step;
      const double below = objective();
      values[i] = center;
      numeric[i] = (above - below) / (2 * options.step);
    }
    input.set_value(original);
    input.clear_grad();
    std::vector<double> difference(values.size());
    std::transform(analytic.begin(), analytic.end(), numeric.begin(), difference.begin(),
                   std::minus<>());
    const double size = std::max(norm(analytic), norm(numeric));
    check.relative_errors.push_back(size > 0 ? norm(difference) / size : 0.0);
  }
  return check;
}

}  // namespace lockstep
