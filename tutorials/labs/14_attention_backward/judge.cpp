#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

constexpr double kStep = 1e-5;  // step of the central differences
constexpr double kTolerance = 1e-6;

using Matrix = std::vector<Numbers>;

Numbers softmax(Numbers row) {
  const double largest = *std::ranges::max_element(row);
  for (double& x : row) x = std::exp(x - largest);
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& x : row) x /= sum;
  return row;
}

double dot(const Numbers& a, const Numbers& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// [queries, keys, values].
using Head = std::array<Matrix, 3>;
constexpr std::array<const char*, 3> kParts = {"q", "k", "v"};

Head head_of(const json& inputs) {
  return {inputs.at("q").get<Matrix>(), inputs.at("k").get<Matrix>(), inputs.at("v").get<Matrix>()};
}

// The sum of attention's result times `grad`: a number whose derivatives are the gradients.
double weighted_result(const Head& head, const Matrix& grad) {
  const auto& [q, k, v] = head;
  double total = 0;
  for (std::size_t t = 0; t < q.size(); ++t) {
    Numbers scores;
    for (std::size_t s = 0; s <= t; ++s) {
      scores.push_back(dot(q[t], k[s]) / std::sqrt(static_cast<double>(q[t].size())));
    }
    const Numbers weights = softmax(scores);
    for (std::size_t s = 0; s <= t; ++s) total += weights[s] * dot(v[s], grad[t]);
  }
  return total;
}

// By central differences.
double derivative(double& x, const std::function<double()>& value) {
  const double before = x;
  x = before + kStep;
  const double above = value();
  x = before - kStep;
  const double below = value();
  x = before;
  return (above - below) / (2 * kStep);
}

// Names the usual mistake that a gradient shows, if it is one.
std::string fault_of(double expected, double found, double size) {
  const auto is_near = [](double a, double b) { return std::abs(a - b) < 1e-5 * std::abs(b); };
  if (size > 1 && is_near(found, expected * std::sqrt(size))) {
    return "; that lacks the factor 1 / sqrt(size), by which scores are smaller than q . k";
  }
  if (is_near(found, -expected)) return "; that has the wrong sign";
  return "";
}

std::string judge_part(const json& inputs, const json& answer, std::size_t part) {
  Head head = head_of(inputs);
  const Matrix grad = inputs.at("grads").back().get<Matrix>();
  const Matrix found = answer.at(kParts[part]).get<Matrix>();
  Matrix& values = head[part];
  if (found.size() != values.size()) {
    return fmt::format("gradient of {}: expected {} rows, found {}", kParts[part], values.size(),
                       found.size());
  }
  for (std::size_t t = 0; t < values.size(); ++t) {
    Numbers expected;
    for (double& x : values[t]) {
      expected.push_back(derivative(x, [&] { return weighted_result(head, grad); }));
    }
    const std::string wrong =
        differ(fmt::format("gradient of {}, position {} of {}", kParts[part], t, values.size()),
               expected, found[t], kTolerance);
    if (wrong.empty()) continue;
    const std::size_t first = static_cast<std::size_t>(
        std::ranges::mismatch(expected, found[t],
                              [](double a, double b) {
                                return std::abs(a - b) <= kTolerance * std::max(1.0, std::abs(a));
                              })
            .in1 -
        expected.begin());
    if (first >= expected.size() || first >= found[t].size()) return wrong;
    return wrong + fault_of(expected[first], found[t][first], static_cast<double>(expected.size()));
  }
  return {};
}

std::string judge_values(const json& inputs, const json& answer) {
  return judge_part(inputs, answer, 2);
}

std::string judge_queries_and_keys(const json& inputs, const json& answer) {
  const std::string wrong = judge_part(inputs, answer, 0);
  return wrong.empty() ? judge_part(inputs, answer, 1) : wrong;
}

std::string judge_all(const json& inputs, const json& answer) {
  for (std::size_t part = 0; part < kParts.size(); ++part) {
    const std::string wrong = judge_part(inputs, answer, part);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string judge_softmax(const json& inputs, const json& answer) {
  const Numbers grad = inputs.at("grad_weights").get<Numbers>();
  Numbers scores = inputs.at("weights").get<Numbers>();
  for (double& x : scores) x = std::log(x);
  Numbers expected;
  for (double& x : scores) {
    expected.push_back(derivative(x, [&] { return dot(softmax(scores), grad); }));
  }
  return differ("gradient of the scores", expected, answer.at("scores").get<Numbers>(), kTolerance);
}

json draw_row(lockstep::Rng& rng, std::size_t length) {
  return {{"weights", softmax(draw_numbers(rng, length))},
          {"grad_weights", draw_numbers(rng, length)}};
}

json draw_head(lockstep::Rng& rng, std::size_t length, std::size_t size, int num_grads = 1) {
  json inputs{{"grads", json::array()}};
  for (const char* part : kParts) inputs[part] = draw_matrix(rng, length, size);
  for (int i = 0; i < num_grads; ++i) inputs["grads"].push_back(draw_matrix(rng, length, size));
  return inputs;
}

// Draws a head of any size. num_grads: how many gradients it is asked for in turn.
auto drawn(int num_grads) {
  return [num_grads](lockstep::Rng& rng) {
    const std::size_t length = draw_between(rng, 2, 8);
    return draw_head(rng, length, draw_between(rng, 2, 6), num_grads);
  };
}

}  // namespace

Lab attention_backward_lab() {
  Lab lab{"14_attention_backward", "The backward of attention: queries, keys and values", {}};
  lab.checks = {
      {"softmax_of_a_row", Shown::visible, 15,
       "a larger score takes from all other weights: subtract the mean of their gradients, by the "
       "weights",
       [](lockstep::Rng& rng) { return std::vector<json>{draw_row(rng, 4)}; }, judge_softmax},
      {"values_of_three_positions", Shown::visible, 10,
       "v[s] goes into the result of every position t >= s, times its weight there: add",
       [](lockstep::Rng& rng) { return std::vector<json>{draw_head(rng, 3, 2)}; }, judge_values},
      {"queries_and_keys", Shown::visible, 15,
       "score = q[t] . k[s] / sqrt(size): its derivative by q[t] is k[s] / sqrt(size)",
       [](lockstep::Rng& rng) { return std::vector<json>{draw_head(rng, 3, 2)}; },
       judge_queries_and_keys},
      {"the_first_position_sees_itself_only", Shown::visible, 10,
       "only positions 0 ... t get a gradient from position t",
       [](lockstep::Rng& rng) {
         json inputs = draw_head(rng, 3, 2);
         for (std::size_t t = 1; t < 3; ++t) inputs["grads"][0][t] = {0, 0};
         return std::vector<json>{inputs};
       },
       judge_all},
      hidden("drawn_heads", 30, "a head's size and its number of positions differ", 4, drawn(1),
             judge_all),
      hidden("called_twice", 20, "start each call with gradients of 0", 4, drawn(2), judge_all)};
  return lab;
}

}  // namespace lab
