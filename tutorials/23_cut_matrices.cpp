// 23: How is a matrix cut over several devices, and what do they send each other?
//
// In y = W2 relu(W1 x) each hidden unit needs one row of W1 and one column of W2 (texts that write
// x W call them columns and rows), and no other unit. So each rank takes some of the hidden units:
// first W1 is cut by its outputs, then W2 by its inputs. Nothing has to be sent between the two.
// At the end each rank has a part of every output, from its own units, and one all-reduce adds
// them. Backward is the same the other way round: each rank has a part of x's gradient, and one
// all-reduce adds these. This is tensor parallelism.
//
// You will see: a pair of small matrices cut in halves, with each rank's part of the output and of
// the gradient, their sums, and why the cut in the other order fails; then a perceptron of two
// pairs trained on 1, 2 and 4 ranks, with the bytes that they send and one device's weights; and a
// GPT block whose heads are cut.
//
// Run:  23_cut_matrices [--batch 64] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/23.txt

#include <lockstep.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/trace/counters.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "mlp:64-128-128-128-10";  // four layers, two pairs
constexpr std::size_t kWidth = 128;                      // activations between the pairs
constexpr int kMostDevices = 4;

int num_rows = 64;  // --batch

// --- a pair of small matrices

using Numbers = std::vector<float>;

// Hidden units 0 and 1 are rank 0's, 2 and 3 rank 1's. A linear layer keeps W as [outputs, inputs].
const Numbers kInput = {3, 5};
const Numbers kFirst[2] = {{1, 0, 0, 1}, {1, -1, -1, 1}};   // [2 hidden units, 2 inputs] each
const Numbers kSecond[2] = {{2, 10, 1, -1}, {1, 1, 3, 4}};  // [2 outputs, 2 hidden units] each
const Numbers kWholeFirst = {1, 0, 0, 1, 1, -1, -1, 1};     // [4, 2]: the halves below each other
const Numbers kWholeSecond = {2, 10, 1, 1, 1, -1, 3, 4};    // [2, 4]: beside each other

// What a pair of layers makes of the input: the output, and the gradient of the outputs' sum.
struct Passed {
  Tensor hidden, output, input_gradient;
};

// x * W^T, for W as a linear layer keeps it.
Variable multiply_by(const Numbers& w, std::size_t num_outputs, const Variable& x) {
  const Tensor weight = Tensor::from(w, {num_outputs, w.size() / num_outputs}, x.device());
  return matmul(x, Variable(weight), kernels::Transpose::no, kernels::Transpose::yes);
}

Passed pass(const Numbers& first, const Numbers& second, Device device) {
  const std::size_t num_hidden = first.size() / 2;
  const Variable x(Tensor::from(kInput, {1, 2}, device), RequiresGrad::yes);
  const Variable hidden = relu(multiply_by(first, num_hidden, x));
  const Variable y = multiply_by(second, 2, hidden);
  sum(y).backward();
  return {hidden.value(), y.value(), x.grad()};
}

std::string text_of(const Tensor& tensor) {
  std::string text;
  for (const float value : tensor.to_vector<float>()) text += fmt::format("{:>4.0f}", value);
  return text;
}

void print_passed(const char* who, const Passed& passed) {
  fmt::print("{:<22} {:>16} {:>10} {:>14}\n", who, text_of(passed.hidden), text_of(passed.output),
             text_of(passed.input_gradient));
}

void print_matrices() {
  const auto row = [](const Numbers& numbers, int first) {
    return fmt::format("{:>4.0f}{:>4.0f}", numbers[first], numbers[first + 1]);
  };
  fmt::print("              W1        W2 of output 0, 1\n");
  for (int unit = 0; unit < 4; ++unit) {
    fmt::print("unit {} {:>12} {:>12.0f}{:>4.0f}   on rank {}\n", unit, row(kWholeFirst, 2 * unit),
               kWholeSecond[unit], kWholeSecond[4 + unit], unit / 2);
  }
}

void cut_pair(const std::vector<Device>& devices) {
  Passed parts[2], sums[2];
  tutorial::on_ranks({devices[0], devices[1]},
                     [&](comm::Communicator& ranks, int rank, Device device) {
                       parts[rank] = pass(kFirst[rank], kSecond[rank], device);
                       sums[rank] = {parts[rank].hidden, parts[rank].output.clone(),
                                     parts[rank].input_gradient.clone()};
                       ranks.all_reduce(sums[rank].output);          // forward
                       ranks.all_reduce(sums[rank].input_gradient);  // backward
                     });
  const Passed whole = pass(kWholeFirst, kWholeSecond, devices[0]);
  print_matrices();
  fmt::print("x = (3, 5)               hidden units     output  gradient of x\n");
  print_passed("one device", whole);
  print_passed("rank 0: units 0 and 1", parts[0]);
  print_passed("rank 1: units 2 and 3", parts[1]);
  fmt::print("{:<22} {:>16} {:>10} {:>14}\n", "sum of both", "", text_of(sums[1].output),
             text_of(sums[1].input_gradient));
  tutorial::say(
      "Each rank needs all of x, computes its hidden units whole, and has a part of every output: "
      "one all-reduce adds the parts forward, one adds the parts of x's gradient backward.");
  tutorial::check(
      "the sums are one device's output and gradient",
      tutorial::max_abs_difference(sums[1].output, whole.output) == 0 &&
          tutorial::max_abs_difference(sums[1].input_gradient, whole.input_gradient) == 0);
}

// W1 cut by its inputs instead: each rank multiplies one input by one column of W1.
void cut_inputs_first(const std::vector<Device>& devices) {
  Tensor parts[2], clipped[2];
  for (int rank = 0; rank < 2; ++rank) {
    Numbers column;
    for (int unit = 0; unit < 4; ++unit) column.push_back(kWholeFirst[2 * unit + rank]);
    const Variable x(Tensor::from(Numbers{kInput[rank]}, {1, 1}, devices[0]));
    const Variable part = multiply_by(column, 4, x);
    parts[rank] = part.value();
    clipped[rank] = relu(part).value();
    fmt::print("rank {}: input {:.0f} makes {}, after ReLU {}\n", rank, kInput[rank],
               text_of(parts[rank]), text_of(clipped[rank]));
  }
  const Variable sum = add(Variable(parts[0]), Variable(parts[1]));
  const Variable wrong = add(Variable(clipped[0]), Variable(clipped[1]));
  const Tensor right = relu(sum).value();
  fmt::print("ReLU of the sum:      {}\nsum of the ReLUs:     {}\n", text_of(right),
             text_of(wrong.value()));
  tutorial::check("the ReLU of a sum is not the sum of the ReLUs",
                  tutorial::max_abs_difference(right, wrong.value()) > 0);
}

// --- a perceptron of two pairs

const data::LabelledRows& load_digits() {
  static const datasets::Dataset digits =
      datasets::load_dataset(datasets::parse_dataset("digits"), "", /*seed=*/0);
  return digits.train;
}

// With the same weights on every rank.
std::shared_ptr<nn::Module> make_model(Device device) {
  return nn::make_model(kModel, {{64}, 10}, /*seed=*/0, DType::float32, device);
}

// Every rank trains on all rows. The loss is the batch's mean.
void train(nn::Module& model, Device device, int num_steps) {
  optim::Sgd sgd(model.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  data::DataLoader loader(
      load_digits(), {.batch = num_rows, .drop_last = true, .shuffle = true, .device = device});
  std::uint64_t epoch = 0;
  std::optional<data::Batch> batch;
  for (int step = 0; step < num_steps; ++step) {
    while (!(batch = loader.next())) loader.start_epoch(++epoch);
    sgd.zero_grad();
    cross_entropy(model(batch->x), batch->labels).backward();
    sgd.step();
  }
}

struct Trained {
  std::vector<Tensor> weights;
  double sent = 0;           // bytes a step, by rank 0
  std::size_t num_held = 0;  // parameters of rank 0
};

Trained train_one(Device device, int num_steps) {
  const auto model = make_model(device);
  train(*model, device, num_steps);
  Trained trained{{}, 0, model->num_parameters()};
  for (const auto& [name, tensor] : nn::state_dict(*model)) trained.weights.push_back(tensor);
  return trained;
}

// One step's all-reduces of activations, forward and backward: their bytes by the formula.
double all_reduced_bytes(std::size_t num_elements, int num_calls, std::size_t num_ranks) {
  return num_calls * 2.0 * (num_ranks - 1) / num_ranks * num_elements * sizeof(float);
}

Trained train_cut(const std::vector<Device>& devices, int num_steps) {
  Trained trained;
  trace::reset_collective_counts();
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    ranks.set_default_plan(plan::AllReducePlan::ring);
    const auto whole = std::dynamic_pointer_cast<nn::Sequential>(make_model(device));
    const auto part = parallel::tensor_parallel(*whole, ranks);
    train(*part, device, num_steps);
    const trace::UncountedScope after_the_steps({rank});
    const nn::StateDict state = parallel::whole_state(*part);
    if (rank != 0) return;
    trained.num_held = part->num_parameters();  // rank 0 has the second layers' biases besides
    for (const auto& [name, tensor] : state) trained.weights.push_back(tensor);
  });
  trained.sent = static_cast<double>(trace::collective_bytes_of(0)) / num_steps;
  return trained;
}

// Returns the KiB that a rank of two sends in a step between the pairs.
double compare_cuts(const std::vector<Device>& devices, int num_steps) {
  const Trained one = train_one(devices[0], num_steps);
  double worst = 0;
  bool sends_activations = true;
  fmt::print("ranks  parameters  sent by each  by the formula  differs by\n");
  for (std::size_t n = 1; n <= devices.size(); n *= 2) {
    const Trained trained = train_cut({devices.begin(), devices.begin() + n}, num_steps);
    const double difference = tutorial::max_abs_difference(trained.weights, one.weights);
    // Layers 1 and 2 are a pair, whose input is data; 3 and 4 are another.
    const double formula = all_reduced_bytes(num_rows * kWidth, 2, n) +  // between the pairs
                           all_reduced_bytes(num_rows * 10, 1, n);       // the logits
    fmt::print("{:5} {:11} {:9.1f} KiB {:11.1f} KiB {:11.1g}\n", n, trained.num_held,
               trained.sent / 1024, formula / 1024, difference);
    worst = std::max(worst, difference);
    sends_activations &= std::abs(trained.sent - formula) < 200;  // of uneven chunks
  }
  tutorial::say(fmt::format(
      "parameters: rank 0's, which has the second layers' whole biases besides its parts; differs "
      "by: the largest difference of a weight from one device's, not 0, since sums over hidden "
      "units "
      "are now sums of the ranks' sums, which round differently. DDP's all-reduce of all gradients "
      "would send {:.0f} KiB among 2 ranks, whatever the batch.",
      4.0 * one.num_held / 1024));
  tutorial::check_close("every cut gives one device's weights", worst,
                        tutorial::weight_tolerance(num_steps));
  tutorial::check("a pair of layers all-reduces its output, and its input's gradient",
                  sends_activations);
  return all_reduced_bytes(num_rows * kWidth, 2, 2) / 1024;
}

// One pass through a GPT block whose heads are cut, and the gradient of its input.
void cut_block(const std::vector<Device>& devices) {
  const Shape shape{8, 16, 32};  // sequences, tokens, channels
  const auto make = [](Device device) {
    Rng rng(0);
    return nn::Sequential(
        {std::make_shared<nn::GptBlock>(nn::GptOptions{.heads = 4, .channels = 32}, 0, rng,
                                        nn::Placement{DType::float32, device})});
  };
  const auto input = [&](Device device) {
    Rng rng(1);
    return Variable(Tensor::uniform(shape, -1, 1, rng, DType::float32, device), RequiresGrad::yes);
  };
  nn::Sequential whole = make(devices[0]);
  const Variable x = input(devices[0]);
  const Variable y = whole(x);
  mean(multiply(y, y)).backward();
  trace::reset_collective_counts();
  std::vector<double> differences(devices.size());
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    ranks.set_default_plan(plan::AllReducePlan::ring);
    const auto part = parallel::tensor_parallel(make(device), ranks);
    const Variable x_here = input(device);
    const Variable y_here = (*part)(x_here);
    mean(multiply(y_here, y_here)).backward();
    differences[rank] = std::max(tutorial::max_abs_difference(y_here.value(), y.value()),
                                 tutorial::max_abs_difference(x_here.grad(), x.grad()));
  });
  const double sent = static_cast<double>(trace::collective_bytes_of(0));
  fmt::print("a GPT block with one of its 4 heads on each rank: each sends {:.1f} KiB\n",
             sent / 1024);
  tutorial::check_close("output and gradient are one device's",
                        *std::ranges::max_element(differences), 1e-5);
  tutorial::check("four all-reduces of its activations: two forward, two backward",
                  sent == all_reduced_bytes(shape.num_elements(), 4, devices.size()));
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(kMostDevices);
  tutorial::step(1, "a pair of matrices: first cut by outputs, then by inputs");
  cut_pair(devices);

  tutorial::step(2, "the other order: first by inputs");
  cut_inputs_first(devices);

  tutorial::step(3, "train a perceptron of two pairs");
  const double kib = compare_cuts(devices, options.fast ? 2 : 20);

  tutorial::step(4, "a GPT block: cut between its heads");
  cut_block(devices);

  tutorial::answer(
      fmt::format("The first matrix of a pair by its outputs, the second by its inputs, so that a "
                  "rank's hidden units stay with it. One all-reduce adds the parts of the output, "
                  "one those of the input's gradient: with 2 ranks and {} rows {:.0f} KiB a step "
                  "between two pairs.",
                  num_rows, kib),
      {{"--batch 256", "Four times the rows: is it still less to send than DDP's 167 KiB?"},
       {"--batch 16", "A quarter of the rows: which figures become a quarter, and which stay?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--batch", num_rows, 16, 1024, "rows per step");
  };
  constexpr const char* kQuestion =
      "How is a matrix cut over several devices, and what do they send each other?";
  return run_main(argc, argv, kQuestion, run,
                  {.num_devices = kMostDevices, .add_flags = add_flags});
}
