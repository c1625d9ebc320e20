// 18: What does DDP do if a rank has no gradient for a parameter, or no rows at all?
//
// You will see: a model with two heads, of which rank 1 uses one: first the error, then the average
// that find_unused_parameters makes of it, and what static_graph saves. Then ranks with unequally
// many batches: the error without join, and join, which divides by all ranks or by those that still
// have rows. At the end both at once give the weights that one device has.
//
// Run:  18_miss_gradients [--ranks 3] [--short 3] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/18.txt

#include <lockstep.h>

#include <memory>
#include <string>
#include <vector>

#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using parallel::Ddp;
using parallel::DdpOptions;
using parallel::JoinDivisor;
using parallel::Unused;

constexpr int kBatch = 16;  // rows of a rank's batch
constexpr int kSteps = 5;   // batches of every rank but rank 0

int num_ranks = 3;    // --ranks
int short_steps = 3;  // --short: batches of rank 0

// Two heads of ten digits on one body. The right one takes part if it is asked to.
class TwoHeads final : public nn::ModuleOf<TwoHeads> {
 public:
  TwoHeads() {
    register_child("body", body_);
    register_child("left", left_);
    register_child("right", right_);
  }
  Variable forward(const Variable& x) override {
    const Variable h = relu(body_(x));
    return uses_right ? add(left_(h), right_(h)) : left_(h);
  }

  bool uses_right = true;

 private:
  nn::Linear body_{64, 32};
  nn::Linear left_{32, 10};
  nn::Linear right_{32, 10};
};

// With the same weights on every rank.
std::shared_ptr<TwoHeads> make_model(Device device) {
  manual_seed(0);
  const auto model = std::make_shared<TwoHeads>();
  model->to(device);
  return model;
}

DdpOptions with(Unused unused) {
  DdpOptions options;
  options.unused = unused;
  return options;
}

tutorial::Rows batch_of(int rank, int step, Device device) {
  static const tutorial::Rows digits = tutorial::load_digits(Device{DeviceType::cpu, 0});
  const int begin = (rank * kSteps + step) * kBatch;
  return digits.part(begin, begin + kBatch, device);
}

// A loss of which each bias has the gradient 1 per row.
Variable sum_of_outputs(nn::Module& net, int rank, Device device) {
  return sum(net(batch_of(rank, 0, device).x));
}

// --- parameters without a gradient

void fail_without_find(const std::vector<Device>& devices) {
  std::string message;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    Ddp ddp(model, ranks);
    model->uses_right = rank != 1;
    const Variable loss = sum_of_outputs(ddp, rank, device);
    const std::string error = tutorial::expect_error([&] { loss.backward(); });
    if (rank == 1) message = error;  // the others wait for rank 1, and hear that it left
  });
  tutorial::say("  " + message, 4);
  tutorial::check("the error names the rank and its parameters",
                  message.find("rank 1") != std::string::npos &&
                      message.find("right.weight, right.bias") != std::string::npos);
}

// A bias's gradient for digit 0; a parameter without one has none.
std::string gradient_text(const Variable& bias) {
  return bias.grad().defined() ? fmt::format("{:.0f}", bias.grad()[0]) : "none";
}

void average_with_find(const std::vector<Device>& devices) {
  std::vector<std::vector<std::string>> own(2, std::vector<std::string>(2));  // [bias][rank]
  std::vector<std::string> averaged(2);
  std::string untouched;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto alone = make_model(device);
    const auto model = make_model(device);
    Ddp ddp(model, ranks, with(Unused::find));
    alone->uses_right = model->uses_right = rank != 1;
    sum_of_outputs(*alone, rank, device).backward();
    sum_of_outputs(ddp, rank, device).backward();
    const auto bias = [](const nn::Module& of, int head) { return of.parameters()[3 + 2 * head]; };
    for (int head = 0; head < 2; ++head) {
      own[head][rank] = gradient_text(bias(*alone, head));
      if (rank == 0) averaged[head] = gradient_text(bias(*model, head));
    }
    model->uses_right = false;  // now no rank uses it
    sum_of_outputs(ddp, rank, device).backward();
    if (rank == 0) untouched = gradient_text(bias(*model, 1));
  });
  fmt::print("gradient of    on rank 0    on rank 1    after DDP\n");
  fmt::print("left.bias   {:>12} {:>12} {:>11}\n", own[0][0], own[0][1], averaged[0]);
  fmt::print("right.bias  {:>12} {:>12} {:>11}\n", own[1][0], own[1][1], averaged[1]);
  fmt::print("right.bias          none         none {:>11}   a second pass, which adds\n",
             untouched);
  tutorial::check("the average counts rank 1's missing gradient as zero", averaged[1] == "8");
  tutorial::check("a gradient that no rank computed is left as it was", untouched == averaged[1]);
}

void take_first_graph(const std::vector<Device>& devices) {
  std::string message;
  bool is_rebuilt = false;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    Ddp ddp(model, ranks, with(Unused::as_first));
    model->uses_right = false;
    for (int step = 0; step < 3; ++step) sum_of_outputs(ddp, rank, device).backward();
    model->uses_right = true;
    const Variable loss = sum_of_outputs(ddp, rank, device);
    const std::string error = tutorial::expect_error([&] { loss.backward(); });
    if (rank == 0) message = error;
    if (rank == 0) is_rebuilt = ddp.reducer().was_rebuilt();
  });
  fmt::print("three steps with the left head alone; a fourth one with both:\n");
  tutorial::say("  " + message, 4);
  tutorial::check("buckets follow the order of gradients, which Unused::find cannot do",
                  is_rebuilt);
}

// --- ranks without rows

int steps_of(int rank) {
  return rank == 0 ? short_steps : kSteps;
}

void fail_without_join(const std::vector<Device>& devices) {
  std::string message;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    Ddp ddp(model, ranks);
    const auto train = [&] {
      for (int step = 0; step < steps_of(rank); ++step) {
        sum_of_outputs(ddp, rank, device).backward();
      }
    };
    if (rank == 0) return train();
    const std::string error = tutorial::expect_error(train);
    if (rank == 1) message = error;
  });
  tutorial::say("  " + message, 4);
  tutorial::check("the error names the rank that left",
                  message.find("rank 0") != std::string::npos);
}

// The gradient that rank 1 sees in each step if every rank's own is 50.
std::vector<double> joined_gradients(const std::vector<Device>& devices, JoinDivisor divisor) {
  std::vector<double> gradients;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto linear = std::make_shared<nn::Linear>(1, 1, nn::LinearOptions{.device = device});
    Ddp ddp(linear, ranks);
    const Variable rows(Tensor::full({50, 1}, 1, DType::float32, device));
    parallel::join(
        ddp,
        [&] {
          for (int step = 0; step < steps_of(rank); ++step) {
            linear->zero_grad();
            sum(ddp(rows)).backward();
            if (rank == 1) gradients.push_back(linear->bias().grad().item());
          }
        },
        divisor);
  });
  return gradients;
}

void join_uneven(const std::vector<Device>& devices) {
  const std::vector<double> by_all = joined_gradients(devices, JoinDivisor::world_size);
  const std::vector<double> by_active = joined_gradients(devices, JoinDivisor::active_ranks);
  fmt::print("step  ranks with rows  divided by {:>2}  by the active ranks\n", num_ranks);
  bool is_right = true;
  for (int step = 0; step < kSteps; ++step) {
    const int active = step < short_steps ? num_ranks : num_ranks - 1;
    fmt::print("{:4} {:16} {:14.2f} {:21.2f}\n", step, active, by_all[step], by_active[step]);
    is_right &= std::abs(by_all[step] - 50.0 * active / num_ranks) < 1e-3;
    is_right &= std::abs(by_active[step] - 50.0) < 1e-3;
  }
  tutorial::check(fmt::format("among {} ranks: 50 * {} / {} dividing by all, 50 by the active "
                              "ranks",
                              num_ranks, num_ranks - 1, num_ranks),
                  is_right);
}

// --- both at once: rank 1 lacks the right head, and rank 0 has fewer batches

Variable loss_of(nn::Module& net, int rank, int step, Device device) {
  const tutorial::Rows batch = batch_of(rank, step, device);
  return cross_entropy(net(batch.x), batch.labels);
}

std::shared_ptr<nn::Module> train_joined(const std::vector<Device>& devices, JoinDivisor divisor) {
  std::shared_ptr<nn::Module> result;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    model->uses_right = rank != 1;
    Ddp ddp(model, ranks, with(Unused::find));
    optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1});
    const auto train = [&] {
      for (int step = 0; step < steps_of(rank); ++step) {
        sgd.zero_grad();
        loss_of(ddp, rank, step, device).backward();
        sgd.step();
      }
    };
    parallel::join(ddp, train, divisor);
    if (rank == 0) result = model;  // which has the last rank's weights now
  });
  return result;
}

std::shared_ptr<nn::Module> train_one(Device device, JoinDivisor divisor) {
  const auto model = make_model(device);
  optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1});
  for (int step = 0; step < kSteps; ++step) {
    const int active = step < short_steps ? num_ranks : num_ranks - 1;
    sgd.zero_grad();
    for (int rank = num_ranks - active; rank < num_ranks; ++rank) {
      model->uses_right = rank != 1;
      const double parts = divisor == JoinDivisor::world_size ? num_ranks : active;
      scale(loss_of(*model, rank, step, device), 1 / parts).backward();
    }
    sgd.step();
  }
  return model;
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(num_ranks);
  const std::vector<Device> two(devices.begin(), devices.begin() + 2);
  tutorial::step(1, "rank 1 does not use the right head: an error");
  fail_without_find(two);
  tutorial::step(2, "the same with Unused::find, PyTorch's find_unused_parameters=True");
  average_with_find(two);
  tutorial::step(3, "the same parameters in every step: Unused::as_first (static_graph)");
  take_first_graph(two);

  tutorial::step(
      4, fmt::format("rank 0 has {} batches, the others {}: an error", short_steps, kSteps));
  fail_without_join(devices);
  tutorial::step(5, "the same with join; every rank's own gradient is 50");
  join_uneven(devices);

  tutorial::step(6, "train with a missing head and uneven batches");
  for (const JoinDivisor divisor : {JoinDivisor::world_size, JoinDivisor::active_ranks}) {
    const double difference = tutorial::max_abs_difference(*train_joined(devices, divisor),
                                                           *train_one(devices[0], divisor));
    const char* by = divisor == JoinDivisor::world_size ? "world size" : "active ranks";
    tutorial::check_close(fmt::format("divided by the {}: weights against one device's", by),
                          difference, tutorial::weight_tolerance(kSteps));
  }
  tutorial::answer(
      fmt::format(
          "It fails with an error that names the rank, unless you told it what to do. "
          "Unused::find averages over all ranks and counts a missing gradient as 0 (16 and "
          "none give 8). Under join a rank without rows counts as 0, too ({:.2f} of 50), or "
          "not at all (50).",
          50.0 * (num_ranks - 1) / num_ranks),
      {{"--ranks 8", "One missing rank of eight counts for less."},
       {"--short 0", "Rank 0 has no rows at all, and ends with the others' weights."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options& options) {
    options.num_devices = 8;
    flags.add_number("--ranks", num_ranks, 2, 8, "how many ranks");
    flags.add_number("--short", short_steps, 0, 4, "batches of rank 0; the others have 5");
  };
  return run_main(argc, argv,
                  "What does DDP do if a rank has no gradient for a parameter, or no rows at all?",
                  run, {.num_devices = 3, .add_flags = add_flags});
}
