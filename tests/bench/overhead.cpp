// Measures the engine's cost besides arithmetic, in nanoseconds, one per line:
//   op           forward and backward of one operation on one number
//   span_off     one trace span while nothing records
//   spans        spans that one training step of mlp:784-256-128-10 opens
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "engine/trace/recorder.h"
#include "engine/trace/span.h"

namespace {

using namespace lockstep;

// The least time of many runs of `count` repetitions, per repetition.
template <typename Run>
double least_nanoseconds(int count, const Run& run) {
  double least = 1e300;
  for (int round = 0; round < 200; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    least = std::min(least, spent.count());
  }
  return least / count;
}

double measure_op() {
  constexpr int kOps = 1000;
  const Variable x(Tensor::full({1}, 1.0), RequiresGrad::yes);
  return least_nanoseconds(kOps, [&] {
    Variable y = x;
    for (int i = 0; i < kOps; ++i) y = scale(y, 1.0);
    y.backward();
  });
}

double measure_span() {
  constexpr int kSpans = 100000;
  // volatile, so that the loop is not optimised away; its own cost is measured and subtracted.
  volatile int sink = 0;
  const double with = least_nanoseconds(kSpans, [&] {
    for (int i = 0; i < kSpans; ++i) {
      trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "nothing");
      sink = i;
    }
  });
  const double without = least_nanoseconds(kSpans, [&] {
    for (int i = 0; i < kSpans; ++i) sink = i;
  });
  return std::max(0.0, with - without);
}

std::size_t count_spans() {
  const auto model = nn::make_mlp("mlp:784-256-128-10", 0);
  optim::Sgd optimizer(model->parameters(), {});
  const Variable x(Tensor::zeros({64, 784}));
  const Tensor labels = Tensor::zeros({64}, DType::int64);
  trace::start();
  cross_entropy((*model)(x), labels).backward();
  optimizer.step();
  trace::stop();
  return trace::collect().spans.size();
}

}  // namespace

int main() {
  fmt::print("op {:.1f}\nspan_off {:.3f}\nspans {}\n", measure_op(), measure_span(), count_spans());
}
