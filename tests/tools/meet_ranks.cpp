// A program that only wants to be a rank: it finds out who it is, meets the others, adds up all
// ranks' numbers through the store, and prints the sum.
//   meet_ranks [seconds]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "engine/core/error.h"
#include "engine/launch/rendezvous.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  try {
    launch::JoinOptions options;
    if (argc > 1) options.timeout_seconds = std::atof(argv[1]);
    const launch::Job job = launch::join_job(launch::current_environment(), options);
    const launch::RankEnvironment& rank = job.rank();
    job.store()->add("sum", rank.rank);
    job.store()->barrier("added", rank.rank, rank.world_size, 30);
    fmt::print("rank {} of {}, local rank {} of {}, sum {}\n", rank.rank, rank.world_size,
               rank.local_rank, rank.local_world_size, *job.store()->try_get("sum"));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "meet_ranks: %s\n", error.what());
    return exit_code(error.code());
  }
}
