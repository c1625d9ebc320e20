// 19: What does DDP do if a rank has no rows left?
//
// Each backward pass of Ddp ends in all-reduces that all ranks must call. If one rank's data set is
// a few rows shorter, it ends its loop earlier, and the others wait for a rank that is gone. The
// simple way out is a sampler that gives all ranks equally many rows (tutorial 16). Where that is
// not possible, join lets the rank that is done take part in the others' all-reduces with zeros.
//
// You will see: ranks with unequally many batches: the error without join, and join, which divides
// by all ranks or by those that still have rows. At the end both give the weights of one device
// that trains on the same batches.
//
// Run:  19_lack_rows [--ranks 3] [--short 3] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/19.txt

#include <lockstep.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using parallel::Ddp;
using parallel::JoinDivisor;

constexpr const char* kModel = "mlp:64-32-10";
constexpr int kBatch = 16;  // rows of a rank's batch
constexpr int kSteps = 5;   // batches of every rank but rank 0

int num_ranks = 3;    // --ranks
int short_steps = 3;  // --short: batches of rank 0

int steps_of(int rank) {
  return rank == 0 ? short_steps : kSteps;
}

// The mean over a rank's batch.
Variable loss_of(nn::Module& net, int rank, int step, Device device) {
  static const tutorial::Rows digits = tutorial::load_digits(Device{DeviceType::cpu, 0});
  const int begin = (rank * kSteps + step) * kBatch;
  const tutorial::Rows batch = digits.part(begin, begin + kBatch, device);
  return cross_entropy(net(batch.x), batch.labels);
}

void fail_without_join(const std::vector<Device>& devices) {
  std::string message;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = nn::make_mlp(kModel, /*seed=*/0, DType::float32, device);
    Ddp ddp(model, ranks);
    const auto train = [&] {
      for (int step = 0; step < steps_of(rank); ++step) {
        loss_of(ddp, rank, step, device).backward();
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

std::shared_ptr<nn::Module> train_joined(const std::vector<Device>& devices, JoinDivisor divisor) {
  std::shared_ptr<nn::Module> result;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = nn::make_mlp(kModel, /*seed=*/0, DType::float32, device);
    Ddp ddp(model, ranks);
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

// One device with the batches that the ranks have in each step.
std::shared_ptr<nn::Module> train_one(Device device, JoinDivisor divisor) {
  const auto model = nn::make_mlp(kModel, /*seed=*/0, DType::float32, device);
  optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1});
  for (int step = 0; step < kSteps; ++step) {
    const int active = step < short_steps ? num_ranks : num_ranks - 1;
    sgd.zero_grad();
    for (int rank = num_ranks - active; rank < num_ranks; ++rank) {
      const double parts = divisor == JoinDivisor::world_size ? num_ranks : active;
      scale(loss_of(*model, rank, step, device), 1 / parts).backward();
    }
    sgd.step();
  }
  return model;
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(num_ranks);
  tutorial::step(
      1, fmt::format("rank 0 has {} batches, the others {}: an error", short_steps, kSteps));
  fail_without_join(devices);
  tutorial::step(2, "the same with join; every rank's own gradient is 50");
  join_uneven(devices);

  tutorial::step(3, "train with uneven batches");
  for (const JoinDivisor divisor : {JoinDivisor::world_size, JoinDivisor::active_ranks}) {
    const double difference = tutorial::max_abs_difference(*train_joined(devices, divisor),
                                                           *train_one(devices[0], divisor));
    const char* by = divisor == JoinDivisor::world_size ? "world size" : "active ranks";
    tutorial::check_close(fmt::format("divided by the {}: weights against one device's", by),
                          difference, tutorial::weight_tolerance(kSteps));
  }
  tutorial::answer(
      fmt::format(
          "It fails with an error that names the rank that left, unless the loop runs under "
          "join: then a rank without rows counts as 0 ({:.2f} of 50, PyTorch's default), or "
          "not at all (50), which is the mean that one device takes over the rows left.",
          50.0 * (num_ranks - 1) / num_ranks),
      {{"--ranks 8", "One rank of eight without rows counts for less."},
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
  return run_main(argc, argv, "What does DDP do if a rank has no rows left?", run,
                  {.num_devices = 3, .add_flags = add_flags});
}
