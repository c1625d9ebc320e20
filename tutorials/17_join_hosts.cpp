// 17: What changes when the ranks are on several hosts?
//
// Between two hosts a message takes longer than between two devices of one host, and all devices of
// a host share the way out. So an all-reduce should cross it as seldom as possible: first add up
// inside each host, then between the hosts, then spread the sum inside again.
//
// You will see: the command of each machine; the all-reduce for several hosts, printed; how many
// bytes cross between hosts, how many stay inside, and how many crossings wait for each other,
// beside the ring that knows nothing of hosts.
// If every rank has a GPU, NCCL does this (--comm nccl of `lockstep train`).
//
// Run:  17_join_hosts [--link 1ms,1GB/s] [--device auto|cpu|cuda] [--fast]
// plays two hosts of three ranks each on this machine: a rank says which host it is on, ranks of
// different hosts talk over TCP, and their messages take the time of the link. On two real
// machines, or in two network namespaces, run the commands that step 1 prints.
//
// Expected output with --fast: tutorials/expected/17.txt

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/plan/algorithms.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/trace/counters.h"
#include "tutorials/common.h"
#include "tutorials/ranks.h"

namespace {

using namespace lockstep;

constexpr int kHosts = 2;
constexpr int kRanksPerHost = 3;
constexpr int kRepeats = 4;
constexpr int kCallsInARow = 10;
constexpr std::size_t kNumBytes = 1 << 20;

std::string link_spec = "1ms,1GB/s";  // --link

// The host of every rank.
using Hosts = std::vector<std::int32_t>;

Hosts exchange_hosts(tutorial::RankProcess& me, std::int32_t host) {
  const Tensor mine = Tensor::from(std::vector{host}, {1});
  const std::size_t num_ranks = me.world_size();
  const Tensor all = Tensor::empty({num_ranks}, DType::int32);
  me.group().all_gather(mine, all);
  return all.to_vector<std::int32_t>();
}

std::string describe(const Hosts& hosts) {
  std::string text;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    text += fmt::format("{} {}", r > 0 && hosts[r] != hosts[r - 1] ? " |" : "", r);
  }
  return text;
}

struct Traffic {
  std::size_t between_hosts = 0;
  std::size_t inside_hosts = 0;
};

// Counts the bytes that a plan will send, without sending anything.
Traffic traffic_of(const plan::CollectivePlan& plan, const Hosts& hosts) {
  Traffic traffic;
  for (const plan::Step& step : plan.steps) {
    for (const plan::Transfer& transfer : step.transfers) {
      const bool stays = hosts[transfer.from_rank] == hosts[transfer.to_rank];
      (stays ? traffic.inside_hosts : traffic.between_hosts) +=
          transfer.chunk.count * sizeof(float);
    }
  }
  return traffic;
}

// A plan's longest path over the link between hosts.
struct Path {
  int num_crossings = 0;  // that wait for each other
  double seconds = 0;     // which they take, if all else takes none
};

// When every rank is done with a call, if it was done with the one before it at `done`. A call
// crosses once before its plan begins, because the ranks compare their calls. A long message
// between hosts is taken piece by piece, so its sender goes on to the next step only after its
// receiver has come to this one.
std::vector<double> run_call(const plan::CollectivePlan& plan, const Hosts& hosts,
                             std::vector<double> done, double latency, double seconds_per_byte) {
  const std::vector<double> called = done;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    for (std::size_t peer = 0; peer < hosts.size(); ++peer) {
      const double away = hosts[peer] == hosts[rank] ? 0 : latency;
      done[rank] = std::max(done[rank], called[peer] + away);
    }
  }
  for (const plan::Step& step : plan.steps) {
    std::vector<double> port = done, next = done;
    for (const plan::Transfer& transfer : step.transfers) {
      const int from = transfer.from_rank, to = transfer.to_rank;
      if (hosts[from] == hosts[to]) {
        next[to] = std::max(next[to], done[from]);
      } else {  // messages leave a port one after the other
        port[from] += transfer.chunk.count * sizeof(float) * seconds_per_byte;
        next[to] = std::max(next[to], port[from] + latency);
        next[from] = std::max(next[from], done[to]);
      }
    }
    done = next;
  }
  return done;
}

// How much longer two calls in a row take than one.
double longest_path(const plan::CollectivePlan& plan, const Hosts& hosts, double latency,
                    double seconds_per_byte) {
  const std::vector<double> one =
      run_call(plan, hosts, std::vector<double>(hosts.size()), latency, seconds_per_byte);
  const std::vector<double> two = run_call(plan, hosts, one, latency, seconds_per_byte);
  return std::ranges::max(two) - std::ranges::max(one);
}

Path path_of(const plan::CollectivePlan& plan, const Hosts& hosts) {
  const comm::LinkSpec link = comm::parse_link(link_spec);
  return {static_cast<int>(std::lround(longest_path(plan, hosts, 1, 0))),
          longest_path(plan, hosts, link.latency_seconds, 1 / link.bytes_per_second)};
}

// Seconds of an all-reduce over the links: the fastest mean of a few in a row, because the ranks do
// not begin the first at the same moment. Checks the sum on this rank.
double measure(tutorial::RankProcess& me, plan::AllReducePlan plan, const Tensor& buffer) {
  double seconds = 1e9;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    me.group().barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < kCallsInARow; ++call) {
      buffer.fill(me.rank() + 1);
      me.group().all_reduce(buffer, {.plan = plan});
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds = std::min(seconds, elapsed.count() / kCallsInARow);
  }
  const float expected = 0.5f * me.world_size() * (me.world_size() + 1);
  const std::vector<float> sum = buffer.to_vector<float>();
  require(std::ranges::all_of(sum, [&](float value) { return value == expected; }),
          ErrorCode::Numeric, "check", "rank {} holds a wrong sum", me.rank());
  return seconds;
}

// Bytes that all ranks sent for all-reduces, as their communicators counted them.
std::int64_t bytes_of_all_ranks(tutorial::RankProcess& me) {
  std::int64_t mine = 0;
  for (const trace::CollectiveCount& count : trace::collective_counts()) {
    if (count.operation == "all_reduce") mine += count.num_bytes;
  }
  const Tensor total = Tensor::from(std::vector<std::int64_t>{mine}, {1});
  me.group().all_reduce(total);
  return total.to_vector<std::int64_t>()[0];
}

void compare_plans(tutorial::RankProcess& me, const Hosts& hosts, std::size_t num_elements) {
  using enum plan::AllReducePlan;
  const Tensor buffer = Tensor::empty({num_elements}, DType::float32);
  std::string table = fmt::format("{:<16}{:>13}{:>9}{:>11}{:>11}{:>12}\n", "bytes", "between hosts",
                                  "inside", "crossings", "they need", "measured");
  std::vector<std::size_t> between;
  std::vector<double> figures;
  for (const plan::AllReducePlan name : {hierarchical, ring, halving_doubling}) {
    const plan::CollectivePlan plan = plan::all_reduce_plan(name, hosts, num_elements);
    const Traffic traffic = traffic_of(plan, hosts);
    const Path path = path_of(plan, hosts);
    const double seconds = measure(me, name, buffer);
    table += fmt::format("{:<16}{:>13}{:>9}{:>11}{:>8.1f} ms{:>9.1f} ms\n", to_string(name),
                         traffic.between_hosts, traffic.inside_hosts, path.num_crossings,
                         1e3 * path.seconds, 1e3 * seconds);
    between.push_back(traffic.between_hosts);
    figures.push_back(1e3 * seconds);
  }
  trace::reset_collective_counts();
  me.group().all_reduce(buffer, {.plan = hierarchical});
  const std::int64_t sent = bytes_of_all_ranks(me);
  if (me.rank() != 0) return;
  const Traffic plan = traffic_of(plan::all_reduce_plan(hierarchical, hosts, num_elements), hosts);
  fmt::print("{}", table);
  tutorial::say(
      "crossings: those that wait for each other, on the plan's longest path, where a long message "
      "also holds up its sender until the receiver takes it, and one before it, because the ranks "
      "first compare their calls; they need: the latency and the bytes of these, if each rank has "
      "a port of its own; measured: calls in a row, which also copy and add inside the hosts");
  tutorial::FiguresOfRanks::tell(figures);
  tutorial::check("hierarchical sends less between hosts than the others",
                  between[0] < std::min(between[1], between[2]));
  tutorial::check("the ranks together sent what the plan says",
                  std::cmp_equal(sent, plan.between_hosts + plan.inside_hosts));
}

void be_a_rank() {
  // Real machines have a real link, and clocks of their own.
  const bool is_played = std::getenv("LOCKSTEP_TUTORIAL_HOST") != nullptr;
  using Link = std::optional<comm::LinkSpec>;
  tutorial::RankProcess me(DeviceType::cpu, is_played ? comm::parse_link(link_spec) : Link());
  const Hosts hosts = exchange_hosts(me, me.host());
  if (me.rank() == 0) {
    fmt::print("{} hosts: ranks{}\n{}\n", hosts.back() + 1, describe(hosts),
               me.group().description());
    fmt::print("{}", plan::to_string(plan::hierarchical_all_reduce(hosts, 8), 4));
  }
  compare_plans(me, hosts, kNumBytes / sizeof(float));
}

void print_commands() {
  fmt::print("on both machines, the same secret: export LOCKSTEP_TOKEN=...\n");
  for (int machine = 0; machine < kHosts; ++machine) {
    fmt::print(
        "machine {} $ lockstep run --nnodes {} --node-rank {} --nproc-per-node {} \\\n"
        "              --master-addr 10.0.0.1 -- 17_join_hosts\n",
        machine, kHosts, machine, kRanksPerHost);
  }
  fmt::print("two network namespaces on one machine work, too (as root: man ip-netns)\n");
}

void run(const tutorial::Options&) {
  if (tutorial::is_rank()) return be_a_rank();
  comm::parse_link(link_spec);  // an error comes before the hosts are started
  tutorial::step(1, "the command of each machine");
  print_commands();
  tutorial::step(2, "two hosts, played by two launchers here");
  fmt::print("between them a simulated link of {}\n", link_spec);
  const tutorial::FiguresOfRanks figures;
  tutorial::check("all ranks on both hosts hold the sum that one process computes",
                  tutorial::run_as_hosts(kHosts, kRanksPerHost));
  const std::vector<double> ms = figures.heard(3);
  Hosts hosts;
  for (int rank = 0; rank < kHosts * kRanksPerHost; ++rank) hosts.push_back(rank / kRanksPerHost);
  const auto path = [&](plan::AllReducePlan name) {
    return path_of(plan::all_reduce_plan(name, hosts, kNumBytes / sizeof(float)), hosts);
  };
  const Path ring = path(plan::AllReducePlan::ring);
  const Path hierarchical = path(plan::AllReducePlan::hierarchical);
  // If the crossings are short, computing counts more.
  if (ring.seconds - hierarchical.seconds >= 1e-3) {
    tutorial::check_times("hierarchical is faster than the ring", ms[1] > ms[0]);
  }
  tutorial::answer(
      fmt::format("The link between hosts is slow ({}). The ring waits for {} crossings, one after "
                  "the other: {:.1f} ms. The hierarchical plan reduces inside each host first and "
                  "waits for {}: {:.1f} ms.",
                  link_spec, ring.num_crossings, ms[1], hierarchical.num_crossings, ms[0]),
      {{"--link 10ms,1GB/s", "hosts that are far apart: what do crossings times latency give?"},
       {"--link 100us,100MB/s", "a narrow link: do the crossings still decide, or the bytes?"}});
}

}  // namespace

int main(int argc, char** argv) {
  const auto add_flags = [](lockstep::tutorial::Flags& flags, lockstep::tutorial::Options&) {
    flags.add_text("--link", link_spec, "LATENCY,BANDWIDTH between the played hosts");
  };
  constexpr const char* kQuestion = "What changes when the ranks are on several hosts?";
  return lockstep::tutorial::run_main(argc, argv, kQuestion, run, {.add_flags = add_flags});
}
