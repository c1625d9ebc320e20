// 08: How does the ring all-reduce add up gradients without a device that everybody waits for?
//
// You will see: the ring by hand with send and recv, in 20 lines that you can copy; the same as a
// plan (a list of who sends which chunk to whom), with the numbers that every rank holds after each
// step; both beside the naive all-reduce of tutorial 05, over a link of a stated latency and
// bandwidth. PyTorch calls the operation torch.distributed.all_reduce; NCCL has the same ring.
//
// Run:  08_pass_chunks [--devices 4] [--link 50us,1GB/s] [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; times differ):
//   check: by hand, every rank holds the sum that one device computes ... ok
//   3. reduce-scatter 3/3  0->1: chunk 1  1->2: chunk 2  2->3: chunk 3  3->0: chunk 0
//     rank 0 | 1111 2222*| 3303 4404 | 5005 6006 |    7    8
//     rank 1 |   10   20 | 3333 4444*| 5055 6066 |   77   88
//   naive, through rank 0     8.75 ms, busbw 0.23 GB/s; the busiest rank sent 3.000 buffers
//   ring by hand              2.65 ms, busbw 0.75 GB/s; the busiest rank sent 1.500 buffers
//   check: every rank of the ring sent 2(n-1)/n of the buffer, by hand and as a plan ... ok
//   Answer: Each rank talks to its two neighbours only, and all links are busy at once. Among 4 ...

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/comm/link.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/collective_plan.h"
#include "engine/plan/ring.h"
#include "tutorials/common.h"
#include "tutorials/over_link.h"

namespace {

using namespace lockstep;
using AllReduce = std::function<void(comm::Communicator&, const Tensor&)>;

std::string link_spec = "50us,1GB/s";  // --link

const std::vector<tutorial::Variation> kNext{
    {"--devices 7", "the naive way gets slower with each rank, the ring hardly does"},
    {"--link 5ms,1GB/s", "a ring has many steps: where latency counts, fewer are better"}};

// The ring. Every rank calls it with a buffer of the same size and ends with the sum in it. The
// buffer is cut into one chunk per rank; rank r sends to rank r + 1 and receives from rank r - 1.
void ring_all_reduce(comm::Communicator& ranks, const Tensor& buffer) {
  const int n = ranks.world_size(), me = ranks.rank();
  const int next = (me + 1) % n, previous = (me + n - 1) % n;
  const auto chunk = [&](int number) {  // counted around the ring: -1 is the last one
    const auto part = plan::even_chunk(buffer.num_elements(), static_cast<std::size_t>(n),
                                       static_cast<std::size_t>((number + 2 * n) % n));
    return buffer.slice(part.offset, {part.count});
  };
  for (int step = 0; step < n - 1; ++step) {  // reduce-scatter: add and pass on
    ranks.send(chunk(me - 1 - step), next);   // does not wait for the receiver
    const Tensor mine = chunk(me - 2 - step);
    const Tensor received = Tensor::empty(mine.shape(), mine.dtype(), mine.device());
    ranks.recv(received, previous);
    mine.backend().add(mine.stream(), mine.view(), received.view(), mine.view());
  }                                           // now chunk number `me` is the sum of all ranks
  for (int step = 0; step < n - 1; ++step) {  // all-gather: pass the finished chunks on
    ranks.send(chunk(me - step), next);
    ranks.recv(chunk(me - 1 - step), previous);
  }
}

// Element i of rank r is (i + 1) * 10^r. So the digits of a number say whose values are in it:
// 3 is rank 0's third element, 3300 the sum of ranks 2 and 3, 3333 the sum of all four.
plan::RankBuffers make_readable_buffers(std::size_t num_ranks) {
  const std::size_t num_elements = num_ranks <= 4 ? 2 * num_ranks : num_ranks;
  plan::RankBuffers buffers(num_ranks, std::vector<double>(num_elements));
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t i = 0; i < num_elements; ++i)
      buffers[rank][i] = (i % 9 + 1.0) * std::pow(10, rank);
  }
  return buffers;
}

// What one device would compute.
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
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, std::size_t rank, Device device) {
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
  const std::size_t num_shown = std::min(sum.size(), 90 / (width + 3) * chunk_size);
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
  const plan::CollectivePlan ring =
      plan::ring_all_reduce(static_cast<int>(buffers.size()), sum.size());
  fmt::print(
      "Each digit stands for a rank. A star: the chunk is finished, the sum of all ranks.\n");
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

void compare_over_link(int n, bool fast) {
  const std::size_t num_elements = 27720u * (fast ? 12 : 36);  // divisible by 1 to 12
  const double num_bytes = static_cast<double>(num_elements) * sizeof(float);
  fmt::print("{} threads as ranks, {:.1f} MB each, every rank with a port of {} (modelled)\n", n,
             num_bytes * 1e-6, link_spec);
  const auto plan = [](plan::AllReducePlan name) {
    return [name](auto& ranks, const Tensor& buffer) { ranks.all_reduce(buffer, {.plan = name}); };
  };
  const auto time = [&](const char* name, const AllReduce& all_reduce) {
    const auto result = tutorial::time_all_reduce(link_spec, n, num_elements, all_reduce);
    fmt::print("{:<21} {:8.2f} ms, busbw {:.2f} GB/s; the busiest rank sent {:.3f} buffers\n", name,
               1e3 * result.seconds, 2e-9 * (n - 1) / n * num_bytes / result.seconds,
               result.sent_buffers);
    return result;
  };
  const auto naive = time("naive, through rank 0", plan(plan::AllReducePlan::reduce_broadcast));
  const auto hand = time("ring by hand", ring_all_reduce);
  const auto ring = time("ring as a plan", plan(plan::AllReducePlan::ring));
  fmt::print("busbw = buffer / time * 2(n-1)/n, as in nccl-tests: what a ring's links carry\n");
  const double share = 2.0 * (n - 1) / n;
  tutorial::check("every rank of the ring sent 2(n-1)/n of the buffer, by hand and as a plan",
                  std::abs(hand.sent_buffers - share) + std::abs(ring.sent_buffers - share) < 1e-9);
  tutorial::check("no ring was faster than its links",
                  std::min(hand.seconds, ring.seconds) >=
                      share * num_bytes / comm::parse_link(link_spec).bytes_per_second);
  tutorial::answer(
      fmt::format(
          "Each rank talks to its two neighbours only, and all links are busy at once. Among {} "
          "ranks each sent {:.3f} buffers, in {:.1f} ms; through rank 0, which sent {:.0f}, it "
          "took {:.1f} ms. However many ranks there are, none sends 2 buffers.",
          n, hand.sent_buffers, 1e3 * hand.seconds, naive.sent_buffers, 1e3 * naive.seconds),
      kNext);
}

void run(const tutorial::Options& options) {
  const std::size_t n = options.num_devices;
  const plan::RankBuffers buffers = make_readable_buffers(n);
  tutorial::step(1, "the ring by hand");
  run_by_hand(buffers, options.devices(n));
  tutorial::step(2, "the same as a plan, chunk by chunk");
  walk_through_plan(buffers);
  if (n == 1) return tutorial::answer("A ring of 1 has 0 steps: its buffer is the sum.", kNext);
  tutorial::step(3, "over a link");
  compare_over_link(static_cast<int>(n), options.fast);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  return run_main(
      argc, argv,
      "How does the ring all-reduce add up gradients without a device that everybody waits for?",
      run,
      {.num_devices = 4, .add_flags = [](Flags& flags, Options& options) {
         flags.add_number("--devices", options.num_devices, 1, 12, "how many, each with a rank");
         flags.add_text("--link", link_spec, "LATENCY,BANDWIDTH of each rank's port");
       }});
}
