// The Communicator over an MPI library; mpi_group.h states its contract.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/mpi/mpi_group.h"
#include "engine/comm/reduce.h"
#include "engine/comm/work.h"
#include "engine/core/error.h"
#include "engine/runtime/wait.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

// Throws Error{Comm}: "[MPI_Allreduce] failed: ..." in MPI's own words.
void check_mpi(int result, std::string_view call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(result, words.data(), &length);
  fail(ErrorCode::Comm, call.substr(0, call.find('(')), "failed: {}", words.data());
}

// MPI_CHECK(MPI_Barrier(communicator));
#define MPI_CHECK(call) check_mpi((call), #call)

// --- the time limit of calls ---

// Ends the process with exit code 1 if the scope is not left in time, because nothing can interrupt
// a call into MPI. A thread of the process, which looks every tenth of a second, first prints one
// line that says what the process waits for.
class TimeLimit {
 public:
  TimeLimit(double seconds, std::function<std::string()> error_line)
      : deadline_(runtime::deadline_after(seconds)), error_line_(std::move(error_line)) {
    const std::lock_guard lock(active().mutex);
    active().limits.push_back(this);
  }
  ~TimeLimit() {
    const std::lock_guard lock(active().mutex);
    std::erase(active().limits, this);
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  struct Active {
    std::mutex mutex;
    std::vector<const TimeLimit*> limits;
  };

  static Active& active() {
    static Active& active = []() -> Active& {
      auto& made = *new Active;  // its thread runs until the process ends
      std::thread([&made] { watch(made); }).detach();
      return made;
    }();
    return active;
  }

  [[noreturn]] static void watch(Active& active) {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::lock_guard lock(active.mutex);
      for (const TimeLimit* limit : active.limits) {
        if (!runtime::has_passed(limit->deadline_)) continue;
        std::fflush(stdout);
        fmt::print(stderr, "{}\n", limit->error_line_());
        std::fflush(stderr);
        std::_Exit(exit_code(ErrorCode::Timeout));  // MPI is in use: nothing can be cleaned up
      }
    }
  }

  runtime::Deadline deadline_;
  std::function<std::string()> error_line_;
};

std::string late_line(std::string_view operation, int rank, double seconds, std::string_view what) {
  return fmt::format(
      "[{}] rank {} waited {} s in {} for the other ranks: one of them has ended, stands still, or "
      "did not call it; MPI cannot abandon a call, so this process ends",
      operation, rank, seconds, what);
}

TimeLimit limit_of(const char* what, int rank, double seconds) {
  return {seconds, [=] { return late_line("mpi", rank, seconds, what); }};
}

// --- the process's one use of MPI ---

// After an error MPI is not finished at exit: that would wait for ranks that cannot come.
std::atomic<bool> has_given_up{false};

// Has no time limit: another rank may still be working on its own.
void finish_mpi() {
  if (!has_given_up) MPI_Finalize();
}

struct MpiSession {
  int rank = 0;
  int world_size = 0;
  std::string library;  // "Open MPI v4.1.4"

  explicit MpiSession(const MpiGroupOptions& options);
};

// Starts MPI at the first call.
const MpiSession& mpi_session(const MpiGroupOptions& options) {
  static const MpiSession& session = *new MpiSession(options);
  return session;
}

MpiSession::MpiSession(const MpiGroupOptions& options) {
  int level = MPI_THREAD_SINGLE;
  {
    const TimeLimit limit = limit_of("MPI_Init", options.rank, options.timeout_seconds);
    MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    std::atexit(finish_mpi);
  }
  require(level >= MPI_THREAD_MULTIPLE, ErrorCode::Comm, "mpi",
          "needs an MPI library that serves several threads at once (MPI_THREAD_MULTIPLE), found "
          "level {} of it; use another library, or --comm own",
          level);
  MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_CHECK(MPI_Get_library_version(version.data(), &length));
  // The first part of "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.1\n...".
  library = version.data();
  library.resize(std::min(library.size(), library.find_first_of(",\n")));
  std::ranges::replace(library, '\t', ' ');
}

// --- moving data ---

// halves are moved as integers, and never reduced.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return MPI_DOUBLE;
    case DType::float32:
      return MPI_FLOAT;
    case DType::bfloat16:
    case DType::float16:
      return MPI_UINT16_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::uint8:
      return MPI_UINT8_T;
  }
  fail(ErrorCode::DType, "mpi", "unknown dtype");
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    default:
      return MPI_SUM;  // average: the values were multiplied before
  }
}

void require_served(const CollectiveCall& call) {
  const CallHeader& header = call.header;
  const char* name = name_of(header.operation);
  require(!is_point_to_point(header.operation), ErrorCode::Usage, name,
          "MPI carries only collectives here; for messages use --comm own");
  require(header.device == DeviceType::cpu, ErrorCode::Device, name,
          "MPI moves CPU tensors here, found {}; use --comm nccl or own",
          lockstep::describe(call.input));
  require(header.plan == plan::AllReducePlan::automatic, ErrorCode::Usage, name,
          "MPI chooses its own algorithm, found the plan {}; use --plan auto, or --comm own",
          plan::to_string(header.plan));
  const bool is_half = header.dtype == DType::bfloat16 || header.dtype == DType::float16;
  require(!is_half || !is_reduction(header.operation), ErrorCode::DType, name,
          "MPI does not reduce {}; convert to float32 first, or use --comm own",
          lockstep::to_string(header.dtype));
  require(header.num_elements <= INT_MAX, ErrorCode::Shape, name,
          "MPI counts to {} elements, found {}; cut the call, or use --comm own", INT_MAX,
          header.num_elements);
}

// Carries out a collective. A barrier does nothing here, because comparing the calls was one.
void move_with_mpi(const CollectiveCall& call, MPI_Comm communicator, int rank, int world_size) {
  const CallHeader& header = call.header;
  if (header.num_elements == 0) return;
  const MPI_Datatype type = mpi_type(header.dtype);
  const MPI_Op op = mpi_op(header.op);
  const auto count = static_cast<int>(header.num_elements);
  void* const data = call.input.raw();
  const double factor = factor_of(header.op, world_size);
  switch (header.operation) {
    case Operation::all_reduce:
      multiply(call.input.stream(), factor, call.input.view());
      MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, data, count, type, op, communicator));
      return;
    case Operation::broadcast:
      MPI_CHECK(MPI_Bcast(data, count, type, header.root, communicator));
      return;
    case Operation::all_gather: {
      const std::size_t offset = static_cast<std::size_t>(rank) * header.num_elements;
      const bool is_in_place = call.output.slice(offset, call.input.shape()).raw() == data;
      MPI_CHECK(MPI_Allgather(is_in_place ? MPI_IN_PLACE : data, count, type, call.output.raw(),
                              count, type, communicator));
      return;
    }
    case Operation::reduce_scatter: {
      const Tensor values = factor != 1 ? call.input.clone() : call.input;
      multiply(values.stream(), factor, values.view());
      MPI_CHECK(MPI_Reduce_scatter_block(values.raw(), call.output.raw(),
                                         static_cast<int>(call.output.num_elements()), type, op,
                                         communicator));
      return;
    }
    default:
      return;
  }
}

// Waits for ranks that may be late, without taking the core that they may need: the library itself
// would spin.
void wait_politely(MPI_Request request) {
  int is_done = 0;
  for (unsigned round = 0;; ++round) {
    MPI_CHECK(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
    if (is_done != 0) return;
    runtime::poll_pause(round);
  }
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const MpiSession& session, double timeout_seconds)
      : session_(session),
        numbers_(session.world_size),
        all_calls_(static_cast<std::size_t>(session.world_size)) {
    set_timeout_seconds(timeout_seconds);
    const TimeLimit limit = limit_of("making a communicator", rank(), timeout_seconds);
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
    MPI_CHECK(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
  }

  ~MpiCommunicator() override {
    async_.finish();
    if (!failure_.is_set()) MPI_Comm_free(&communicator_);
  }

  int rank() const override { return session_.rank; }
  int world_size() const override { return session_.world_size; }
  std::string description() const override { return "mpi: " + session_.library; }
  std::string_view transport() const override { return "mpi"; }
  void abort(const std::string& why) override { give_up(aborted_by(rank(), why)); }
  plan::AllReducePlan plan_for(std::size_t) const override {
    return plan::AllReducePlan::automatic;
  }

 private:
  Work submit(CollectiveCall call, Launch launch) override {
    require_served(call);
    call.header.sequence = numbers_.next(call.header.operation, call.peer);
    if (launch == Launch::async) {
      return async_.start(std::move(call), [this](const CollectiveCall& c) { run(c); });
    }
    async_.finish();
    run(call);
    return {};
  }

  void run(const CollectiveCall& call) {
    const CallHeader& header = call.header;
    const char* name = name_of(header.operation);
    trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                           header.num_elements * size_of(header.dtype));
    span.set_sequence(static_cast<std::int64_t>(header.sequence));
    failure_.throw_if_set();
    try {
      const TimeLimit limit(call.timeout_seconds, [&] {
        return late_line(name, rank(), call.timeout_seconds, to_string(header));
      });
      compare_calls(call);
      move_with_mpi(call, communicator_, rank(), world_size());
    } catch (const Error& error) {
      give_up(error);
      throw;
    }
    trace::count_collective(rank(), name, least_bytes_sent(header, rank(), world_size()));
  }

  // Throws the same error on every rank if their calls differ.
  void compare_calls(const CollectiveCall& call) {
    const CallHeader& mine = call.header;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_CHECK(MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all_calls_.data(), sizeof mine, MPI_BYTE,
                             communicator_, &request));
    wait_politely(request);
    const CallHeader& first = all_calls_.front();
    const auto other = std::ranges::find_if(
        all_calls_, [&](const CallHeader& theirs) { return !same_call(theirs, first); });
    if (other == all_calls_.end()) return;
    throw Error(
        ErrorCode::Comm, "collective",
        describe_difference(static_cast<int>(other - all_calls_.begin()), *other, 0, first));
  }

  // Only the first error counts, and MPI is not finished.
  void give_up(const Error& error) {
    has_given_up = true;
    failure_.set(error);
  }

  const MpiSession& session_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  CallNumbers numbers_;
  FirstFailure failure_;
  std::vector<CallHeader> all_calls_;  // by rank: those that are compared
  AsyncCalls async_{"mpi comm"};       // ends first
};

}  // namespace

bool has_mpi() {
  return true;
}

const std::string& no_mpi_reason() {
  static const std::string reason;
  return reason;
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions& options) {
  const MpiSession& session = mpi_session(options);
  require(
      session.rank == options.rank && session.world_size == options.world_size, ErrorCode::Usage,
      "mpi",
      "this process is rank {} of {}{}, but MPI says rank {} of {} (the library: {}); start the "
      "program by the mpirun of that library or by srun, or use --comm own",
      options.rank, options.world_size,
      options.started_by.empty() ? "" : fmt::format(" (started by: {})", options.started_by),
      session.rank, session.world_size, session.library);
  return std::make_unique<MpiCommunicator>(session, options.timeout_seconds);
}

}  // namespace lockstep::comm
