// lockstep check-gradients: compares a device's gradients, parameter by parameter, with those that
// Eigen computes in double on the CPU from the same weights and rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "kernels/matmul_precision.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/report/host_info.h"
#include "tools/report/run_file.h"
#include "tools/training/placement.h"
#include "tools/training/task.h"

namespace lockstep::tools {
namespace {

struct CheckGradientsFlags {
  TrainingFlags training;  // --device, --matmul-precision and --precision
  std::vector<std::string> models = {"mlp:784-256-128-10", "mlp:784-256-128-10:tanh",
                                     "mlp:31-33-7:gelu", "mlp:64-100-10:tanh"};
  std::string dataset;  // whose rows' sizes; see rows_for()
  std::string batches = "1,33,256";
  bool has_own_batches = false;  // --batch was given
  std::string json_path;
};

// The largest error of float32 gradients relative to double, as norms, that rounding may cause.
double limit_of(kernels::MatmulPrecision precision) {
  switch (precision) {
    case kernels::MatmulPrecision::highest:
      return 1e-5;
    case kernels::MatmulPrecision::high:
      return 2e-3;
    case kernels::MatmulPrecision::medium:
    case kernels::MatmulPrecision::bf16:
      return 1e-2;
  }
  return 0;
}

// False if no limit on rounding holds. Rounded factors move some sums across ReLU's kink, where the
// gradient jumps: the two sides then differentiate two different functions. And batch norm may
// divide by the spread of a few rows, which may be pure rounding.
bool has_limit(const nn::ModelSpec& spec, std::size_t batch, kernels::MatmulPrecision precision) {
  constexpr std::size_t kFewRows = 8;
  const bool has_kinks = spec.takes_images() ? spec.kind != nn::ModelSpec::Kind::lenet5
                                             : spec.mlp.activation == Activation::relu;
  return (precision == kernels::MatmulPrecision::highest || !has_kinks) &&
         !(spec.has_batch_norm() && batch < kFewRows);
}

struct CheckedModel {
  std::string name;
  nn::ModelSpec spec;
  nn::ModelData data;
};

// Both sides get these numbers, drawn in double and rounded to float32.
struct Problem {
  nn::StateDict weights;             // float32 on the CPU
  Tensor x;                          // float32 [batch, in]
  std::vector<std::int64_t> labels;  // [batch]
};

Problem make_problem(const CheckedModel& model, std::size_t batch, std::uint64_t seed) {
  Problem problem;
  problem.weights = nn::state_dict(*nn::make_model(model.spec, model.data, seed));
  Rng rng(seed + 1);
  problem.x = Tensor::uniform(batch_shape(model.data, batch), -1, 1, rng, DType::float32, Device{});
  for (std::size_t row = 0; row < batch; ++row) {
    problem.labels.push_back(static_cast<std::int64_t>(row * 7 % model.data.num_classes));
  }
  return problem;
}

// The gradients of the mean cross-entropy, by parameter.
std::vector<std::vector<double>> gradients_on(const CheckedModel& checked, const Problem& problem,
                                              DType dtype, Device device) {
  const std::shared_ptr<nn::Module> model = nn::make_model(checked.spec, checked.data, 0, dtype);
  nn::StateDict weights;
  for (const auto& [name, tensor] : problem.weights) {
    const bool is_number = tensor.dtype() == DType::float32;  // not a count of batches
    weights.emplace_back(name, is_number ? tensor.to(dtype) : tensor);
  }
  nn::load_state_dict(*model, weights);
  model->to(device);
  const Tensor labels = Tensor::from(problem.labels, {problem.labels.size()}, device);
  cross_entropy((*model)(Variable(problem.x.to(dtype).to(device))), labels).backward();
  std::vector<std::vector<double>> gradients;
  for (const Variable& parameter : model->parameters()) {
    gradients.push_back(parameter.grad().to_vector<double>());
  }
  return gradients;
}

//
// a - reference
// /
// reference
// , as norms;
// a
// if the reference is zero.
double relative_error(const std::vector<double>& a, const std::vector<double>& reference) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - reference[i]) * (a[i] - reference[i]);
    size += reference[i] * reference[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

struct CheckGradientsRows {
  std::vector<CheckedModel> models;
  std::vector<std::size_t> batches;
};

CheckGradientsRows list_rows(const CheckGradientsFlags& flags) {
  CheckGradientsRows rows;
  rows.batches = parse_list("--batch", flags.batches);
  for (const std::size_t batch : rows.batches) {
    require(batch >= 1, ErrorCode::Usage, "--batch", "must be at least 1, found 0");
  }
  for (const std::string& model : flags.models) {
    rows.models.push_back({model, nn::parse_model(model), rows_for(model, flags.dataset)});
  }
  require_writable({{"--json", flags.json_path}});
  return rows;
}

void run_check_gradients(const CheckGradientsFlags& flags) {
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const Device device{resolve_device_type(flags.training), 0};
  const CheckGradientsRows rows = list_rows(flags);
  const double limit = limit_of(kernels::matmul_precision());
  fmt::print(out, "{}\n", describe_devices({device}));
  fmt::print(out, "float32 gradients ({} precision) against Eigen's in float64; limit {:.0e}\n\n",
             to_string(kernels::matmul_precision()), limit);
  fmt::print(out, "{:<22}{:>6}  {:<28}{:>18}{:>9}\n", "model", "batch", "parameter", "shape",
             "error");
  nlohmann::ordered_json json{{"schema", "lockstep.gradients/1"},
                              {"host", host_info()},
                              {"rows", nlohmann::ordered_json::array()}};
  std::size_t num_checked = 0;
  std::size_t num_without_limit = 0;
  std::size_t num_over = 0;
  double largest = 0;
  for (const CheckedModel& model : rows.models) {
    const auto parameters = nn::make_model(model.spec, model.data, 0)->named_parameters();
    for (const std::size_t batch : rows.batches) {
      // One row has no statistics.
      if (!flags.has_own_batches && batch == 1 && model.spec.has_batch_norm()) continue;
      const bool is_limited = has_limit(model.spec, batch, kernels::matmul_precision());
      const Problem problem = make_problem(model, batch, num_checked + 1);
      const auto reference = gradients_on(model, problem, DType::float64, Device{});
      const auto found = gradients_on(model, problem, DType::float32, device);
      for (std::size_t p = 0; p < found.size(); ++p) {
        const auto& [name, parameter] = parameters[p];
        const double error = relative_error(found[p], reference[p]);
        const bool is_over = is_limited && !(error <= limit);  // true for NaN
        fmt::print(out, "{:<22}{:>6}  {:<28}{:>18}{:>9.1e}{}\n", model.name, batch, name,
                   to_string(parameter.shape()), error,
                   is_over ? "  over the limit" : (is_limited ? "" : "  no limit"));
        json["rows"].push_back({{"model", model.name},
                                {"batch", batch},
                                {"parameter", name},
                                {"device", lockstep::to_string(device)},
                                {"matmul_precision", to_string(kernels::matmul_precision())},
                                {"relative_error", error},
                                {"limit", is_limited ? nlohmann::json(limit) : nlohmann::json()}});
        ++num_checked;
        num_over += is_over;
        num_without_limit += !is_limited;
        if (is_limited) largest = std::isnan(error) ? error : std::max(largest, error);
      }
    }
  }
  if (!flags.json_path.empty()) write_json(flags.json_path, json);
  require(num_over == 0, ErrorCode::Numeric, "check-gradients",
          "{} of {} gradients are over the limit of {:.0e} on {}", num_over, num_checked, limit,
          lockstep::to_string(device));
  if (num_without_limit > 0) {
    fmt::print(out,
               "\nno limit: rounding to TF32 or bfloat16 moves sums across ReLU's kink, where "
               "gradients\njump, or batch norm divides by the spread of a few rows\n");
  }
  fmt::print(out, "\nall {} gradients agree; the largest error is {:.2e}\n",
             num_checked - num_without_limit, largest);
}

}  // namespace

void add_check_gradients_command(Command& program) {
  auto flags = std::make_shared<CheckGradientsFlags>();
  Command check = program.add_command("check-gradients",
                                      "Compare a device's gradients with the CPU's in float64");
  add_training_flag(check, flags->training, "--device");
  check.add_option("--model", flags->models, "one or more, separated by commas").separated_by(',');
  check.add_option("--dataset", flags->dataset, "the rows that a model takes, as for bench step");
  check.add_option("--batch", flags->batches, "rows, such as 1,33,256");
  add_training_flag(check, flags->training, "--matmul-precision");
  add_training_flag(check, flags->training, "--precision");
  check.add_option("--json", flags->json_path, "write the rows here (-: standard output)");
  check.on_run([flags, check] {
    flags->has_own_batches = check.was_said("--batch");
    run_check_gradients(*flags);
  });
}

}  // namespace lockstep::tools
