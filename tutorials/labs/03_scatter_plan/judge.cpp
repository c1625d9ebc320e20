#include <fmt/format.h>

#include "engine/plan/scatter.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

json batch(std::size_t rows, std::size_t devices) {
  return json{{"rows", rows}, {"devices", devices}};
}

// Against the engine's own plan.
std::string judge_scatter(const json& inputs, const json& answer) {
  const std::size_t rows = inputs.at("rows");
  const std::size_t devices = inputs.at("devices");
  Sizes expected;
  for (const auto& part : lockstep::plan::scatter_plan(rows, devices).parts) {
    expected.insert(expected.end(), {part.offset, part.size});
  }
  Sizes found;
  for (const json& part : answer) found.insert(found.end(), {part.at(0), part.at(1)});
  return differ(fmt::format("{} rows on {} devices: offset and size of each part", rows, devices),
                expected, found);
}

Check fixed_batch(std::string name, int points, std::string hint, const json& inputs) {
  return {std::move(name),
          Shown::visible,
          points,
          std::move(hint),
          [inputs](lockstep::Rng&) { return std::vector<json>{inputs}; },
          judge_scatter};
}

}  // namespace

Lab scatter_plan_lab() {
  Lab lab{"03_scatter_plan", "The scatter plan: which rows each device gets", {}};
  lab.checks = {
      fixed_batch("even_parts", 10, "every part begins where the one before ends", batch(30, 3)),
      fixed_batch("the_last_part_is_smaller", 20,
                  "the last part ends at num_rows: its size is what is left, not always the chunk",
                  batch(10, 4)),
      fixed_batch(
          "idle_devices_get_no_part", 20,
          "10 rows on 8 devices are 5 parts of 2 rows: the chunk is rounded up, and no empty "
          "part is listed",
          batch(10, 8)),
      {"drawn_uneven_batches", Shown::hidden, 30,
       "round rows / devices up, in whole numbers: (rows + devices - 1) / devices",
       [](lockstep::Rng& rng) {
         std::vector<json> cases;
         for (int i = 0; i < 6; ++i) {
           const std::size_t devices = draw_between(rng, 3, 9);
           const std::size_t left = draw_between(rng, 1, devices - 1);
           cases.push_back(batch(devices * draw_between(rng, 10, 90) + left, devices));
         }
         return cases;
       },
       judge_scatter},
      {"more_devices_than_rows", Shown::hidden, 20,
       "with fewer rows than devices each part has one row, and the other devices stay idle",
       [](lockstep::Rng& rng) {
         const std::size_t rows = draw_between(rng, 2, 9);
         return std::vector<json>{batch(rows, rows + draw_between(rng, 1, 20)), batch(1, rows)};
       },
       judge_scatter}};
  return lab;
}

}  // namespace lab
