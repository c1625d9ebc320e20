#include "tutorials/common.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::tutorial {
namespace {

DeviceType resolve_device_type(const std::string& device) {
  const bool has_cuda = runtime::num_devices(DeviceType::cuda) > 0;
  require(device != "cuda" || has_cuda, ErrorCode::Device, "--device",
          "cuda was asked for, but there is no CUDA device; use --device cpu, or build the cuda "
          "preset on a machine with a GPU");
  return device == "cpu" || !has_cuda ? DeviceType::cpu : DeviceType::cuda;
}

void print_device(Device device) {
  fmt::print("using device: {}", to_string(device));
  if (device.type == DeviceType::cpu) {
    const std::size_t cores = runtime::num_cores();
    fmt::print(" (this process may use {} {})", cores, cores == 1 ? "core" : "cores");
  } else if (runtime::num_devices(device.type) > 1) {
    fmt::print(" (index 0 of {}; a single device is always index 0)",
               runtime::num_devices(device.type));
  }
  fmt::print("\n");
}

int report(const std::string& program, const char* message, int exit_code) {
  std::fflush(stdout);
  std::string line = message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  fmt::print(stderr, "{}: {}\n", program, line);
  return exit_code;
}

int parse_and_run(const std::string& program, int argc, char** argv, std::string_view question,
                  const Body& body, const AddFlags& add_flags) {
  CLI::App app(std::string(question), program);
  Options options;
  std::string device = "auto";
  app.add_option("--device", device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--fast", options.fast, "a short run, for tests");
  if (add_flags) add_flags(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report(program, fmt::format("{} (see {} --help)", error.what(), program).c_str(), 2);
  }
  options.device_type = resolve_device_type(device);
  print_device(options.device());
  body(options);
  return 0;
}

}  // namespace

std::vector<Device> Options::devices(std::size_t count) const {
  std::vector<Device> result;
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back({device_type, static_cast<int>(i)});
    runtime::logical_device(result.back());  // throws, and says which exist
  }
  return result;
}

int run_main(int argc, char** argv, std::string_view question, const Body& body,
             const AddFlags& add_flags) {
  const std::string program = std::filesystem::path(argc > 0 ? argv[0] : "tutorial").filename();
  try {
    return parse_and_run(program, argc, argv, question, body, add_flags);
  } catch (const Error& error) {
    return report(program, error.what(), exit_code(error.code()));
  } catch (const std::exception& error) {
    return report(program, error.what(), 1);
  }
}

void on_ranks(const std::vector<Device>& devices, const RankWork& work) {
  comm::run_ranks(static_cast<int>(devices.size()), [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    work(communicator, rank, devices[rank]);
  });
}

void note_shared_cores(DeviceType type, std::size_t num_threads) {
  const std::size_t cores = runtime::num_cores();
  if (type != DeviceType::cpu || num_threads <= cores) return;
  fmt::print("note: {} threads share {} here, so times show overhead, not speed-up\n", num_threads,
             cores == 1 ? "1 core" : fmt::format("{} cores", cores));
}

void step(int number, std::string_view title) {
  fmt::print("\n── Step {}: {} ──\n", number, title);
}

void check(std::string_view claim, bool holds) {
  fmt::print("check: {} ... {}\n", claim, holds ? "ok" : "FAILED");
  require(holds, ErrorCode::Numeric, "check", "this does not hold: {}", claim);
}

void check_close(std::string_view claim, double largest_difference, double tolerance) {
  check(fmt::format("{}: largest difference {:.2g}, tolerance {:.2g}", claim, largest_difference,
                    tolerance),
        largest_difference <= tolerance);
}

std::string expect_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  fail(ErrorCode::Numeric, "check", "an operation that had to fail succeeded");
}

double max_abs_difference(const Tensor& a, const Tensor& b) {
  require_same_shape("max_abs_difference", a, b);
  const std::vector<double> left = a.to_vector<double>();
  const std::vector<double> right = b.to_vector<double>();
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double difference = std::abs(left[i] - right[i]);
    if (!(difference <= largest)) largest = difference;  // also takes a NaN
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

double max_abs_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  require(a.size() == b.size(), ErrorCode::Shape, "max_abs_difference",
          "expected equally many tensors, found {} and {}", a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = max_abs_difference(a[i], b[i]);
    if (!(difference <= largest)) largest = difference;  // also takes a NaN
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

double max_abs_difference(const nn::Module& a, const nn::Module& b) {
  const auto values = [](const nn::Module& module) {
    std::vector<Tensor> tensors;
    for (const Variable& parameter : module.parameters()) tensors.push_back(parameter.value());
    return tensors;
  };
  return max_abs_difference(values(a), values(b));
}

double weight_tolerance(std::size_t num_steps) {
  return 1e-5 * std::pow(std::max(1.0, static_cast<double>(num_steps) / 20), 1.5);
}

}  // namespace lockstep::tutorial
