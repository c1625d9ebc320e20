#include <fmt/format.h>

#include "engine/autograd/ops/ops.h"
#include "tutorials/labs/host/tensors.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

struct AccumulationSizes {
  std::size_t ranks = 2;
  std::size_t micro_batches = 3;
  std::size_t rows = 2;
  std::size_t in = 3;
  std::size_t out = 2;
  int steps = 1;
};

json draw_accumulation(lockstep::Rng& rng, const AccumulationSizes& sizes) {
  json inputs{{"weight", draw_matrix(rng, sizes.out, sizes.in)},
              {"bias", draw_numbers(rng, sizes.out)},
              {"ranks", json::array()},
              {"steps", sizes.steps}};
  for (std::size_t rank = 0; rank < sizes.ranks; ++rank) {
    json list = json::array();
    for (std::size_t i = 0; i < sizes.micro_batches; ++i) {
      list.push_back({{"x", draw_matrix(rng, sizes.rows, sizes.in)},
                      {"target", draw_matrix(rng, sizes.rows, sizes.out)}});
    }
    inputs["ranks"].push_back(list);
  }
  return inputs;
}

// One device's gradients from all rows.
struct MeanGradients {
  Numbers weight;
  Numbers bias;
};

MeanGradients single_device(const json& inputs) {
  const lockstep::Variable weight = leaf(matrix_of(inputs.at("weight")));
  const lockstep::Variable bias = leaf(vector_of(inputs.at("bias")));
  const json& ranks = inputs.at("ranks");
  const double mean = 1.0 / static_cast<double>(ranks.at(0).size());
  const double factor = inputs.value("weight_of_loss", mean) / static_cast<double>(ranks.size());
  for (const json& micro_batches : ranks) {
    for (const json& micro : micro_batches) {
      const lockstep::Variable x(matrix_of(micro.at("x")));
      const lockstep::Variable y = lockstep::linear(x, weight, bias);
      const lockstep::Variable loss = lockstep::mse_loss(y, matrix_of(micro.at("target")));
      lockstep::scale(loss, factor).backward();
    }
  }
  return {weight.grad().to_vector<double>(), bias.grad().to_vector<double>()};
}

std::string judge_accumulated(const json& inputs, const json& answer) {
  const MeanGradients expected = single_device(inputs);
  for (std::size_t rank = 0; rank < inputs.at("ranks").size(); ++rank) {
    const json& found = answer.at(rank);
    const std::string what = fmt::format("rank {}, gradient of the ", rank);
    std::string wrong =
        differ(what + "weight", expected.weight, found.at("weight").get<Numbers>(), 1e-9);
    if (wrong.empty()) {
      wrong = differ(what + "bias", expected.bias, found.at("bias").get<Numbers>(), 1e-9);
    }
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// The model is small: one bucket, so one all-reduce in a synchronised backward pass.
std::string judge_all_reduces(const json& inputs, const json& answer) {
  const std::string wrong = judge_accumulated(inputs, answer);
  if (!wrong.empty()) return wrong;
  for (std::size_t rank = 0; rank < answer.size(); ++rank) {
    const std::size_t found = answer.at(rank).at("all_reduces");
    if (found != 1) {
      return fmt::format("{} micro-batches: rank {} took part in {} all-reduces, expected 1",
                         inputs.at("ranks").at(0).size(), rank, found);
    }
  }
  return {};
}

}  // namespace

Lab no_sync_lab() {
  Lab lab{"11_no_sync", "no_sync: several backward passes, one all-reduce", {}};
  lab.checks = {
      {"one_backward_pass_is_weighed", Shown::visible, 10,
       "scale the loss before its backward: a loss of weight 1/4 has a quarter of the gradient",
       [](lockstep::Rng& rng) {
         json inputs = draw_accumulation(rng, {.micro_batches = 1});
         inputs["weight_of_loss"] = 0.25;
         return std::vector<json>{inputs};
       },
       judge_accumulated},
      {"one_micro_batch", Shown::visible, 5,
       "the last micro-batch is synchronised, also when it is the only one",
       [](lockstep::Rng& rng) {
         return std::vector<json>{draw_accumulation(rng, {.micro_batches = 1})};
       },
       judge_all_reduces},
      {"three_micro_batches_make_the_mean", Shown::visible, 15,
       "three losses of weight 1/3 add up to the mean; of weight 1 they make three times of it",
       [](lockstep::Rng& rng) { return std::vector<json>{draw_accumulation(rng, {})}; },
       judge_accumulated},
      {"one_all_reduce", Shown::visible, 20, "only the last pass is outside of no_sync",
       [](lockstep::Rng& rng) {
         return std::vector<json>{draw_accumulation(rng, {.micro_batches = 4})};
       },
       judge_all_reduces},
      hidden(
          "drawn_micro_batches", 30,
          "the model's own forward, not its module's, says whether its backward is synchronised", 3,
          [](lockstep::Rng& rng) {
            return draw_accumulation(
                rng, {draw_between(rng, 2, 4), draw_between(rng, 2, 6), draw_between(rng, 1, 5),
                      draw_between(rng, 2, 6), draw_between(rng, 2, 6), 1});
          },
          judge_accumulated),
      hidden(
          "step_after_step", 20,
          "what one step leaves behind, such as a switch that stays off, spoils the next one", 1,
          [](lockstep::Rng& rng) {
            return draw_accumulation(rng, {.micro_batches = draw_between(rng, 2, 5), .steps = 3});
          },
          judge_all_reduces)};
  return lab;
}

}  // namespace lab
