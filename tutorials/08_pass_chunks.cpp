// 08: How does the ring all-reduce add up gradients without a device that everybody waits for?
//
// You will see: the ring among 4 ranks with the numbers that every rank holds after each step; its
// costs beside those of the naive all-reduce of tutorial 05; and both on threads, with the
// bandwidths that nccl-tests prints. The program reads one plan (a list of who sends which chunk to
// whom) three times: it prints it, counts its bytes and runs it. PyTorch calls the operation
// torch.distributed.all_reduce; NCCL, which does it between GPUs, has the same ring.
//
// Run:  08_pass_chunks [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; times differ):
//   3. reduce-scatter 3/3  0->1: chunk 1  1->2: chunk 2  2->3: chunk 3  3->0: chunk 0
//     rank 0 | 1111 2222*| 3303 4404 | 5005 6006 |    7    8
//     rank 1 |   10   20 | 3333 4444*| 5055 6066 |   77   88
//   Halfway: each rank has one finished chunk. From now on they are passed around.
//   16 ranks             2      15 buffers            30   1.875 buffers = 2*15/16
//   25.32 ms, algbw 2.65 GB/s, busbw 3.98 GB/s; the busiest rank sent 3.000 buffers
//   12.79 ms, algbw 5.25 GB/s, busbw 7.87 GB/s; the busiest rank sent 1.500 buffers

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/interpreter.h"
#include "engine/plan/ring.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr int kRanks = 4;
constexpr std::size_t kChunks = kRanks;  // the ring cuts a buffer into one chunk per rank

// Element i of rank r is (i + 1) * 10^r. So the digits of a number say whose values are in it:
// 3 is rank 0's third element, 3300 the sum of ranks 2 and 3, 3333 the sum of all four.
plan::RankBuffers make_readable_buffers(std::size_t num_elements) {
  plan::RankBuffers buffers(kRanks, std::vector<double>(num_elements));
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = 0; i < num_elements; ++i) {
      buffers[static_cast<std::size_t>(rank)][i] = static_cast<double>(i + 1) * std::pow(10, rank);
    }
  }
  return buffers;
}

// A line per rank, chunk by chunk; a finished chunk, the sum of all ranks, has a star.
void print_buffers(const plan::RankBuffers& buffers, const std::vector<double>& sum) {
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    std::string line = fmt::format("  rank {} ", rank);
    for (std::size_t c = 0; c < kChunks; ++c) {
      const plan::Chunk chunk = plan::even_chunk(sum.size(), kChunks, c);
      bool is_finished = true;
      line += "|";
      for (std::size_t i = chunk.offset; i < chunk.end(); ++i) {
        line += fmt::format(" {:>4}", buffers[rank][i]);
        is_finished = is_finished && buffers[rank][i] == sum[i];
      }
      line += is_finished ? "*" : " ";
    }
    fmt::print("{}\n", line);
  }
}

void walk_through_ring() {
  const std::size_t num_elements = 2 * kChunks;
  const plan::CollectivePlan ring = plan::ring_all_reduce(kRanks, num_elements);
  plan::RankBuffers buffers = make_readable_buffers(num_elements);
  std::vector<double> sum(num_elements);  // what one device would compute
  for (std::size_t i = 0; i < num_elements; ++i) {
    for (const std::vector<double>& buffer : buffers) sum[i] += buffer[i];
  }
  fmt::print(
      "Each digit stands for a rank: 3 is rank 0's third number, 3300 the sum of those of\n"
      "ranks 2 and 3. A star: the chunk is finished, the sum of all ranks.\n\n"
      "           chunk 0    chunk 1    chunk 2    chunk 3\n");
  print_buffers(buffers, sum);
  for (std::size_t s = 0; s < ring.steps.size(); ++s) {
    std::string moves;
    for (const plan::Transfer& transfer : ring.steps[s].transfers) {
      moves += fmt::format("  {}->{}: chunk {}", transfer.from_rank, transfer.to_rank,
                           transfer.chunk.offset / 2);
    }
    fmt::print("\n{}. {}{}\n", s + 1, ring.steps[s].label, moves);
    plan::interpret_step(ring.steps[s], buffers);
    print_buffers(buffers, sum);
    if (s + 1 == ring.steps.size() / 2) {
      fmt::print(
          "Halfway: each rank has one finished chunk. From now on they are passed around.\n");
    }
  }
  bool all_equal = true;
  for (const std::vector<double>& buffer : buffers) all_equal = all_equal && buffer == sum;
  tutorial::check("every rank holds the sum that one device computes", all_equal);
}

void compare_costs() {
  const std::size_t n = 5040;  // elements; a multiple of all the world sizes
  const auto buffers = [&](std::size_t elements) { return static_cast<double>(elements) / n; };
  fmt::print("         naive: steps  sent by rank 0   ring: steps  sent by each rank\n");
  for (const int ranks : {2, 4, 8, 16}) {
    const auto naive = plan::all_reduce_plan(plan::AllReducePlan::reduce_broadcast, ranks, n);
    const auto ring = plan::all_reduce_plan(plan::AllReducePlan::ring, ranks, n);
    fmt::print("{:>2} ranks {:>13} {:>7.0f} buffers {:>13} {:>7.3f} buffers = 2*{}/{}\n", ranks,
               naive.steps.size(), buffers(max_elements_sent(naive)), ring.steps.size(),
               buffers(max_elements_sent(ring)), ranks - 1, ranks);
  }
  fmt::print(
      "The naive one has fewer steps, so it wins for small buffers. But rank 0 sends (and "
      "receives)\n"
      "n-1 buffers; in the ring nobody sends 2, however many ranks there are: 2(n-1)/n.\n");
}

Tensor make_ramp(std::size_t num_elements, std::size_t factor, Device device) {
  std::vector<float> values(num_elements);
  for (std::size_t i = 0; i < num_elements; ++i)
    values[i] = static_cast<float>(factor * (i % 1000));
  return Tensor::from(values, {num_elements}, device);
}

struct Measurement {
  double seconds = 1e9;        // of the fastest run
  std::size_t sent_bytes = 0;  // by the busiest rank, counted by the communicator
  double largest_error = 0;
};

// All ranks all-reduce a buffer several times. Rank r has the factor r + 1, so the sum has 10.
Measurement measure(plan::AllReducePlan plan, std::size_t num_elements, int repeats,
                    const std::vector<Device>& devices) {
  Measurement result;
  trace::reset_collective_counts();
  tutorial::on_ranks(
      devices, [&](comm::Communicator& communicator, std::size_t rank, Device device) {
        const Tensor own = make_ramp(num_elements, rank + 1, device);
        const Tensor buffer = Tensor::empty(own.shape(), own.dtype(), device);
        for (int repeat = 0; repeat < repeats; ++repeat) {
          buffer.copy_from(own);
          communicator.barrier().wait();
          const auto start = std::chrono::steady_clock::now();
          communicator.all_reduce(buffer, {.plan = plan}).wait();
          buffer.stream().synchronize();
          const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
          if (rank == 0) result.seconds = std::min(result.seconds, elapsed.count());
        }
        if (rank != 0) return;
        const Tensor sum = make_ramp(num_elements, kRanks * (kRanks + 1) / 2, device);
        result.largest_error = tutorial::max_abs_difference(buffer, sum);
      });
  for (const trace::CollectiveCount& count : trace::collective_counts()) {
    if (count.operation == "all_reduce") {
      result.sent_bytes = std::max(result.sent_bytes, count.num_bytes / count.num_calls);
    }
  }
  return result;
}

void run_on_threads(const tutorial::Options& options) {
  const std::size_t num_elements = options.fast ? 1u << 20 : 1u << 24;
  const double num_bytes = static_cast<double>(num_elements * sizeof(float));
  const std::vector<Device> devices = options.devices(kRanks);
  fmt::print("{} threads as ranks, a buffer of {:.0f} MiB each\n", kRanks, num_bytes / (1 << 20));
  fmt::print(
      "algbw = buffer / time; busbw = algbw * 2(n-1)/n: what each link would carry in a ring\n");
  for (const plan::AllReducePlan plan :
       {plan::AllReducePlan::reduce_broadcast, plan::AllReducePlan::ring}) {
    const Measurement m = measure(plan, num_elements, options.fast ? 5 : 10, devices);
    const double algbw = num_bytes / m.seconds;
    tutorial::check_close(fmt::format("{}: the sum against one device", to_string(plan)),
                          m.largest_error, 0);
    fmt::print(
        "  {:.2f} ms, algbw {:.2f} GB/s, busbw {:.2f} GB/s; the busiest rank sent {:.3f} buffers\n",
        1e3 * m.seconds, 1e-9 * algbw, 1e-9 * algbw * 2 * (kRanks - 1) / kRanks,
        static_cast<double>(m.sent_bytes) / num_bytes);
    if (plan == plan::AllReducePlan::ring) {
      tutorial::check("every rank of the ring sent 2(n-1)/n of the buffer",
                      m.sent_bytes * kRanks == 2 * (kRanks - 1) * num_elements * sizeof(float));
    }
  }
}

void run(const tutorial::Options& options) {
  tutorial::step(1, "the ring, chunk by chunk");
  walk_through_ring();
  tutorial::step(2, "what it costs");
  compare_costs();
  tutorial::step(3, "on threads");
  run_on_threads(options);
  tutorial::note_sharing(options.devices(kRanks));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kQuestion = "How does the ring all-reduce work without a bottleneck?";
  return lockstep::tutorial::run_main(argc, argv, kQuestion, run, {.num_devices = kRanks});
}
