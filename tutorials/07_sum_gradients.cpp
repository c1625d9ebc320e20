// 07: How do ranks add up their gradients, and what does the simplest way cost?
//
// To average gradients, somebody must add them up. The simplest way is that all send theirs to rank
// 0, which adds and sends the sum back. It is right, and slow, because all these bytes go through
// the one link of rank 0, twice, and there are more of them the more ranks there are.
//
// You will see: the naive all-reduce (every rank sends to rank 0, which adds and sends the sum
// back) as a plan, printed; on numbers small enough to follow; by hand with send and recv on the
// gradients of the digits model; and as the library's all_reduce (PyTorch: dist.all_reduce). Rank 0
// is the bottleneck, the more so the more ranks there are; tutorial 08 spreads its work evenly.
// Ranks are threads here, each with a device; between processes the calls are the same.
//
// Run:  07_sum_gradients [--guess 1|2|3] [--devices 4] [--link 50us,1Gbit/s]
//                        [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/07.txt

#include <lockstep.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/plan/algorithms.h"
#include "engine/plan/collective_plan.h"
#include "engine/trace/counters.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using AllReduce = std::function<void(comm::Communicator& ranks, const Tensor& buffer)>;
using plan::AllReducePlan;

constexpr const char* kModel = "mlp:64-128-10";
constexpr int kBatch = 64;
constexpr int kGuessedRanks = 4;

std::string link_spec = "50us,1Gbit/s";  // --link

// The naive all-reduce. Every rank calls it with a buffer of the same size, and ends with the sum.
void all_reduce_by_hand(comm::Communicator& ranks, const Tensor& buffer) {
  if (ranks.rank() != 0) {
    ranks.send(buffer, 0);
    ranks.recv(buffer, 0);
    return;
  }
  const Tensor received = Tensor::empty_like(buffer);
  for (int from = 1; from < ranks.world_size(); ++from) {  // always in this order, so that the
    ranks.recv(received, from);                            // sum has the same bits
    buffer += received;
  }
  for (int to = 1; to < ranks.world_size(); ++to) ranks.send(buffer, to);
}

// The library's, by the same plan.
void all_reduce_by_library(comm::Communicator& ranks, const Tensor& buffer) {
  ranks.all_reduce(buffer, {.plan = AllReducePlan::reduce_broadcast});
}

void ring_all_reduce(comm::Communicator& ranks, const Tensor& buffer) {
  ranks.all_reduce(buffer, {.plan = AllReducePlan::ring});
}

// A plan says who sends which elements to whom in which step: printed here, run below.
void show_plan(int world_size) {
  tutorial::step(1, "the plan");
  const plan::CollectivePlan plan = plan::reduce_broadcast_all_reduce(world_size, 3);
  fmt::print("{}", plan::to_string(plan, sizeof(float)));

  tutorial::step(2, "the plan on three numbers per rank");
  plan::RankBuffers buffers;
  for (double r = 1; r <= world_size; ++r) buffers.push_back({r, 10 * r, 100 * r});
  const auto print_buffers = [&](std::string_view when) {
    fmt::print("  {}\n", when);
    for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
      fmt::print("    rank {}: {:>4}\n", rank, fmt::join(buffers[rank], " "));
    }
  };
  print_buffers("at the start");
  for (const plan::Step& step : plan.steps) {
    plan::interpret_step(step, buffers);
    print_buffers("after: " + step.label);
  }
}

// The gradients of one rank's rows, one behind the other in a buffer. The loss is divided by the
// rows of the whole batch, so that the sum over ranks is the gradient of the whole batch's mean.
Tensor compute_gradients(const tutorial::Rows& shard) {
  const auto model = nn::make_mlp(kModel, /*seed=*/0);
  model->to(shard.x.device());
  const Variable loss = cross_entropy((*model)(shard.x), shard.labels, Reduction::sum);
  scale(loss, 1.0 / kBatch).backward();
  const Tensor buffer = Tensor::empty({model->num_parameters()}, DType::float32, shard.x.device());
  std::size_t offset = 0;
  for (const Variable& parameter : model->parameters()) {
    buffer.slice(offset, parameter.shape()).copy_from(parameter.grad());
    offset += parameter.grad().num_elements();
  }
  return buffer;
}

struct Outcome {
  std::vector<Tensor> sums;             // on each rank
  std::vector<std::size_t> bytes_sent;  // one for each rank
};

// Every rank, a thread with a device of its own, computes its rows' gradients, then calls
// all_reduce, whose bytes are counted.
Outcome sum_gradients(const std::vector<Device>& devices, const AllReduce& all_reduce) {
  Outcome outcome;
  outcome.sums.resize(devices.size());
  const tutorial::Rows batch = tutorial::load_digits(devices[0]).batch(0, kBatch);
  trace::reset_collective_counts();
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    outcome.sums[rank] = compute_gradients(batch.shard(rank, ranks.world_size(), device));
    all_reduce(ranks, outcome.sums[rank]);
  });
  for (int rank = 0; rank < std::ssize(devices); ++rank) {
    outcome.bytes_sent.push_back(trace::collective_bytes_of(rank));
  }
  return outcome;
}

// Bytes beside those that the plan predicts.
void compare_bytes(const Outcome& by_hand, const Outcome& by_library) {
  const int world_size = std::ssize(by_hand.sums);
  const std::size_t num_elements = by_hand.sums[0].num_elements();
  const auto plan = plan::reduce_broadcast_all_reduce(world_size, num_elements);
  const auto ring = plan::all_reduce_plan(AllReducePlan::ring, world_size, num_elements);
  fmt::print("{} has {} parameters: {} B of gradients on each of {} ranks\n", kModel, num_elements,
             by_hand.sums[0].num_bytes(), world_size);
  fmt::print("  bytes sent    by hand  all_reduce   plan's  (a ring's)\n");
  std::vector<std::size_t> predicted;
  for (int rank = 0; rank < world_size; ++rank) {
    predicted.push_back(4 * plan::elements_sent(plan, rank));
    fmt::print("  rank {:<6} {:>10}  {:>10}  {:>7}  {:>10}\n", rank, by_hand.bytes_sent[rank],
               by_library.bytes_sent[rank], predicted[rank], 4 * plan::elements_sent(ring, rank));
  }
  tutorial::check("the bytes sent, by hand and by all_reduce, are those of the plan",
                  by_hand.bytes_sent == predicted && by_library.bytes_sent == predicted);
}

void compare_sums(const Outcome& by_hand, const Outcome& by_library, Device device) {
  const Tensor alone = compute_gradients(tutorial::load_digits(device).batch(0, kBatch));
  const std::vector<Tensor> single(by_hand.sums.size(), alone);
  tutorial::check_close("every rank, by hand", tutorial::max_abs_difference(by_hand.sums, single),
                        1e-6);
  tutorial::check_close("by all_reduce, which adds in the same order",
                        tutorial::max_abs_difference(by_hand.sums, by_library.sums), 0);
}

// Seconds of an all-reduce of a MiB over a simulated link, where messages arrive as late as they
// would over a real one: until every rank has the sum, the fastest of some.
double measure(int num_ranks, const AllReduce& all_reduce) {
  constexpr int kRepeats = 5;
  std::vector<std::vector<double>> seconds(kRepeats, std::vector<double>(num_ranks));
  const auto work = [&](comm::Communicator& ranks) {
    const Tensor buffer = Tensor::full({1 << 18}, 1.0, DType::float32, Device{});
    for (std::vector<double>& of_ranks : seconds) {
      ranks.barrier();
      of_ranks[ranks.rank()] = tutorial::fastest_seconds(1, [&] { all_reduce(ranks, buffer); });
    }
  };
  comm::run_ranks(num_ranks, work, {.links = comm::fixed_links(comm::parse_link(link_spec))});
  double fastest = 1e9;
  for (const std::vector<double>& of_ranks : seconds) {
    fastest = std::min(fastest, std::ranges::max(of_ranks));
  }
  return fastest;
}

// Explains the table of step 5.
struct Growth {
  double ratio_to_ring = 0;  // with the most ranks
  double four_to_two = 0;    // naive, four ranks compared with two
};

Growth watch_rank_0(int most_ranks) {
  fmt::print("1 MiB    naive                            ring\n");
  fmt::print("  ranks  rank 0 sends  others       time  each sends       time\n");
  Growth growth;
  double two = 0;
  for (int n = 2; n <= most_ranks; ++n) {
    const double naive = measure(n, all_reduce_by_hand);
    const double ring = measure(n, ring_all_reduce);
    fmt::print("  {:>5} {:>9} MiB {:>5} MiB {:>7.2f} ms {:>7.2f} MiB {:>7.2f} ms\n", n, n - 1, 1,
               1e3 * naive, 2.0 * (n - 1) / n, 1e3 * ring);
    if (n == 2) two = naive;
    if (n == kGuessedRanks) growth.four_to_two = naive / two;
    growth.ratio_to_ring = naive / ring;
  }
  return growth;
}

tutorial::Guess guess(
    "Each rank sends its gradients to rank 0, which sends the sum back to each. With four ranks "
    "instead of two this takes ...",
    {"the same time, since all send at once", "about twice the time",
     "about three times the time"});

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(options.num_devices);
  const int world_size = options.num_devices;
  guess.ask(options);
  show_plan(world_size);

  tutorial::step(3, "the gradients of the digits model, by hand and by all_reduce");
  const Outcome by_hand = sum_gradients(devices, all_reduce_by_hand);
  const Outcome by_library = sum_gradients(devices, all_reduce_by_library);
  compare_bytes(by_hand, by_library);

  tutorial::step(4, "the same gradients as one device with the whole batch");
  compare_sums(by_hand, by_library, devices[0]);

  const int most_ranks = std::max(kGuessedRanks, world_size);
  tutorial::step(5, fmt::format("rank 0 is the bottleneck (link: {}, simulated)", link_spec));
  const Growth growth = watch_rank_0(most_ranks);
  fmt::print(
      "Rank 0 receives as much as it sends, one rank after the other, while the others\nwait.\n");
  guess.judge(std::clamp(static_cast<int>(std::lround(growth.four_to_two)), 1, 3),
              fmt::format("since four ranks took {:.1f} times as long as two", growth.four_to_two));
  tutorial::check_times("the ring is faster", growth.ratio_to_ring > 1);
  tutorial::answer(
      fmt::format("All send their gradients to rank 0, which adds them and sends the sum back. "
                  "With {0} ranks it sent {1} B, {2} times as much as another. Over the link {3} "
                  "ranks took {4:.1f} times as long as with a ring (08).",
                  world_size, by_hand.bytes_sent[0], world_size - 1, most_ranks,
                  growth.ratio_to_ring),
      {{"--devices 8", "More ranks: how do rank 0's bytes and time grow, and a ring's?"},
       {"--link 50us,500Mbit/s", "Half the bandwidth: what does it do to both times?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options& options) {
    guess.add_flag(flags);
    flags.add_number("--devices", options.num_devices, 2, 16, "how many, each with a rank");
    flags.add_text("--link", link_spec, "latency and bandwidth of the ranks' links in step 5");
  };
  return run_main(argc, argv,
                  "How do ranks add up their gradients, and what does the simplest way cost?", run,
                  {.num_devices = 4, .add_flags = add_flags});
}
