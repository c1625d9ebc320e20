#include "tools/verdict/gradient_error.h"

#include <cmath>
#include <limits>

namespace lockstep::tools {

std::vector<double> gradient_errors(const std::vector<std::vector<double>>& found,
                                    const ReferenceGradient& reference) {
  std::vector<double> errors;
  for (std::size_t p = 0; p < reference.values.size(); ++p) {
    const std::vector<double>& expected = reference.values[p];
    double squares = 0;
    if (found[p].size() != expected.size()) squares = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < found[p].size() && i < expected.size(); ++i) {
      squares += (found[p][i] - expected[i]) * (found[p][i] - expected[i]);
    }
    errors.push_back(squares == 0 ? 0 : std::sqrt(squares) / reference.sizes[p]);
  }
  return errors;
}

double gradient_limit(DType dtype, DeviceType device, kernels::MatmulPrecision precision) {
  const bool is_gpu = device == DeviceType::cuda;
  if (dtype == DType::float64) return is_gpu ? 1e-9 : 1e-12;
  if (!is_gpu) return 1e-5;
  switch (precision) {
    case kernels::MatmulPrecision::highest:
      return 1e-3;
    case kernels::MatmulPrecision::high:
      return 1e-2;
    case kernels::MatmulPrecision::medium:
      return 3e-2;
  }
  return 0;
}

}  // namespace lockstep::tools
