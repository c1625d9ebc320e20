#include <fmt/format.h>

#include <algorithm>

#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

constexpr std::size_t kElementBytes = 4;

json bucket_case(Sizes num_bytes, Sizes byte_limits) {
  return json{{"num_bytes", std::move(num_bytes)}, {"byte_limits", std::move(byte_limits)}};
}

json draw_bucket_case(lockstep::Rng& rng, Sizes byte_limits) {
  Sizes num_bytes(draw_between(rng, 8, 30));
  for (std::size_t& size : num_bytes) size = kElementBytes * draw_between(rng, 1, 100);
  return bucket_case(std::move(num_bytes), std::move(byte_limits));
}

// Names the first fault of a plan; empty: there is none, and then it is the engine's own plan.
std::string find_fault(const Sizes& num_bytes, const Sizes& limits,
                       const std::vector<Sizes>& buckets) {
  std::size_t next = num_bytes.size();  // all parameters from here on are in buckets
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::size_t limit = limits[std::min(b, limits.size() - 1)];
    std::size_t held = 0;
    if (buckets[b].empty()) return fmt::format("bucket {} is empty", b);
    for (const std::size_t p : buckets[b]) {
      if (p >= num_bytes.size()) {
        return fmt::format("bucket {} holds parameter {}, and there are {}", b, p,
                           num_bytes.size());
      }
      if (p + 1 != next) {
        const auto expected = next == 0 ? "none is left" : fmt::format("expected {}", next - 1);
        return fmt::format("parameter {} enters bucket {} out of turn: {}", p, b, expected);
      }
      if (held >= limit) {
        return fmt::format(
            "bucket {} closes too late: it holds {} bytes, its limit is {}, and parameter {} still "
            "enters",
            b, held, limit, p);
      }
      held += num_bytes[p];
      next = p;
    }
    const bool is_last = next == 0;
    if (held < limit && !is_last) {
      return fmt::format("bucket {} closes too early: it holds {} bytes, and its limit is {}", b,
                         held, limit);
    }
  }
  if (next > 0)
    return next == 1 ? "parameter 0 is in no bucket"
                     : fmt::format("parameters 0 to {} are in no bucket", next - 1);
  return {};
}

std::string judge_buckets(const json& inputs, const json& answer) {
  return find_fault(inputs.at("num_bytes").get<Sizes>(), inputs.at("byte_limits").get<Sizes>(),
                    answer.get<std::vector<Sizes>>());
}

}  // namespace

Lab bucket_plan_lab() {
  Lab lab{"08_bucket_plan", "The bucket plan: which gradients travel together", {}};
  lab.checks = {visible("last_parameter_first", 15,
                        "backward goes from the last layer to the first, so the last parameter's "
                        "gradient is ready first",
                        bucket_case({100, 100, 100, 100}, {200}), judge_buckets),
                visible("closes_when_the_limit_is_reached", 15,
                        "the parameter with which a bucket reaches its limit still belongs to it",
                        bucket_case({40, 80, 120, 60}, {100}), judge_buckets),
                visible("what_is_left_is_a_bucket", 10,
                        "the parameters of an open bucket are all-reduced too, at the end",
                        bucket_case({8, 8, 8, 400}, {100}), judge_buckets),
                visible("the_first_limit_is_the_first_buckets", 10,
                        "bucket b has byte_limits[b], and the last limit when there are no more",
                        bucket_case({40, 40, 40, 40, 40, 40, 40}, {40, 80}), judge_buckets),
                hidden(
                    "drawn_models", 30, "forget the bytes of a bucket when it closes", 4,
                    [](lockstep::Rng& rng) {
                      return draw_bucket_case(rng, {kElementBytes * draw_between(rng, 40, 300)});
                    },
                    judge_buckets),
                hidden(
                    "drawn_limits", 20,
                    "the limit belongs to the number of the bucket, not to the parameter's", 4,
                    [](lockstep::Rng& rng) {
                      return draw_bucket_case(
                          rng, {4 * draw_between(rng, 1, 50), 4 * draw_between(rng, 100, 200),
                                4 * draw_between(rng, 60, 400)});
                    },
                    judge_buckets)};
  return lab;
}

}  // namespace lab
