#include "engine/autograd/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/variable.h"
#include "engine/core/error.h"

namespace lockstep {
namespace {

constexpr double kStep = 1e-6;  // h in (f(x + h) - f(x - h)) / 2h
constexpr std::uint64_t kSeed = 0x0d1f;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

double norm(const std::vector<double>& x) {
  return std::sqrt(dot(x, x));
}

}  // namespace

std::vector<double> check_gradients(const std::function<Variable(const std::vector<Variable>&)>& f,
                                    std::vector<Variable> inputs) {
  require(f != nullptr, ErrorCode::Usage, "check_gradients", "there is no function to check");
  for (Variable& input : inputs) {
    require(input.dtype() == DType::float64, ErrorCode::DType, "check_gradients",
            "inputs must be float64, found {}", to_string(input.dtype()));
    input.clear_grad();
  }
  const Variable result = f(inputs);
  Rng rng(kSeed);
  const Tensor weights =
      Tensor::uniform(result.shape(), -1, 1, rng, DType::float64, result.device());
  const std::vector<double> direction = weights.to_vector<double>();
  result.backward(weights);

  std::vector<double> relative_errors;
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
      values[i] = center + kStep;
      const double above = objective();
      values[i] = center - kStep;
      const double below = objective();
      values[i] = center;
      numeric[i] = (above - below) / (2 * kStep);
    }
    input.set_value(original);
    input.clear_grad();
    std::vector<double> difference(values.size());
    std::transform(analytic.begin(), analytic.end(), numeric.begin(), difference.begin(),
                   std::minus<>());
    const double size = std::max(norm(analytic), norm(numeric));
    relative_errors.push_back(size > 0 ? norm(difference) / size : 0.0);
  }
  return relative_errors;
}

}  // namespace lockstep
