#include "tutorials/common.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/watch/program.h"
#include "tutorials/devices.h"

namespace lockstep::tutorial {
namespace {

constexpr std::size_t kColumns = 80;
constexpr const char* kAsked = "LOCKSTEP_TUTORIAL_ASKED";  // the question stands above already

std::string command_line_name;  // as a reader types it

std::size_t count_columns(std::string_view text) {  // UTF-8: bytes that begin a character
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

// A launcher puts "[0] " before a rank's lines.
std::size_t prefix_columns() {
  return std::getenv("RANK") == nullptr ? 0 : 4;
}

// Lines of at most kColumns columns, broken at spaces; all but the first are indented.
std::string wrap(std::string_view text, std::size_t indent) {
  std::string lines;
  const std::size_t columns = kColumns - prefix_columns();
  for (std::size_t room = columns;; room = columns - indent) {
    std::size_t end = std::min(text.find('\n'), text.size());
    while (end > 0 && count_columns(text.substr(0, end)) > room) {
      const std::size_t space = text.rfind(' ', end - 1);
      if (space == std::string_view::npos) break;  // a word longer than a line
      end = space;
    }
    lines += text.substr(0, end);
    if (end == text.size()) return lines;
    text.remove_prefix(end + 1);
    lines += '\n' + std::string(indent, ' ');
  }
}

// The question, once for the ranks of a host, and the devices; neither if the starter of this rank
// has printed them.
void print_head(std::string_view question, const Options& options) {
  if (std::getenv(kAsked) != nullptr) return;
  ::setenv(kAsked, "yes", /*overwrite=*/1);
  if (options.own_device.value_or(0) == 0) say(fmt::format("Question: {}", question), 10);
  print_devices(options.devices(options.num_devices), options.own_device);
  std::fflush(stdout);
}

int report(const std::string& program, const char* message, int exit_code) {
  std::fflush(stdout);
  std::string line = message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  fmt::print(stderr, "{}: {}\n", program, line);
  return exit_code;
}

// For a program that is about a fixed number of devices.
void add_devices_flag(CLI::App& app, Options& options) {
  if (app.get_option_no_throw("--devices")) return;
  const std::string all = std::to_string(options.num_devices);
  const auto is_all = [all](const std::string& value) {
    return value == all ? ""
                        : fmt::format("this program uses {} {}, found {}", all,
                                      all == "1" ? "device" : "devices", value);
  };
  app.add_option("--devices", options.num_devices, fmt::format("always {}", all))
      ->check(is_all)
      ->type_name("UINT");
}

int parse_and_run(const std::string& program, int argc, char** argv, std::string_view question,
                  const Body& body, const Setup& setup) {
  CLI::App app(std::string(question), program);
  Options options;
  options.num_devices = setup.num_devices;
  std::string device = "auto";
  std::string virtual_devices;
  const bool is_on_cpu = setup.hardware == Setup::Hardware::cpu;
  std::vector<std::string> choices = {"auto", "cpu"};
  if (!is_on_cpu) choices.push_back("cuda");
  app.add_option("--device", device, is_on_cpu ? "always cpu" : "auto, cpu or cuda")
      ->check(CLI::IsMember(choices))
      ->capture_default_str();
  app.add_option("--virtual-devices", virtual_devices,
                 "logical devices that share GPUs, such as cuda:0*4 or cuda:0*2,cuda:1*2");
  app.add_flag("--fast", options.fast, "a short run, for tests");
  std::string watch_path;
  app.add_option("--watch", watch_path, "write a page here in which a step of the training plays")
      ->type_name("FILE");
  Flags flags(app);
  if (setup.add_flags) setup.add_flags(flags, options);
  add_devices_flag(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report(program, fmt::format("{} (see {} --help)", error.what(), program).c_str(), 2);
  }
  options.device_type = is_on_cpu ? DeviceType::cpu : resolve_device_type(device);
  declare_devices(options, virtual_devices);
  options.devices(options.num_devices);  // throws if there are fewer
  print_head(question, options);
  watch::watch_program(watch_path, program, [&] { body(options); });
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, ErrorCode::Io, "stdout",
          "cannot write to standard output; what was printed is not complete");
  return 0;
}

}  // namespace

void Flags::add_number(const std::string& name, int& value, int least, int most,
                       const std::string& help) {
  app_.add_option(name, value, help)->check(CLI::Range(least, most))->capture_default_str();
}

void Flags::add_number(const std::string& name, double& value, double least, double most,
                       const std::string& help) {
  app_.add_option(name, value, help)->check(CLI::Range(least, most))->capture_default_str();
}

void Flags::add_text(const std::string& name, std::string& value, const std::string& help) {
  app_.add_option(name, value, help)->capture_default_str();
}

void Flags::add_choice(const std::string& name, std::string& value,
                       const std::vector<std::string>& choices, const std::string& help) {
  app_.add_option(name, value, help)->check(CLI::IsMember(choices))->capture_default_str();
}

int run_main(int argc, char** argv, std::string_view question, const Body& body,
             const Setup& setup) {
  const std::string program = std::filesystem::path(argc > 0 ? argv[0] : "tutorial").filename();
  const bool is_short = argc > 0 && count_columns(argv[0]) <= 40;
  const char* const learn = std::getenv("LOCKSTEP_LEARN");  // set by `lockstep learn`
  command_line_name = learn != nullptr ? learn : is_short ? argv[0] : program;
  try {
    return parse_and_run(program, argc, argv, question, body, setup);
  } catch (const Error& error) {
    return report(program, error.what(), exit_code(error.code()));
  } catch (const std::exception& error) {
    return report(program, error.what(), 1);
  }
}

void answer(std::string_view text, const std::vector<Variation>& variations) {
  fmt::print("\n");
  say(fmt::format("Answer: {}", text), 8);
  fmt::print("Now try:\n");
  for (const Variation& variation : variations) {
    fmt::print("  {} {}\n", command_line_name, variation.flags);
    say("      " + variation.shows, 6);
  }
}

void Guess::add_flag(Flags& flags) {
  flags.add_number("--guess", number_, 0, static_cast<int>(choices_.size()), "your guess; 0: none");
}

void Guess::ask(const Options& options) {
  say(question_);
  for (std::size_t i = 0; i < choices_.size(); ++i) fmt::print("  {}  {}\n", i + 1, choices_[i]);
  if (number_ == 0 && !options.fast && ::isatty(STDIN_FILENO) != 0) {
    fmt::print("What do you think? ");
    std::fflush(stdout);
    std::string line;
    std::getline(std::cin, line);
    const int typed = line.size() == 1 ? line[0] - '0' : 0;
    if (1 <= typed && typed <= std::ssize(choices_)) number_ = typed;
  }
  if (number_ != 0) {
    fmt::print("your guess: {}\n", number_);
  } else {
    fmt::print("no guess: make one with --guess 1 to {}\n", choices_.size());
  }
}

void Guess::judge(int right, std::string_view because) const {
  const std::string verdict = number_ == 0       ? "the answer is"
                              : number_ == right ? "your guess was right:"
                                                 : "your guess was wrong, the answer is";
  say(fmt::format("{} {}, {}", verdict, right, because));
}

void say(std::string_view text, std::size_t indent) {
  fmt::print("{}\n", wrap(text, indent));
}

void on_ranks(const std::vector<Device>& devices, const RankWork& work) {
  comm::run_ranks(static_cast<int>(devices.size()), [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    work(communicator, communicator.rank(), devices[rank]);
  });
}

void synchronize(Device device) {
  runtime::logical_device(device).compute_stream().synchronize();
}

double fastest_seconds(int num_calls, const std::function<void()>& work) {
  std::chrono::duration<double> fastest = std::chrono::hours(1);
  for (int call = 0; call < num_calls; ++call) {
    const auto start = std::chrono::steady_clock::now();
    work();
    fastest =
        std::min<std::chrono::duration<double>>(fastest, std::chrono::steady_clock::now() - start);
  }
  return fastest.count();
}

void step(int number, std::string_view title) {
  fmt::print("\n── Step {}: {} ──\n", number, title);
}

void check(std::string_view claim, bool holds) {
  say(fmt::format("check: {} ... {}", claim, holds ? "ok" : "FAILED"), 7);
  require(holds, ErrorCode::Numeric, "check", "this does not hold: {}", claim);
}

void check_times(std::string_view claim, bool holds) {
  if (holds) return check(claim, holds);
  say(fmt::format("check: {} ... not judged: too few cores, or other programs took them", claim),
      7);
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

std::string show_error(const std::function<void()>& action) {
  const std::string message = expect_error(action);
  say("  " + message, 4);
  return message;
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

void check_close(std::string_view claim, const Tensor& a, const Tensor& b, double tolerance) {
  check_close(claim, max_abs_difference(a, b), tolerance);
}

double weight_tolerance(int num_steps) {
  return 1e-5 * std::pow(std::max(1.0, num_steps / 20.0), 1.5);
}

}  // namespace lockstep::tutorial
