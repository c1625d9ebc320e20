#include "tools/check/rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace lockstep::tools::rules {
namespace {

// Philox4x32-10: one block of four words for a counter and a key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> x, std::uint64_t key) {
  std::array<std::uint32_t, 2> k{static_cast<std::uint32_t>(key),
                                 static_cast<std::uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = 0xD2511F53ull * x[0];
    const std::uint64_t right = 0xCD9E8D57ull * x[2];
    x = {static_cast<std::uint32_t>(right >> 32) ^ x[1] ^ k[0], static_cast<std::uint32_t>(right),
         static_cast<std::uint32_t>(left >> 32) ^ x[3] ^ k[1], static_cast<std::uint32_t>(left)};
    k[0] += 0x9E3779B9u;  // the golden ratio
    k[1] += 0xBB67AE85u;  // the root of 3, less 1
  }
  return x;
}

// The numbers of one key and stream: two of 64 bits in each block.
class Draws {
 public:
  explicit Draws(std::uint64_t key, std::uint64_t stream = 0) : key_(key), stream_(stream) {}

  // Uniform below the bound: the first 2^64 mod bound numbers are drawn again.
  std::uint64_t below(std::uint64_t bound) {
    constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t first = (kLargest % bound + 1) % bound;
    std::uint64_t number = next();
    while (number < first) number = next();
    return number % bound;
  }

 private:
  std::uint64_t next() {
    const std::uint64_t index = count_ / 2;
    const auto word = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits); };
    const auto block =
        philox({word(index), word(index >> 32), word(stream_), word(stream_ >> 32)}, key_);
    const std::size_t half = 2 * (count_++ % 2);
    return std::uint64_t{block[half]} << 32 | block[half + 1];
  }

  std::uint64_t key_;
  std::uint64_t stream_;
  std::uint64_t count_ = 0;
};

Sum operator+(const Sum& a, const Sum& b) {
  return {a.value + b.value, a.size + b.size};
}

Sum operator*(double factor, const Sum& sum) {
  return {factor * sum.value, std::abs(factor) * sum.size};
}

struct Limits {
  double epsilon;
  double smallest;  // normal number
  double largest;
};

template <typename T>
constexpr Limits kLimits{std::numeric_limits<T>::epsilon(), std::numeric_limits<T>::min(),
                         std::numeric_limits<T>::max()};

const Limits& limits_of(DType dtype) {
  return dtype == DType::float64 ? kLimits<double> : kLimits<float>;
}

Element sgd(const OptimizerSettings& settings, const Step& step, const Element& before,
            const Sum& gradient) {
  const double mu = settings.momentum;
  const Sum g = gradient + step.weight_decay * before.weight;
  const Sum b = step.number == 0 ? g : mu * before.kept[0] + g;
  const bool is_nesterov = settings.momentum_kind == optim::SgdOptions::Kind::nesterov;
  return {before.weight + -step.learning_rate * (is_nesterov ? g + mu * b : b), {b, {}}};
}

Element adamw(const Step& step, const Element& before, const Sum& gradient) {
  constexpr double kBeta1 = 0.9;
  constexpr double kBeta2 = 0.999;
  constexpr double kEpsilon = 1e-8;
  const double rate = step.learning_rate;
  const auto t = static_cast<double>(step.number + 1);
  const Sum m = kBeta1 * before.kept[0] + (1 - kBeta1) * gradient;
  const Sum v =
      kBeta2 * before.kept[1] + (1 - kBeta2) * held(gradient.value * gradient.value, step.dtype);
  const double left = std::pow(kBeta2, t);
  const double denominator = std::sqrt(v.value / (1 - left)) + kEpsilon;
  // 1 - beta^t cancels in the first steps, for which both sides compute it in float64.
  const Limits& limits = limits_of(step.dtype);
  const double cancelled = kLimits<double>.epsilon / limits.epsilon / (1 - left);
  Sum change = rate / (1 - std::pow(kBeta1, t)) / denominator * m;
  change.size *= 1 + cancelled;
  if (v.size > limits.largest) change.size = std::numeric_limits<double>::infinity();
  return {(1 - rate * step.weight_decay) * before.weight + -1 * change, {m, v}};
}

}  // namespace

double learning_rate(const OptimizerSettings& settings, std::size_t step) {
  const optim::Schedule& schedule = settings.schedule;
  const double base = settings.learning_rate;
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (step < schedule.warmup_steps) {
    const double start = 1 / warmup;
    const double steps_to_go = warmup - 1 - static_cast<double>(step);
    return base * (1 - (1 - start) * (warmup == 1 ? 0 : steps_to_go / (warmup - 1)));
  }
  const auto t = static_cast<double>(step) - warmup;
  switch (schedule.kind) {
    case optim::Schedule::Kind::constant:
      return base;
    case optim::Schedule::Kind::step:
      return base *
             std::pow(schedule.gamma, std::floor(t / static_cast<double>(schedule.step_size)));
    case optim::Schedule::Kind::cosine:
      break;
  }
  const double length = static_cast<double>(schedule.num_steps) - warmup;
  if (t >= length) return schedule.last * base;
  const double half_cosine = (1 + std::cos(std::numbers::pi * t / length)) / 2;
  return base * (schedule.last + (1 - schedule.last) * half_cosine);
}

std::vector<std::size_t> epoch_order(const TrainingTask& task, std::uint64_t epoch) {
  const data::LabelledRows& rows = task.data->train;
  const std::uint64_t key = task.seed + epoch;
  const bool is_shuffled = task.shuffle == data::Shuffle::on;
  std::vector<std::size_t> order(rows.num_rows());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (rows.is_text()) {
    const std::size_t length = rows.labels_per_row();
    const std::size_t num_starts = rows.tokens.size() - length;
    for (std::size_t& row : order) {
      row = is_shuffled ? Draws(key, row).below(num_starts) : row * length;
    }
  } else if (is_shuffled) {
    Draws draws(key);
    for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[draws.below(i + 1)]);
  }
  return order;
}

double weight_decay(const OptimizerSettings& settings, const Shape& parameter) {
  const bool has_groups = settings.decays == OptimizerSettings::Decays::matrices;
  return has_groups && parameter.num_dims() < 2 ? 0 : settings.weight_decay;
}

double clip_factor(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

Sum held(double value, DType dtype) {
  const Limits& limits = limits_of(dtype);
  return {value, std::abs(value) + limits.smallest / limits.epsilon};
}

Element updated(const OptimizerSettings& settings, const Step& step, const Element& before,
                const Sum& gradient) {
  return settings.kind == OptimizerKind::adamw ? adamw(step, before, gradient)
                                               : sgd(settings, step, before, gradient);
}

bool is_rounded(double found, const Sum& expected, DType dtype) {
  constexpr double kRoundings = 8;
  const Limits& limits = limits_of(dtype);
  if (!(expected.size <= limits.largest)) return true;
  return std::abs(found - expected.value) <= kRoundings * limits.epsilon * expected.size;
}

}  // namespace lockstep::tools::rules
