// 22: How does a pipeline keep the parts of a split model busy?
//
// A model cut into stages is a line of workers: a stage can begin when the one before it is done,
// so with one batch at a time all but one wait. Cut into micro-batches, the batch fills the line
// like a pipeline, and only while it fills and drains do stages wait: that is the bubble. A
// schedule says in which order each stage takes forward and backward passes, and so how much it has
// to keep.
//
// You will see: the lanes of three schedules with their bubbles, and what each stage keeps; then
// the same perceptron trained in 1, 2 and 4 stages, with the bytes that they send beside DDP's, and
// one device's weights.
//
// Run:  22_fill_pipeline [--batch 64] [--micro 8] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/22.txt

#include <lockstep.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <regex>
#include <tuple>
#include <vector>

#include "engine/trace/counters.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using plan::PipelinePlan;
using plan::PipelineSchedule;
using enum plan::PipelineSchedule;

constexpr const char* kModel = "mlp:64-128-128-128-10";  // four layers
constexpr std::size_t kWidth = 128;                      // activations between two of them
constexpr int kMostDevices = 4;

int num_rows = 64;  // --batch
int num_micro = 8;  // --micro

const data::LabelledRows& load_digits() {
  static const datasets::Dataset digits =
      datasets::load_dataset(datasets::parse_dataset("digits"), "", /*seed=*/0);
  return digits.train;
}

// With the same weights on every rank.
std::shared_ptr<nn::Module> make_model(Device device) {
  return nn::make_model(kModel, {{64}, 10}, /*seed=*/0, DType::float32, device);
}

Variable sum_loss(const Variable& logits, const Tensor& labels) {
  return cross_entropy(logits, labels, Reduction::sum);
}

// Calls gradients(batch), which leaves those of the batch's mean loss, between zero_grad and step.
template <typename Gradients>
void train(const nn::Module& parameters, Device device, int num_steps, const Gradients& gradients) {
  optim::Sgd sgd(parameters.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  data::DataLoader loader(
      load_digits(), {.batch = num_rows, .drop_last = true, .shuffle = true, .device = device});
  std::uint64_t epoch = 0;
  std::optional<data::Batch> batch;
  for (int step = 0; step < num_steps; ++step) {
    while (!(batch = loader.next())) loader.start_epoch(++epoch);
    sgd.zero_grad();
    gradients(*batch);
    sgd.step();
  }
}

// --- a pipeline: the layers one behind the other

// The rows of a plan in 80 columns: "stage 0 F0 F1 F2", or "stage 0 F0F1F2" if there are many
// slots.
std::string set_close(const std::string& plan) {
  const std::regex row("  stage ([0-9]+)  ");
  if (!std::regex_search(plan, std::regex("[^\n]{84}"))) {
    return std::regex_replace(plan, row, "stage $1 ");
  }
  return std::regex_replace(std::regex_replace(plan, row, "stage $1  "), std::regex(" ([FB.])"),
                            "$1");
}

void print_plans() {
  bool is_formula = true;
  bool is_few = true;
  const std::size_t micro = static_cast<std::size_t>(num_micro);
  for (const PipelinePlan& plan : {plan::pipeline_plan(gpipe, 4, micro),
                                   plan::pipeline_plan(one_forward_one_backward, 4, micro),
                                   plan::pipeline_plan(interleaved, 2, 4, /*num_chunks=*/2)}) {
    fmt::print("{}\n", set_close(plan::to_string(plan)));
    const double formula =
        plan::pipeline_bubble_formula(plan.num_stages, plan.num_micro_batches, plan.num_chunks);
    is_formula &= std::abs(plan::pipeline_bubble(plan) - formula) < 1e-9;
    if (plan.schedule == one_forward_one_backward) is_few &= plan::most_kept(plan, 0) <= 4;
  }
  tutorial::say(
      "F0 is the forward pass of micro-batch 0, B0 its backward pass, which takes as long here. "
      "The first stage cannot go back before the last one has the loss, and the last cannot begin "
      "before the first is done: that is the bubble.");
  tutorial::check("every plan has the formula's bubble", is_formula);
  tutorial::check("1f1b keeps at most as many micro-batches as there are stages", is_few);
}

struct Trained {
  std::vector<Tensor> weights;
  double most_sent = 0;       // bytes a step, by the rank that sends most
  std::size_t most_held = 0;  // parameters of the largest stage
};

Trained train_one(Device device, int num_steps) {
  const auto model = make_model(device);
  train(*model, device, num_steps, [&](const data::Batch& batch) {
    scale(sum_loss((*model)(batch.x), batch.labels), 1.0 / batch.labels.size(0)).backward();
  });
  Trained trained{{}, 0, model->num_parameters()};
  for (const auto& [name, tensor] : nn::state_dict(*model)) trained.weights.push_back(tensor);
  return trained;
}

Trained train_stages(const parallel::PipelineOptions& options, std::vector<Device> devices,
                     int num_steps) {
  Trained trained;
  std::vector<std::size_t> held(devices.size());
  trace::reset_collective_counts();
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    parallel::PipelineStage stage(make_model(device), ranks, options);
    held[rank] = stage.tensors()->num_parameters();
    train(*stage.tensors(), device, num_steps, [&](const data::Batch& batch) {
      stage.run_step(batch.x, batch.labels, batch.global_offset, 1.0 / batch.labels.size(0),
                     sum_loss);
    });
    const trace::UncountedScope after_the_steps({rank});
    for (const auto& [name, tensor] : stage.gather_state()) trained.weights.push_back(tensor);
  });
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    trained.most_sent = std::max(
        trained.most_sent,
        static_cast<double>(trace::collective_bytes_of(static_cast<int>(rank))) / num_steps);
  }
  trained.most_held = *std::ranges::max_element(held);
  return trained;
}

void compare_stages(const std::vector<Device>& devices, int num_steps) {
  const Trained one = train_one(devices[0], num_steps);
  const auto micro = static_cast<std::size_t>(num_micro);
  double worst = 0;
  bool sends_activations = true;
  fmt::print("stages  schedule     parameters  kept  bubble  sent by each    DDP's  differs by\n");
  for (const auto& [stages, schedule, chunks] :
       std::vector<std::tuple<int, PipelineSchedule, std::size_t>>{
           {1, gpipe, 1},
           {2, gpipe, 1},
           {2, one_forward_one_backward, 1},
           {2, interleaved, 2},
           {4, gpipe, 1},
           {4, one_forward_one_backward, 1}}) {
    const parallel::PipelineOptions options{schedule, micro, chunks};
    const Trained trained =
        train_stages(options, {devices.begin(), devices.begin() + stages}, num_steps);
    const PipelinePlan plan = plan::pipeline_plan(schedule, stages, micro, chunks);
    const double difference = tutorial::max_abs_difference(trained.weights, one.weights);
    const double ddp = 2.0 * (stages - 1) / stages * 4 * one.most_held;
    fmt::print("{:6}  {:<11} {:11}  {:4} {:5.1f} % {:9.1f} KiB {:4.0f} KiB {:11.1g}\n", stages,
               plan::to_string(schedule), trained.most_held, plan::most_kept(plan, 0),
               100 * plan::pipeline_bubble(plan), trained.most_sent / 1024, ddp / 1024, difference);
    worst = std::max(worst, difference);
    // A stage in the middle sends on and back, for each of its parts; the ends send one way less.
    const double one_way = 4.0 * num_rows * kWidth;
    const double ways = stages == 1 ? 0 : stages == 2 ? (chunks == 1 ? 1 : 3) : 2;
    // The loss, and the shape of a row, are a few bytes.
    sends_activations &= std::abs(trained.most_sent - ways * one_way) < 200;
  }
  tutorial::say(
      "parameters: of the largest stage; kept: the most micro-batches (interleaved: chunks) whose "
      "activations the first stage holds; DDP's: what an all-reduce of gradients sends.");
  tutorial::check_close("every pipeline gives one device's weights", worst,
                        tutorial::weight_tolerance(num_steps));
  tutorial::check("a stage sends its activations on, and their gradients back", sends_activations);
}

void run(const tutorial::Options& options) {
  require(num_micro % 2 == 0, ErrorCode::Usage, "--micro",
          "two interleaved stages take an even number of micro-batches, found {}", num_micro);
  const std::vector<Device> devices = options.devices(kMostDevices);
  tutorial::step(1, "the plans of three schedules");
  print_plans();

  tutorial::step(
      2, fmt::format("a pipeline trains: {} rows a step in {} micro-batches", num_rows, num_micro));
  compare_stages(devices, options.fast ? 2 : 20);

  const int one_way_kib = 4 * num_rows * static_cast<int>(kWidth) / 1024;
  tutorial::answer(
      fmt::format(
          "Micro-batches follow each other through the stages, which wait only while the pipeline "
          "fills and drains: 3 of {} slots with 4 stages. 1f1b waits as long as gpipe, but keeps "
          "at most 4 micro-batches, where gpipe keeps {}. Stages send activations, {} KiB a step "
          "each way.",
          num_micro + 3, num_micro, one_way_kib),
      {{"--micro 10", "A smaller bubble and smaller pieces; gpipe keeps more of them."},
       {"--micro 4", "As many micro-batches as stages: 43 % of the slots are idle."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--batch", num_rows, 16, 1024, "rows per step");
    flags.add_number("--micro", num_micro, 4, 10, "micro-batches per step, an even number");
  };
  return run_main(argc, argv, "How does a pipeline keep the parts of a split model busy?", run,
                  {.num_devices = kMostDevices, .add_flags = add_flags});
}
