#include <fmt/format.h>

#include "engine/data/sampler.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

using lockstep::data::DropLast;
using lockstep::data::Shuffle;

struct SamplerCase {
  std::size_t samples = 10;
  std::size_t ranks = 4;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  Shuffle shuffle = Shuffle::off;
  DropLast drop_last = DropLast::off;
};

json to_inputs(const SamplerCase& c) {
  return json{{"samples", c.samples},
              {"ranks", c.ranks},
              {"seed", c.seed},
              {"epoch", c.epoch},
              {"shuffle", c.shuffle == Shuffle::on},
              {"drop_last", c.drop_last == DropLast::on}};
}

// Against the engine's own sampler.
std::string judge_rows(const json& inputs, const json& answer) {
  const std::size_t ranks = inputs.at("ranks");
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Sizes expected = lockstep::data::distributed_sampler(
        inputs.at("samples"), ranks, rank, inputs.at("seed"), inputs.at("epoch"),
        inputs.at("shuffle") ? Shuffle::on : Shuffle::off,
        inputs.at("drop_last") ? DropLast::on : DropLast::off);
    const std::string wrong =
        differ(fmt::format("{} rows, epoch {}: rank {} of {}", inputs.at("samples").dump(),
                           inputs.at("epoch").dump(), rank, ranks),
               expected, answer.at(rank).get<Sizes>());
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// One of the functions alone; rows_of_rank gets the rows in their own order.
json sampler_call(const char* function, const SamplerCase& c) {
  json inputs = to_inputs(c);
  inputs["call"] = function;
  return inputs;
}

// An epoch's order is what the engine gives a single rank.
std::string judge_order(const json& inputs, const json& answer) {
  const Sizes expected = lockstep::data::distributed_sampler(
      inputs.at("samples"), 1, 0, inputs.at("seed"), inputs.at("epoch"),
      inputs.at("shuffle") ? Shuffle::on : Shuffle::off, DropLast::off);
  return differ(fmt::format("order of {} rows in epoch {}", inputs.at("samples").dump(),
                            inputs.at("epoch").dump()),
                expected, answer.at(0).get<Sizes>());
}

SamplerCase draw_sampler(lockstep::Rng& rng, Shuffle shuffle, DropLast drop_last) {
  SamplerCase c{draw_between(rng, 20, 90),
                draw_between(rng, 2, 9),
                rng.below(1000),
                draw_between(rng, 1, 50),
                shuffle,
                drop_last};
  if (c.samples % c.ranks == 0) ++c.samples;
  return c;
}

}  // namespace

Lab distributed_sampler_lab() {
  Lab lab{"10_distributed_sampler", "DistributedSampler: which rows each rank gets", {}};
  lab.checks = {
      visible("even_rows", 10, "rank r takes places r, r + n, r + 2n: cards dealt one by one",
              sampler_call("rows_of_rank", {.samples = 8, .ranks = 4}), judge_rows),
      visible("uneven_rows_begin_again", 15,
              "every rank has as many rows, or the last step hangs: wrap around to the start",
              std::vector<json>{sampler_call("rows_of_rank", {.samples = 10, .ranks = 4}),
                                sampler_call("rows_of_rank", {.samples = 3, .ranks = 8})},
              judge_rows),
      visible("drop_last", 10, "with DropLast::yes the length is rounded down",
              sampler_call("rows_of_rank", {.samples = 10, .ranks = 4, .drop_last = DropLast::on}),
              judge_rows),
      visible("the_order_of_an_epoch", 15, "shuffle by seed + epoch, and only with Shuffle::yes",
              std::vector<json>{
                  sampler_call("epoch_order", {.samples = 6}),
                  sampler_call("epoch_order",
                               {.samples = 12, .seed = 7, .epoch = 2, .shuffle = Shuffle::on})},
              judge_order),
      hidden(
          "drawn_epochs", 30,
          "without the epoch in the seed, every epoch has the same order: what forgetting "
          "set_epoch "
          "does",
          4,
          [](lockstep::Rng& rng) {
            return to_inputs(draw_sampler(rng, Shuffle::on, DropLast::off));
          },
          judge_rows),
      hidden(
          "drawn_dropped_rows", 20, "what is dropped is the end of the order after it was shuffled",
          4,
          [](lockstep::Rng&
                 rng) { return to_inputs(draw_sampler(rng, Shuffle::on, DropLast::on)); },
          judge_rows)};
  return lab;
}

}  // namespace lab
