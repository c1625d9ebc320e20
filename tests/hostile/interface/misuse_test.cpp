// Every misuse of the interface is an Error of one line that says where: nothing crashes, hangs, is
// accepted in silence, or leaves anything behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <typeinfo>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/core/error.h"
#include "engine/nn/mlp.h"
#include "engine/optim/optimizers.h"
#include "engine/runtime/logical_device.h"
#include "tests/hostile/interface/misuse.h"
#include "tests/hostile/rounds.h"

namespace lockstep::testing {
namespace {

constexpr unsigned kSecondsPerMisuse = 60;
constexpr std::size_t kKeptBytes = 16 << 10;

// While one lives, a crash or a hang says which misuse it was.
class Blame {
 public:
  explicit Blame(const std::string& what) {
    std::snprintf(text.data(), text.size(), "%s\n", what.c_str());
    struct sigaction action {};
    action.sa_handler = say;
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before[i]);
    ::alarm(kSecondsPerMisuse);
  }
  ~Blame() {
    ::alarm(0);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &before[i], nullptr);
    }
  }
  Blame(const Blame&) = delete;
  Blame& operator=(const Blame&) = delete;

 private:
  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
  static inline std::array<struct sigaction, kSignals.size()> before;
  static inline std::array<char, 512> text;

  // Then the signal does what it would have done.
  static void say(int signal) {
    [[maybe_unused]] const ssize_t written = ::write(2, text.data(), std::strlen(text.data()));
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      if (kSignals[i] == signal) ::sigaction(signal, &before[i], nullptr);
    }
    if (signal == SIGALRM) ::_exit(1);
  }
};

// Empty if the misuse ended as it should, else what happened.
std::string fault_of(const Misuse& misuse, Rng& rng) {
  try {
    misuse.commit(rng);
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_one_line = text.find('\n') == std::string::npos;
    return is_one_line && text.starts_with('[') ? "" : "an error that is no line: " + text;
  } catch (const std::exception& other) {
    return fmt::format("{}: {}", typeid(other).name(), other.what());
  }
  return "accepted in silence";
}

// What a correct program computes, in bits that no misuse before may have changed.
std::vector<double> correct_program() {
  const auto model = nn::make_mlp("mlp:4-5-3", 1);
  optim::Sgd optimizer(model->parameters(), {0.1, 0.9});
  Rng rng(2);
  const Variable x(random_values(rng, {6, 4}));
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}, {6});
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    const Variable loss = cross_entropy((*model)(x), labels);
    losses.push_back(loss.value().item());
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return losses;
}

std::size_t bytes_held() {
  std::size_t num_bytes = 0;
  for (const int index : {0, 1, 2}) {
    runtime::LogicalDevice& device = runtime::logical_device({DeviceType::cpu, index});
    num_bytes += device.memory().statistics().current_bytes;
  }
  return num_bytes;
}

struct Family {
  const char* name;
  Misuses (*misuses)();
};

class Misusing : public ::testing::TestWithParam<Family> {};

TEST_P(Misusing, IsAnErrorOfOneLineAndLeavesNothingBehind) {
  const Misuses misuses = GetParam().misuses();
  const std::vector<double> expected = correct_program();
  std::size_t num_committed = 0;
  std::size_t num_bytes = 0;
  for (Rounds round(200); round.go_on() && !HasFailure(); round.next()) {
    for (std::size_t i = 0; i < misuses.size(); ++i) {
      const std::string what =
          fmt::format("{}: {}, seed {}", GetParam().name, misuses[i].name, round.seed());
      const Blame blame(what);
      Rng rng(round.seed(), i);
      EXPECT_EQ(fault_of(misuses[i], rng), "") << what;
      EXPECT_TRUE(grad_enabled()) << what;
      ++num_committed;
    }
    EXPECT_EQ(correct_program(), expected) << "after seed " << round.seed();
    // What is made once and kept is small.
    if (round.seed() == 0) num_bytes = bytes_held();
    EXPECT_LE(bytes_held(), num_bytes + kKeptBytes) << "after seed " << round.seed();
  }
  report_row(fmt::format("C++ interface: {}", GetParam().name), num_committed,
             fmt::format("{} kinds of misuse, each an error of one line; what follows them trains "
                         "to the same bits",
                         misuses.size()));
}

void PrintTo(const Family& family, std::ostream* out) {
  *out << family.name;
}

INSTANTIATE_TEST_SUITE_P(
    Of, Misusing,
    ::testing::Values(Family{"tensors", tensor_misuses}, Family{"autograd", autograd_misuses},
                      Family{"modules", nn_misuses}, Family{"optimizers", optim_misuses},
                      Family{"data", data_misuses}, Family{"collectives", comm_misuses},
                      Family{"parallel", parallel_misuses}),
    [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace lockstep::testing
