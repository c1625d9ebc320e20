// 08: How does the ring all-reduce add up gradients without making all ranks wait for one?
//
// If every rank has the same work, no link carries more than the others. So cut the gradients into
// as many chunks as there are ranks, and let each rank send one chunk to its neighbour in each
// step. After a round every rank has the whole sum of one chunk, after another all have all. Each
// sends less than twice its gradients, however many ranks there are.
//
// You will see: the ring by hand with send and recv, in 20 lines that you can copy; the same as a
// plan (a list of who sends which chunk to whom), with the numbers that every rank holds after each
// step; and both beside the naive all-reduce of tutorial 07, over a link of a stated latency and
// bandwidth, each with the time that its plan predicts. PyTorch calls the operation
// torch.distributed.all_reduce; NCCL has the same ring.
//
// Run:  08_pass_chunks [--guess 1|2|3] [--devices 4] [--link 200us,100MB/s]
//                      [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/08.txt

#include <lockstep.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "engine/plan/algorithms.h"
#include "engine/plan/collective_plan.h"
#include "engine/trace/counters.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using AllReduce = std::function<void(comm::Communicator& ranks, const Tensor& buffer)>;
using plan::AllReducePlan;

constexpr const char* kLink = "200us,100MB/s";
std::string link_spec = kLink;  // --link

const std::vector<tutorial::Variation> kNext{
    {"--devices 7", "More ranks: how much longer does each way take?"},
    {"--link 5ms,1GB/s", "Latency counts in each step: what is left of the ring's lead?"}};

// The ring. Every rank calls it with a buffer of the same size and ends with the sum in it. The
// buffer is cut into one chunk per rank; rank r sends to rank r + 1 and receives from rank r - 1.
void ring_all_reduce(comm::Communicator& ranks, const Tensor& buffer) {
  const int n = ranks.world_size(), me = ranks.rank();
  const int next = (me + 1) % n, previous = (me + n - 1) % n;
  const auto chunk = [&](int number) {  // counted around the ring: -1 is the last one
    const auto part = plan::even_chunk(buffer.num_elements(), n, (number + 2 * n) % n);
    return buffer.slice(part.offset, {part.count});
  };
  for (int step = 0; step < n - 1; ++step) {  // reduce-scatter: add and pass on
    ranks.send(chunk(me - 1 - step), next);   // does not wait for the receiver
    const Tensor received = Tensor::empty_like(chunk(me - 2 - step));
    ranks.recv(received, previous);
    chunk(me - 2 - step) += received;
  }                                           // now chunk number `me` is the sum of all ranks
  for (int step = 0; step < n - 1; ++step) {  // all-gather: pass the finished chunks on
    ranks.send(chunk(me - step), next);
    ranks.recv(chunk(me - 1 - step), previous);
  }
}

// Element i of rank r is (i + 1) * 10^r. So the digits of a number say whose values are in it:
// 3 is rank 0's third element, 3300 the sum of ranks 2 and 3, 3333 the sum of all four.
plan::RankBuffers make_readable_buffers(int num_ranks) {
  const int num_elements = num_ranks <= 4 ? 2 * num_ranks : num_ranks;
  plan::RankBuffers buffers(num_ranks, std::vector<double>(num_elements));
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int i = 0; i < num_elements; ++i) buffers[rank][i] = (i % 9 + 1) * std::pow(10, rank);
  }
  return buffers;
}

// The sum as one device computes it.
std::vector<double> sum_of(const plan::RankBuffers& buffers) {
  std::vector<double> sum(buffers[0].size());
  for (const auto& buffer : buffers) std::ranges::transform(sum, buffer, sum.begin(), std::plus());
  return sum;
}

bool all_equal(const plan::RankBuffers& buffers, const std::vector<double>& sum) {
  return std::ranges::all_of(buffers, [&](const auto& buffer) { return buffer == sum; });
}

void run_by_hand(const plan::RankBuffers& buffers, const std::vector<Device>& devices) {
  plan::RankBuffers results(buffers.size());
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const Tensor buffer = Tensor::from(buffers[rank], {buffers[rank].size()}, device);
    ring_all_reduce(ranks, buffer);
    results[rank] = buffer.to_vector<double>();
  });
  tutorial::say(
      fmt::format("rank 0: {} -> {}", fmt::join(buffers[0], " "), fmt::join(results[0], " ")));
  tutorial::check("by hand, every rank holds the sum that one device computes",
                  all_equal(results, sum_of(buffers)));
}

// A line per rank, chunk by chunk; a finished chunk, the sum of all ranks, has a star.
void print_buffers(const plan::RankBuffers& buffers, const std::vector<double>& sum) {
  const std::size_t chunk_size = sum.size() / buffers.size();
  const std::size_t width = std::max<std::size_t>(4, buffers.size());
  const std::size_t chunk_columns = chunk_size * (width + 1) + 2;
  const std::size_t num_shown = std::min(sum.size(), 66 / chunk_columns * chunk_size);
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    fmt::print("  rank {} ", rank);
    bool is_finished = true;
    for (std::size_t i = 0; i < num_shown; ++i) {
      is_finished = (i % chunk_size == 0 || is_finished) && buffers[rank][i] == sum[i];
      fmt::print("{} {:>{}}", i % chunk_size == 0 ? "|" : "", buffers[rank][i], width);
      if ((i + 1) % chunk_size == 0) fmt::print("{}", is_finished ? "*" : " ");
    }
    fmt::print("{}\n", num_shown < sum.size() ? " ..." : "");
  }
}

void walk_through_plan(plan::RankBuffers buffers) {
  const std::vector<double> sum = sum_of(buffers);
  const plan::CollectivePlan ring = plan::ring_all_reduce(std::ssize(buffers), sum.size());
  fmt::print(
      "Each digit stands for a rank. A star marks a finished chunk, the sum of all\nranks.\n");
  print_buffers(buffers, sum);
  for (std::size_t s = 0; s < ring.steps.size(); ++s) {
    std::string moves;
    for (const plan::Transfer& move : ring.steps[s].transfers) {
      moves += fmt::format("  {}->{}: chunk {}", move.from_rank, move.to_rank,
                           move.chunk.offset / move.chunk.count);
    }
    fmt::print("\n");
    tutorial::say(fmt::format("{}. {}{}", s + 1, ring.steps[s].label, moves), 3);
    plan::interpret_step(ring.steps[s], buffers);
    print_buffers(buffers, sum);
    if (s + 2 == buffers.size()) fmt::print("Halfway: each rank has one finished chunk.\n");
  }
  tutorial::check("the plan ends with the same numbers", all_equal(buffers, sum));
}

// Bytes and time of one way to all-reduce.
struct Measured {
  double sent_buffers = 0;  // the busiest rank's
  double seconds = 0;       // until every rank has the sum: the fastest of some
};

Measured measure(int n, std::size_t num_elements, const AllReduce& all_reduce) {
  constexpr int kRepeats = 5;
  std::vector<std::vector<double>> seconds(kRepeats, std::vector<double>(n));
  trace::reset_collective_counts();
  const auto work = [&](comm::Communicator& ranks) {
    const Tensor buffer = Tensor::empty({num_elements});
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      buffer.fill(ranks.rank() + 1);
      ranks.barrier();
      const auto start = std::chrono::steady_clock::now();
      all_reduce(ranks, buffer);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      seconds[repeat][ranks.rank()] = elapsed.count();
    }
    const float sum = 0.5f * n * (n + 1);
    require(std::ranges::all_of(buffer.to_vector<float>(), [&](float x) { return x == sum; }),
            ErrorCode::Numeric, "all-reduce", "rank {} holds a wrong sum", ranks.rank());
  };
  comm::run_ranks(n, work, {.links = comm::fixed_links(comm::parse_link(link_spec))});
  Measured result{0, 1e9};
  for (const auto& of_ranks : seconds) {
    result.seconds = std::min(result.seconds, std::ranges::max(of_ranks));
  }
  const double buffer_bytes = sizeof(float) * num_elements;
  for (int rank = 0; rank < n; ++rank) {
    const double sent = trace::collective_bytes_of(rank) / buffer_bytes / kRepeats;
    result.sent_buffers = std::max(result.sent_buffers, sent);
  }
  return result;
}

// Seconds that the messages of a plan's steps need: for each step a latency, and the bytes of the
// busiest port.
double plan_seconds(const plan::CollectivePlan& plan) {
  const comm::LinkSpec spec = comm::parse_link(link_spec);
  double seconds = 0;
  for (const plan::Step& step : plan.steps) {
    std::vector<std::size_t> sent(plan.world_size), received(plan.world_size);
    for (const plan::Transfer& move : step.transfers) {
      sent[move.from_rank] += move.chunk.count;
      received[move.to_rank] += move.chunk.count;
    }
    const std::size_t most = std::max(std::ranges::max(sent), std::ranges::max(received));
    seconds += spec.latency_seconds + sizeof(float) * most / spec.bytes_per_second;
  }
  return seconds;
}

void compare_over_link(int n, bool fast) {
  const std::size_t num_elements = 27720u * (fast ? 12 : 36);  // divisible by 1 to 12
  const double num_bytes = sizeof(float) * num_elements;
  fmt::print("{} threads as ranks, {:.1f} MB each; every rank's port, simulated: {}\n", n,
             num_bytes * 1e-6, link_spec);
  fmt::print("                       steps  buffers sent  plan says   measured       busbw\n");
  const auto compare = [&](const char* name, AllReducePlan plan, const AllReduce& all_reduce) {
    const Measured measured = measure(n, num_elements, all_reduce);
    const plan::CollectivePlan steps = plan::all_reduce_plan(plan, n, num_elements);
    fmt::print("{:<22} {:>5} {:>13.3f} {:>7.2f} ms {:>7.2f} ms {:>6.2f} GB/s\n", name,
               steps.steps.size(), measured.sent_buffers, 1e3 * plan_seconds(steps),
               1e3 * measured.seconds, 2e-9 * (n - 1) / n * num_bytes / measured.seconds);
    return measured;
  };
  const auto by_plan = [](AllReducePlan plan) {
    return [plan](auto& ranks, const Tensor& buffer) { ranks.all_reduce(buffer, {.plan = plan}); };
  };
  const Measured naive = compare("naive, through rank 0", AllReducePlan::reduce_broadcast,
                                 by_plan(AllReducePlan::reduce_broadcast));
  const Measured hand = compare("ring by hand", AllReducePlan::ring, ring_all_reduce);
  const Measured ring =
      compare("ring as a plan", AllReducePlan::ring, by_plan(AllReducePlan::ring));
  fmt::print(
      "buffers sent: by the busiest rank; busbw = buffer / time * 2(n-1)/n, as in\n"
      "nccl-tests\n");

  const double share = 2.0 * (n - 1) / n;
  tutorial::check("every rank of the ring sent 2(n-1)/n of the buffer, by hand and as a plan",
                  std::abs(hand.sent_buffers - share) + std::abs(ring.sent_buffers - share) < 1e-9);
  const double predicted = plan_seconds(plan::ring_all_reduce(n, num_elements));
  tutorial::check("no ring was faster than its plan says",
                  std::min(hand.seconds, ring.seconds) >= 0.999 * predicted);
  if (link_spec == kLink) {
    tutorial::check_times("both rings are faster than going through rank 0",
                          std::max(hand.seconds, ring.seconds) < naive.seconds);
    tutorial::check_times("the ring as a plan takes at most 1.3 times what its plan says",
                          ring.seconds <= 1.3 * predicted);
  }
  tutorial::answer(
      fmt::format(
          "Each rank talks only to its two neighbours, and all links are busy at once. "
          "With {} ranks each sent {:.3f} buffers in {:.1f} ms; through rank 0, which sent "
          "{:.0f}, it took {:.1f} ms. However many ranks there are, each sends less than 2.",
          n, hand.sent_buffers, 1e3 * hand.seconds, naive.sent_buffers, 1e3 * naive.seconds),
      kNext);
}

tutorial::Guess guess(
    "In a ring of 12 ranks each rank sends only to its neighbour. How many times its own buffer "
    "has it sent when all have the sum?",
    {"11 times", "6 times", "less than twice"});

void run(const tutorial::Options& options) {
  const int n = options.num_devices;
  const plan::RankBuffers buffers = make_readable_buffers(n);
  guess.ask(options);

  tutorial::step(1, "the ring by hand");
  run_by_hand(buffers, options.devices(n));

  tutorial::step(2, "the same as a plan, chunk by chunk");
  walk_through_plan(buffers);
  guess.judge(3, "since each of 2 * 11 steps moves a twelfth of the buffer: 1.83 buffers");
  if (n == 1) return tutorial::answer("A ring of 1 has 0 steps: its buffer is the sum.", kNext);

  tutorial::step(3, "over a link");
  compare_over_link(n, options.fast);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  return run_main(
      argc, argv,
      "How does the ring all-reduce add up gradients without making all ranks wait for one?", run,
      {.num_devices = 4, .add_flags = [](Flags& flags, Options& options) {
         guess.add_flag(flags);
         flags.add_number("--devices", options.num_devices, 1, 12, "how many, each with a rank");
         flags.add_text("--link", link_spec, "LATENCY,BANDWIDTH of each rank's port");
       }});
}
