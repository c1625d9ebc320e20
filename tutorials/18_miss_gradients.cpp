// 18: What does DDP do if a rank has no gradient for a parameter?
//
// Ddp sends a bucket when all its gradients are there. A parameter that takes no part in the loss
// never gets one: its bucket is never full, and the other ranks wait for it. So by default every
// parameter must take part on every rank, and Ddp says which did not. Told that some may be
// missing, it finds out in each step which they are, on all ranks.
//
// You will see: a model with two heads, of which rank 1 uses one: first the error, then the average
// that find_unused_parameters makes of it, and what static_graph saves. At the end a training whose
// rank 1 never uses the second head gives the weights that one device has.
//
// Run:  18_miss_gradients [--ranks 3] [--device auto|cpu|cuda] [--fast]
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
using parallel::Unused;

constexpr int kBatch = 16;  // rows of a rank's batch
constexpr int kSteps = 5;   // batches of a rank

int num_ranks = 3;  // --ranks

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

// --- train

Variable loss_of(nn::Module& net, int rank, int step, Device device) {
  const tutorial::Rows batch = batch_of(rank, step, device);
  return cross_entropy(net(batch.x), batch.labels);
}

std::shared_ptr<nn::Module> train(const std::vector<Device>& devices) {
  std::shared_ptr<nn::Module> result;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    model->uses_right = rank != 1;
    Ddp ddp(model, ranks, with(Unused::find));
    optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1});
    for (int step = 0; step < kSteps; ++step) {
      sgd.zero_grad();
      loss_of(ddp, rank, step, device).backward();
      sgd.step();
    }
    if (rank == 0) result = model;
  });
  return result;
}

// One device with the batches of all ranks, of which rank 1's use the left head alone.
std::shared_ptr<nn::Module> train_one(Device device) {
  const auto model = make_model(device);
  optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1});
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    for (int rank = 0; rank < num_ranks; ++rank) {
      model->uses_right = rank != 1;
      scale(loss_of(*model, rank, step, device), 1.0 / num_ranks).backward();
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
      4, fmt::format("train {} ranks, of which rank 1 never uses the right head", num_ranks));
  const double difference = tutorial::max_abs_difference(*train(devices), *train_one(devices[0]));
  tutorial::check_close("weights against one device's", difference,
                        tutorial::weight_tolerance(kSteps));
  tutorial::answer(
      fmt::format("It fails with an error that names the rank and its parameters, unless you told "
                  "it that some may be missing. Unused::find averages over all ranks and counts a "
                  "missing gradient as 0: 16 and none give 8. So {} ranks train as one device with "
                  "all their rows, within {:.0e}.",
                  num_ranks, difference),
      {{"--ranks 8", "One missing rank of eight counts for less."},
       {"--ranks 2", "Half of the ranks lack the head: do the weights still agree?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options& options) {
    options.num_devices = 8;
    flags.add_number("--ranks", num_ranks, 2, 8, "how many ranks train in step 4");
  };
  return run_main(argc, argv, "What does DDP do if a rank has no gradient for a parameter?", run,
                  {.num_devices = 3, .add_flags = add_flags});
}
