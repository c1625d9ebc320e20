// A rank that trains the digits with DDP and all-reduces a large buffer in between, as a user's
// program would, and breaks where the command line says. The fault suite (run_faults.sh) starts it
// and looks at what the other ranks say.
//
// When nothing broke, rank 0 trains again on one device, prints how far the weights are apart, and
// exits with 1 when that is too far.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <thread>

#include "datasets/digits.h"
#include "engine/comm/process_group.h"
#include "engine/core/error.h"
#include "engine/launch/rendezvous.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/plan/collective_plan.h"

namespace {

using namespace lockstep;

constexpr std::size_t kBatch = 64;
constexpr double kWeightTolerance = 1e-5;  // float32, up to 20 steps

struct Flags {
  double comm_timeout = 2;
  std::string transport = "auto";
  std::size_t num_steps = 8;
  std::size_t large_mib = 16;
  // kill, stop: SIGKILL or SIGSTOP to itself. exit: with 7, without a word. collective, size: calls
  // another one than the others.
  std::string fault = "none";
  std::string place = "forward";
  int faulty_rank = 1;
};

bool is_faulty(const Flags& flags, int rank) {
  return flags.fault != "none" && rank == flags.faulty_rank;
}

void break_at(const Flags& flags, int rank, std::string_view place) {
  if (!is_faulty(flags, rank) || flags.place != place) return;
  if (flags.fault == "kill") ::raise(SIGKILL);
  if (flags.fault == "stop") ::raise(SIGSTOP);
  if (flags.fault == "exit") ::_exit(7);
}

// A layer that does nothing, but for running something in its forward.
class Hook final : public nn::ModuleOf<Hook> {
 public:
  explicit Hook(std::function<void()> action) : action_(std::move(action)) {}
  Variable forward(const Variable& x) override {
    action_();
    return x;
  }
  std::string type_name() const override { return "Hook"; }

 private:
  std::function<void()> action_;
};

std::shared_ptr<nn::Module> make_model(std::function<void()> in_forward) {
  Rng rng(0);
  std::vector<std::shared_ptr<nn::Module>> layers;
  layers.push_back(std::make_shared<nn::Linear>(64, 128, rng));
  layers.push_back(std::make_shared<nn::ReLU>());
  layers.push_back(std::make_shared<Hook>(std::move(in_forward)));
  layers.push_back(std::make_shared<nn::Linear>(128, 10, rng));
  return std::make_shared<nn::Sequential>(std::move(layers));
}

// One step of training on this rank's rows of the step's batch.
class Trainer {
 public:
  explicit Trainer(nn::Module& net)
      : net_(net), sgd_(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9}) {
    const data::LabelledRows digits = datasets::load_digits(0, datasets::kNumTrainDigits);
    std::vector<float> pixels;
    for (const std::uint8_t byte : digits.features) {
      pixels.push_back(static_cast<float>(digits.scale) * static_cast<float>(byte));
    }
    x_ = Tensor::from(pixels, {digits.num_rows(), digits.num_features});
    labels_ = Tensor::from(digits.labels, {digits.num_rows()});
  }

  void step(std::size_t number, std::size_t rank, std::size_t world_size) {
    const std::size_t begin = number * kBatch % (datasets::kNumTrainDigits - kBatch);
    const plan::Chunk shard = plan::even_chunk(kBatch, world_size, rank);
    const std::size_t first = begin + shard.offset;
    const std::size_t end = first + shard.count;
    sgd_.zero_grad();
    const Variable loss = cross_entropy(net_(Variable(x_.rows(first, end))),
                                        labels_.rows(first, end), Reduction::sum);
    scale(loss, static_cast<double>(world_size) / kBatch).backward();
    sgd_.step();
  }

 private:
  nn::Module& net_;
  optim::Sgd sgd_;
  Tensor x_;
  Tensor labels_;
};

// Dies or stops while data moves: a few milliseconds after the operation began, which takes longer.
void break_during(const Flags& flags, int rank, comm::Communicator& group, const Tensor& buffer) {
  if (!is_faulty(flags, rank) || flags.place != "all-reduce") return;
  comm::Work work = group.all_reduce(buffer, {.launch = comm::Launch::async});
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  break_at(flags, rank, "all-reduce");
  work.wait();
}

void all_reduce_large(const Flags& flags, int rank, comm::Communicator& group) {
  const std::size_t num_elements = flags.large_mib << 18;
  const Tensor buffer = Tensor::zeros({num_elements});
  if (is_faulty(flags, rank) && flags.fault == "collective") group.broadcast(buffer, 0);
  if (is_faulty(flags, rank) && flags.fault == "size") {
    group.all_reduce(buffer.rows(0, num_elements / 2));
  }
  break_during(flags, rank, group, buffer);
  group.all_reduce(buffer);
}

void check_against_one_device(const Flags& flags, const nn::Module& trained) {
  const auto single = make_model([] {});
  Trainer trainer(*single);
  for (std::size_t step = 0; step < flags.num_steps; ++step) trainer.step(step, 0, 1);
  double largest = 0;
  for (std::size_t p = 0; p < single->parameters().size(); ++p) {
    const auto a = single->parameters()[p].value().to_vector<double>();
    const auto b = trained.parameters()[p].value().to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  fmt::print("weights differ from one device's by {:.1e}\n", largest);
  require(largest <= kWeightTolerance, ErrorCode::Numeric, "check",
          "the weights differ from one device's by {:g}", largest);
}

void run(const Flags& flags) {
  const launch::Environment environment = launch::current_environment();
  const int claimed_rank = launch::rank_environment(environment).rank;
  break_at(flags, claimed_rank, "before-rendezvous");
  launch::JoinOptions join;
  join.timeout_seconds = flags.comm_timeout;
  const launch::Job job = launch::join_job(environment, join);
  const int rank = job.rank().rank;
  break_at(flags, rank, "rendezvous");

  comm::ProcessGroupOptions options;
  options.rank = rank;
  options.world_size = job.rank().world_size;
  options.store = job.store();
  options.token = job.token();
  options.address = job.address();
  options.transport = comm::parse_transport_choice(flags.transport);
  options.timeout_seconds = flags.comm_timeout;
  const auto group = comm::make_process_group(options);
  if (rank == 0) fmt::print("{}\n", group->description());
  std::fflush(stdout);

  std::size_t step = 0;
  const auto model = make_model([&] {
    if (step == 2) break_at(flags, rank, "forward");
  });
  parallel::Ddp net(model, *group);
  Trainer trainer(net);
  for (; step < flags.num_steps; ++step) {
    trainer.step(step, static_cast<std::size_t>(rank),
                 static_cast<std::size_t>(group->world_size()));
    all_reduce_large(flags, rank, *group);
  }
  if (rank == 0) check_against_one_device(flags, *model);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A rank that breaks where it is told");
  Flags flags;
  app.add_option("--comm-timeout", flags.comm_timeout);
  app.add_option("--transport", flags.transport);
  app.add_option("--steps", flags.num_steps);
  app.add_option("--large-mib", flags.large_mib);
  app.add_option("--fault", flags.fault);
  app.add_option("--place", flags.place);
  app.add_option("--rank", flags.faulty_rank);
  CLI11_PARSE(app, argc, argv);
  try {
    run(flags);
    return 0;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "faulty_rank: {}\n", error.what());
    return lockstep::exit_code(error.code());
  }
}
