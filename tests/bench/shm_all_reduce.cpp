// The engine's all-reduce between processes of this host; the peer of mpi_all_reduce.c, whose
// arguments, repetitions and output it shares.
//   shm_all_reduce RANKS PLAN BYTES...     prints a line "bytes microseconds" per size
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "engine/comm/plan_communicator.h"
#include "engine/comm/shm_group.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::comm {
namespace {

double seconds_of(Communicator& communicator, std::size_t num_bytes) {
  using Clock = std::chrono::steady_clock;
  const int repetitions = num_bytes > (8u << 20) ? 10 : num_bytes > (1u << 20) ? 50 : 400;
  const Tensor buffer = Tensor::zeros({num_bytes / sizeof(float)});
  for (int i = 0; i < 5; ++i) communicator.all_reduce(buffer);
  communicator.barrier();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < repetitions; ++i) communicator.all_reduce(buffer);
  return std::chrono::duration<double>(Clock::now() - start).count() / repetitions;
}

// One core for each rank where there are enough, as mpirun does by itself.
void bind_to_core(int rank, int world_size) {
  const std::vector<int> cores = runtime::allowed_cores();
  if (static_cast<std::size_t>(world_size) > cores.size()) return;
  runtime::bind_to({cores[static_cast<std::size_t>(rank)]});
}

void run_rank(int rank, int world_size, plan::AllReducePlan plan, const std::string& address,
              const std::vector<std::size_t>& sizes) {
  bind_to_core(rank, world_size);
  ShmTransportOptions options;
  options.index = rank;
  options.ranks.resize(static_cast<std::size_t>(world_size));
  std::iota(options.ranks.begin(), options.ranks.end(), 0);
  PlanCommunicator communicator(std::make_unique<ShmTransport>(
      ShmSegment::open(address, ShmTransport::segment_bytes(world_size)), options));
  communicator.set_default_plan(plan);
  for (const std::size_t num_bytes : sizes) {
    const double seconds = seconds_of(communicator, num_bytes);
    if (rank == 0) std::printf("%zu %.2f\n", num_bytes, seconds * 1e6);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s RANKS PLAN BYTES...\n", argv[0]);
    return 2;
  }
  const int world_size = std::atoi(argv[1]);
  const plan::AllReducePlan plan = plan::parse_all_reduce_plan(argv[2]);
  std::vector<std::size_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  const auto segment = ShmSegment::create(ShmTransport::segment_bytes(world_size));
  for (int rank = 1; rank < world_size; ++rank) {
    if (fork() == 0) {
      run_rank(rank, world_size, plan, segment.address(), sizes);
      _exit(0);
    }
  }
  run_rank(0, world_size, plan, segment.address(), sizes);
  while (wait(nullptr) > 0) {
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  return lockstep::comm::run(argc, argv);
}
