#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/comm/link.h"
#include "engine/comm/thread_group.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

struct LinkCase {
  std::size_t ranks = 4;
  double bytes = 1e6;
  double latency = 50e-6;
  double bandwidth = 1e9;
};

json to_inputs(const char* call, const LinkCase& c) {
  return json{{"call", call},
              {"ranks", c.ranks},
              {"bytes", c.bytes},
              {"latency", c.latency},
              {"bandwidth", c.bandwidth}};
}

LinkCase draw_link(lockstep::Rng& rng) {
  return {draw_between(rng, 3, 64), rng.uniform(1e3, 1e9), rng.uniform(1e-6, 1e-3),
          rng.uniform(1e8, 1e11)};
}

// The model: what each of the functions should say.
double modelled(const json& inputs) {
  const double n = inputs.at("ranks");
  const double latency = inputs.at("latency");
  const double bandwidth = inputs.at("bandwidth");
  const double whole = inputs.at("bytes").get<double>() / bandwidth;
  const std::string call = inputs.at("call");
  if (call == "ring") return 2 * (n - 1) * (latency + whole / n);
  if (call == "naive") return 2 * latency + 2 * (n - 1) * whole;
  return latency * bandwidth * n * (n - 2) / ((n - 1) * (n - 1));
}

// Relative to what is expected, which may be microseconds.
std::string judge_close(const std::string& what, double expected, double found, double tolerance) {
  if (std::abs(found - expected) <= tolerance * std::abs(expected)) return {};
  return fmt::format("{}: expected {:.6g}, found {:.6g}", what, expected, found);
}

std::string judge_model(const json& inputs, const json& answer) {
  const std::string call = inputs.at("call");
  const std::string unit = call == "break_even" ? "bytes" : "seconds";
  return judge_close(fmt::format("{} ranks, {}_{}", inputs.at("ranks").dump(), call, unit),
                     modelled(inputs), answer.get<double>(), 1e-9);
}

// One all-reduce by the ring plan over a modelled link, on this machine's clock: until every rank
// has the sum.
double acted_out_seconds(const json& inputs) {
  using Clock = std::chrono::steady_clock;
  lockstep::comm::ThreadGroupOptions options;
  options.links = lockstep::comm::fixed_links(
      lockstep::comm::LinkSpec{inputs.at("latency"), inputs.at("bandwidth")});
  options.default_plan = lockstep::plan::AllReducePlan::ring;
  const auto num_elements = static_cast<std::size_t>(inputs.at("bytes").get<double>()) / 4;
  std::vector<double> seconds(inputs.at("ranks").get<std::size_t>());
  const auto all_reduce = [&](lockstep::comm::Communicator& group) {
    const lockstep::Tensor buffer = lockstep::Tensor::full({num_elements}, 1);
    group.barrier();
    const Clock::time_point start = Clock::now();
    group.all_reduce(buffer);
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    seconds[static_cast<std::size_t>(group.rank())] = elapsed.count();
  };
  lockstep::comm::run_ranks(static_cast<int>(seconds.size()), all_reduce, options);
  return *std::ranges::max_element(seconds);
}

// The fastest of some runs: nothing arrives before its time, but a busy machine can be late. Where
// it is late in all of them, the model stands for the clock, so that the verdict is the same.
std::string judge_slow_motion(const json& inputs, const json& answer) {
  const double announcement = inputs.at("latency");  // ranks compare their calls before data moves
  const double model = modelled(inputs) + announcement;
  double fastest = acted_out_seconds(inputs);
  for (int run = 1; run < 4 && fastest > 1.05 * model; ++run) {
    fastest = std::min(fastest, acted_out_seconds(inputs));
  }
  if (fastest > 1.05 * model) fastest = model;
  return judge_close(fmt::format("{} ranks acted out, seconds without the announcement of the call",
                                 inputs.at("ranks").dump()),
                     fastest - announcement, answer.get<double>(), 0.1);
}

// Draws inputs for one of the functions.
auto drawn(const char* call) {
  return [call](lockstep::Rng& rng) { return to_inputs(call, draw_link(rng)); };
}

}  // namespace

Lab alpha_beta_lab() {
  Lab lab{"12_alpha_beta", "An alpha-beta model of the ring, beside slow motion", {}};
  lab.checks = {visible("ring_of_four", 10, "in each of 2 (n-1) steps a rank sends num_bytes / n",
                        to_inputs("ring", {}), judge_model),
                visible("naive_of_four", 10,
                        "rank 0's port takes n-1 buffers in, then n-1 out; latencies overlap",
                        to_inputs("naive", {}), judge_model),
                visible("break_even_of_four", 10,
                        "both sides have a part that grows with num_bytes, and one that does not",
                        to_inputs("break_even", {}), judge_model),
                visible("a_ring_acted_out", 20,
                        "every step waits for the one before, so latencies add up: 2 (n-1) of them",
                        to_inputs("ring", {3, 120e3, 20e-3, 4e6}), judge_slow_motion),
                hidden("drawn_rings_in_seconds", 15, "num_bytes / n per step, not num_bytes", 5,
                       drawn("ring"), judge_model),
                hidden("drawn_naive_seconds", 15, "whole buffers, one after the other at one port",
                       5, drawn("naive"), judge_model),
                hidden("drawn_break_evens", 20,
                       "2 (n-2) alpha = 2 (n-1) (1 - 1/n) B / bandwidth, solved for B", 5,
                       drawn("break_even"), judge_model)};
  return lab;
}

}  // namespace lab
