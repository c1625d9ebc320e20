#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

using Buckets = std::vector<Sizes>;

json hook_case(Buckets buckets, std::vector<Sizes> passes) {
  return json{{"buckets", std::move(buckets)}, {"passes", std::move(passes)}};
}

bool is_full(const Sizes& bucket, const std::set<std::size_t>& ready) {
  return std::ranges::all_of(bucket, [&](std::size_t p) { return ready.contains(p); });
}

// The buckets that each hook of a pass should launch, and those that finish() should.
std::vector<Sizes> expected_launches(const Buckets& buckets, const Sizes& pass) {
  std::vector<Sizes> launches;
  std::set<std::size_t> ready;
  std::size_t next = 0;
  for (const std::size_t parameter : pass) {
    ready.insert(parameter);
    Sizes now;
    while (next < buckets.size() && is_full(buckets[next], ready)) now.push_back(next++);
    launches.push_back(now);
  }
  Sizes rest;
  while (next < buckets.size()) rest.push_back(next++);
  launches.push_back(rest);
  return launches;
}

std::string judge_launches(const json& inputs, const json& answer) {
  const auto buckets = inputs.at("buckets").get<Buckets>();
  const auto passes = inputs.at("passes").get<std::vector<Sizes>>();
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const std::vector<Sizes> expected = expected_launches(buckets, passes[i]);
    const auto found = answer.at(i).get<std::vector<Sizes>>();
    for (std::size_t event = 0; event < expected.size(); ++event) {
      const std::string when =
          event == passes[i].size() ? "finish()" : fmt::format("on_ready({})", passes[i][event]);
      const std::string wrong =
          differ(fmt::format("pass {}: launched by {}", i, when), expected[event], found.at(event));
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

Sizes shuffled(lockstep::Rng& rng, std::size_t count) {
  Sizes order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

// Some parameters in buckets of one to four.
Buckets draw_buckets(lockstep::Rng& rng, std::size_t num_parameters) {
  Buckets buckets;
  std::size_t room = 0;
  for (std::size_t p = num_parameters; p-- > 0; --room) {
    if (room == 0) {
      buckets.emplace_back();
      room = draw_between(rng, 1, 4);
    }
    buckets.back().push_back(p);
  }
  return buckets;
}

}  // namespace

Lab hook_order_lab() {
  const Buckets two = {{3, 2}, {1, 0}};
  Lab lab{"09_hook_order", "The reducer's hooks: buckets are launched in order", {}};
  lab.checks = {
      visible("launched_when_the_last_gradient_is_ready", 15,
              "a bucket is full when none of its gradients is missing",
              hook_case(two, {{3, 2, 1, 0}}), judge_launches),
      visible("a_full_bucket_waits_for_the_one_before", 15,
              "bucket 1 may be full first; other ranks still launch bucket 0 first",
              hook_case(two, {{1, 0, 3, 2}}), judge_launches),
      visible("the_second_pass_begins_anew", 10,
              "begin_backward sets the counters and the next bucket back",
              hook_case(two, {{3, 2, 1, 0}, {0, 1, 2, 3}}), judge_launches),
      visible("finish_launches_what_is_left", 10,
              "an unused parameter's bucket never fills, and the other ranks wait for it",
              hook_case(two, {{3, 1, 0}, {}}), judge_launches),
      hidden(
          "drawn_orders", 30,
          "one hook may launch several buckets: those behind the one that has just filled", 5,
          [](lockstep::Rng& rng) {
            const std::size_t count = draw_between(rng, 6, 20);
            return hook_case(draw_buckets(rng, count),
                             {shuffled(rng, count), shuffled(rng, count)});
          },
          judge_launches),
      hidden(
          "drawn_unused_parameters", 20,
          "finish() goes on where on_ready() stopped, and launches no bucket twice", 5,
          [](lockstep::Rng& rng) {
            const std::size_t count = draw_between(rng, 8, 16);
            std::vector<Sizes> passes = {shuffled(rng, count), shuffled(rng, count),
                                         shuffled(rng, count)};
            passes[0].resize(draw_between(rng, 1, count - 1));
            passes[2].resize(draw_between(rng, 1, count - 1));
            return hook_case(draw_buckets(rng, count), passes);
          },
          judge_launches)};
  return lab;
}

}  // namespace lab
