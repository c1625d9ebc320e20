// Shared by all tutorials, but not their subject: flags, questions, and by output.h headings,
// checks and answers.
//
// Everything else is in the tutorial itself, which uses the engine's public headers.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/device.h"
#include "engine/nn/module.h"
#include "tutorials/output.h"

namespace CLI {
class App;  // its header is for common.cpp alone: it would double a tutorial's compile time
}

namespace lockstep::tutorial {

// The values of the flags.
struct Options {
  DeviceType device_type = DeviceType::cpu;
  bool fast = false;    // a short run, for tests
  int num_devices = 1;  // the most that the tutorial uses
  // The index of its own device, for a process that is one of several ranks.
  std::optional<int> own_device = {};

  // A single device is index 0, also on a machine with more.
  Device device() const { return {device_type, 0}; }
  // Indices 0 ... count - 1. Throws Error{Device} when there are not so many.
  std::vector<Device> devices(int count) const;
};

using Body = std::function<void(const Options&)>;

// A tutorial's own flags, such as "--batch". The value is the default, which --help shows; a flag
// must keep it within the bounds.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}
  void add_number(const std::string& name, int& value, int least, int most,
                  const std::string& help);
  void add_number(const std::string& name, double& value, double least, double most,
                  const std::string& help);
  void add_text(const std::string& name, std::string& value, const std::string& help);
  void add_choice(const std::string& name, std::string& value,
                  const std::vector<std::string>& choices, const std::string& help);

 private:
  CLI::App& app_;
};

// A tutorial's properties, except its body.
struct Setup {
  int num_devices = 1;
  // Registers flags of its own; one of them may say Options::num_devices.
  std::function<void(Flags&, Options&)> add_flags = {};
  // cpu: the tutorial acts other devices out, and --device says so.
  enum class Hardware { any, cpu } hardware = Hardware::any;
};

// The whole of a tutorial's main(): reads the flags, prints "Question: ...", then "using device:
// ..." (a rank: "using device: cpu:1 of cpu:0 to cpu:3 ..."), runs the body. Of a job's ranks the
// first on each host asks the question. A rank whose starter is a tutorial, which has printed both
// lines, prints neither. Where there are GPUs, but fewer than num_devices, each becomes several
// logical devices, and the device line says so; --virtual-devices and LOCKSTEP_VIRTUAL_DEVICES
// (runtime/logical_device.h) say which. Returns the exit code: 0; 2 for a wrong command line; 1
// for any other error, a failed check included. Errors are one line on stderr.
int run_main(int argc, char** argv, std::string_view question, const Body& body,
             const Setup& setup = {});

// A question with numbered choices, asked before the answer is printed. --guess answers it; without
// the flag a program at a terminal asks.
class Guess {
 public:
  Guess(std::string question, std::vector<std::string> choices)
      : question_(std::move(question)), choices_(std::move(choices)) {}

  void add_flag(Flags& flags);
  // Prints the question and its choices, and takes the guess.
  void ask(const Options& options);
  // Prints the right choice and what shows it, and says if the guess was right. Counts from 1.
  void judge(int right, std::string_view because) const;

 private:
  std::string question_;
  std::vector<std::string> choices_;
  int number_ = 0;  // 0: none
};

// Runs work as every rank of a group, one rank per device. Each rank is a thread here; in PyTorch
// it would be a process.
using RankWork = std::function<void(comm::Communicator& ranks, int rank, Device device)>;
void on_ranks(const std::vector<Device>& devices, const RankWork& work);

// Returns when the device has done what it was told to (PyTorch: torch.cuda.synchronize).
void synchronize(Device device);

// Seconds of the fastest of several calls: the one that other programs disturbed least.
double fastest_seconds(int num_calls, const std::function<void()>& work);

// Runs something that must fail, and returns the message of its Error.
// Throws Error{Numeric} if it does not fail.
std::string expect_error(const std::function<void()>& action);
// The same, and prints the message, indented.
std::string show_error(const std::function<void()>& action);

// The largest |a - b| over all elements; the tensors may be on different devices.
// Throws Error{Shape} if their shapes differ.
double max_abs_difference(const Tensor& a, const Tensor& b);
// The same over pairs of tensors. Throws Error{Shape} if there are not equally many.
double max_abs_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);
// The same over all parameters of two models.
double max_abs_difference(const nn::Module& a, const nn::Module& b);

// check_close() with the largest difference of two tensors.
void check_close(std::string_view claim, const Tensor& a, const Tensor& b, double tolerance);

// How far two float32 runs of the same num_steps steps may drift apart, because they add in another
// order: 1e-5 up to 20 steps, then 1e-5 * (num_steps / 20)^1.5.
double weight_tolerance(int num_steps);

}  // namespace lockstep::tutorial
