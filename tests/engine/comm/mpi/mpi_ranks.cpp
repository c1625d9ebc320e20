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

constexpr std::array kOps{ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min,
                          ReduceOp::max};
constexpr std::array kTypes{DType::float32, DType::float64, DType::int32, DType::int64};
constexpr std::array kLaunches{Launch::blocking, Launch::async};

void expect(bool condition, const std::string& what) {
  require(condition, ErrorCode::Numeric, "test", "{}", what);
}

void all_reduce(Communicator& group) {
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::average && !is_floating_point(dtype)) continue;
      for (const Launch launch : kLaunches) {
        for (const std::size_t length : kLengths) {
          const Tensor buffer = small_values(group.rank(), length, dtype);
          CollectiveOptions options;
          options.op = op;
          options.launch = launch;
          group.all_reduce(buffer, options).wait();
          const std::vector<double> reduced = buffer.to(DType::float64).to_vector<double>();
          for (std::size_t i = 0; i < length; ++i) {
            expect(reduced[i] == reduced_small_value(op, group.world_size(), i),
                   fmt::format("{} of element {} is {}", to_string(op), i, reduced[i]));
          }
        }
      }
    }
  }
}

// Every dtype is moved, whether or not it can be reduced.
void moves(Communicator& group) {
  const auto n = static_cast<std::size_t>(group.world_size());
  const auto rank = static_cast<std::size_t>(group.rank());
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::float16, DType::int64}) {
    const Tensor mine = Tensor::full({3}, group.rank() + 1, dtype);
    const Tensor all = Tensor::zeros({3 * n}, dtype);
    group.all_gather(mine, all);
    group.all_gather(all.rows(3 * rank, 3 * rank + 3), all, Launch::async).wait();
    for (std::size_t i = 0; i < 3 * n; ++i) {
      expect(all.to(DType::float64).to_vector<double>()[i] == static_cast<double>(i / 3 + 1),
             "all_gather");
    }
    group.broadcast(mine, group.world_size() - 1);
    expect(mine.to(DType::float64).to_vector<double>()[2] == static_cast<double>(n), "broadcast");
  }
  const Tensor input = small_values(group.rank(), 5 * n, DType::float64);
  const std::vector<double> before = input.to_vector<double>();
  const Tensor output = Tensor::zeros({5}, DType::float64, input.device());
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
    CollectiveOptions options;
    options.op = op;
    group.reduce_scatter(input, output, options);
    for (std::size_t i = 0; i < 5; ++i) {
      expect(output.to_vector<double>()[i] ==
                 reduced_small_value(op, group.world_size(), rank * 5 + i),
             "reduce_scatter");
    }
    expect(input.to_vector<double>() == before, "reduce_scatter changed its input");
  }
  group.barrier();
  group.barrier(Launch::async).wait();
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
      {"all_reduce", all_reduce},
      {"moves", moves},
      {"different_calls", different_calls},
      {"late_rank", late_rank},
      {"aborted", aborted},
      {"stopped_at_start", aborted},
      {"message", message},
      {"halves", halves},
      {"named_plan", named_plan},
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
