#include <fmt/format.h>

#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

json replicas(std::vector<json> factors) {
  std::size_t size = 0;
  for (const json& factor : factors) {
    if (!factor.is_null()) size = factor.size();
  }
  return json{{"parameter", Numbers(size, 1)}, {"factors", std::move(factors)}};
}

// The sum in the order of the devices, which is also the order of its roundings.
std::string judge_gradient(const json& inputs, const json& answer) {
  Numbers sum(inputs.at("parameter").size());
  for (const json& factor : inputs.at("factors")) {
    if (factor.is_null()) continue;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor.at(i).get<double>();
  }
  return differ("gradient of the parameter", sum, answer.at("grad").get<Numbers>());
}

std::string judge_gradient_and_others(const json& inputs, const json& answer) {
  const std::string wrong = judge_gradient(inputs, answer);
  if (!wrong.empty()) return wrong;
  if (answer.at("device") != "cpu:0") {
    return fmt::format("the gradient is on {}, expected on cpu:0", answer.at("device").dump());
  }
  const json& factors = inputs.at("factors");
  for (std::size_t d = 0; d < factors.size(); ++d) {
    const std::string changed =
        differ(fmt::format("grad_outputs[{}] after backward", d), factors[d].get<Numbers>(),
               answer.at("factors").at(d).get<Numbers>());
    if (!changed.empty()) return changed;
  }
  return {};
}

}  // namespace

Lab replicate_backward_lab() {
  Lab lab{"04_replicate_backward", "Replicate's backward: gradients of all copies, summed", {}};
  lab.checks = {
      visible("two_devices", 20, "the gradients of the copies are added, not averaged",
              replicas({{1, 2, 3}, {10, 20, 30}}), judge_gradient),
      visible("a_copy_that_was_not_used", 20,
              "an undefined gradient counts as zero: skip it, also if it is the first",
              replicas({nullptr, {1, 2, 3}, {10, 20, 30}}), judge_gradient),
      visible("one_device", 10, "with one device the gradient is that of its copy",
              replicas({{1, 2, 3}}), judge_gradient),
      hidden(
          "drawn_devices", 20, "the loop goes over all of grad_outputs", 3,
          [](lockstep::Rng& rng) {
            const std::size_t size = draw_between(rng, 2, 20);
            std::vector<json> factors;
            for (std::size_t d = draw_between(rng, 3, 8); d > 0; --d) {
              factors.push_back(draw_whole_numbers(rng, size));
            }
            return replicas(std::move(factors));
          },
          judge_gradient),
      {"added_in_the_order_of_the_devices", Shown::hidden, 15,
       "floating-point addition depends on the order: add device 0's gradient first, then 1's, ...",
       [](lockstep::Rng& rng) {
         const double big = 1e16 * static_cast<double>(draw_between(rng, 1, 9));
         const Numbers small = draw_numbers(rng, 3);
         return std::vector<json>{
             replicas({Numbers(3, big), small, Numbers(3, -big), Numbers(3, 0.5)}),
             replicas({small, Numbers(3, big), Numbers(3, -big)})};
       },
       judge_gradient},
      hidden(
          "others_keep_their_gradients", 15,
          "what is in grad_outputs may be another node's gradient as well: add into a copy, on "
          "device()",
          1,
          [](lockstep::Rng& rng) {
            const std::size_t size = draw_between(rng, 2, 9);
            return replicas({draw_whole_numbers(rng, size), draw_whole_numbers(rng, size),
                             draw_whole_numbers(rng, size)});
          },
          judge_gradient_and_others)};
  return lab;
}

}  // namespace lab
