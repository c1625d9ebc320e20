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
  return differ(fmt::format("{} on {}: offset and size of each part", counted(rows, "row"),
                            counted(devices, "device")),
                expected, found);
}

}  // namespace

Lab scatter_plan_lab() {
  Lab lab{"03_scatter_plan", "The scatter plan: which rows each device gets", {}};
  lab.checks = {
      visible("even_parts", 10, "every part begins where the one before ends", batch(30, 3),
              judge_scatter),
      visible("the_last_part_is_smaller", 20,
              "the last part ends at num_rows: its size is what is left, not always the chunk",
              batch(10, 4), judge_scatter),
      visible("idle_devices_get_no_part", 20,
              "10 rows on 8 devices are 5 parts of 2 rows: the chunk is rounded up, and no empty "
              "part is listed",
              batch(10, 8), judge_scatter),
      hidden(
          "drawn_uneven_batches", 30,
          "round rows / devices up, in whole numbers: (rows + devices - 1) / devices", 6,
          [](lockstep::Rng& rng) {
            const std::size_t devices = draw_between(rng, 3, 9);
            const std::size_t left = draw_between(rng, 1, devices - 1);
            return batch(devices * draw_between(rng, 10, 90) + left, devices);
          },
          judge_scatter),
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
