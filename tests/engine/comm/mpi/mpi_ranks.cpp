// One rank of an MPI group: mpi_test.cpp starts it by mpirun with the name of what it shall do. It
// prints "rank 1: <error>" for an error that it was to get, and exits 1 for one that it was not.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "engine/comm/collective_call.h"
#include "engine/comm/mpi/mpi_group.h"
#include "engine/core/error.h"
#include "tests/engine/comm/comm_test_data.h"

namespace lockstep::comm {
namespace {

void all_reduce(Communicator& group) {
  constexpr std::array kTypes{DType::float32, DType::float64, DType::int32, DType::int64};
  check_all_reduces(group, kTypes, Device{});
}

void moves(Communicator& group) {
  constexpr std::array kTypes{DType::uint8, DType::bfloat16, DType::float16, DType::int64};
  check_moves(group, kTypes, Device{});
}

void different_calls(Communicator& group) {
  const Tensor buffer = Tensor::zeros({group.rank() == 1 ? 7u : 8u});
  group.all_reduce(buffer);
}

// A rank that stands still outside MPI; mpirun ends it with the others.
void late_rank(Communicator& group) {
  group.barrier();
  if (group.rank() == 1) pause();
  group.all_reduce(Tensor::zeros({8}));
}

void aborted(Communicator& group) {
  if (group.rank() == 1) group.abort("its data is gone");
  group.all_reduce(Tensor::zeros({8}));
}

void message(Communicator& group) {
  group.send(Tensor::zeros({8}), 0);
}

void halves(Communicator& group) {
  group.all_reduce(Tensor::zeros({8}, DType::bfloat16));
}

void named_plan(Communicator& group) {
  CollectiveOptions options;
  options.plan = plan::AllReducePlan::ring;
  group.all_reduce(Tensor::zeros({8}), options);
}

int run(const std::string& name) {
  const std::map<std::string, void (*)(Communicator&)> all{
      {"all_reduce", all_reduce}, {"moves", moves},     {"different_calls", different_calls},
      {"late_rank", late_rank},   {"aborted", aborted}, {"stopped_at_start", aborted},
      {"message", message},       {"halves", halves},   {"named_plan", named_plan},
  };
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  MpiGroupOptions options;
  options.rank = name == "wrong_rank" ? 7 : rank == nullptr ? 0 : std::atoi(rank);
  options.world_size = size == nullptr ? 1 : std::atoi(size);
  options.started_by = "a test";
  const bool hangs = name == "late_rank" || name == "stopped_at_start";
  options.timeout_seconds = hangs ? 2 : 60;
  if (name == "stopped_at_start" && options.rank == 1) raise(SIGSTOP);
  try {
    const auto group = make_mpi_communicator(options);
    all.at(name)(*group);
  } catch (const Error& error) {
    fmt::print("rank {}: {}: {}\n", options.rank, to_string(error.code()), error.what());
    std::fflush(stdout);
    ::sleep(1);  // mpirun ends all ranks when the first has failed: the others are to speak, too
    return exit_code(error.code());
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::comm

int main(int, char** argv) {
  return lockstep::comm::run(argv[1]);
}
