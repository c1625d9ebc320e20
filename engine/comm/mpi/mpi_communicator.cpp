// The Communicator over an MPI library; see mpi_group.h for what it promises.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/mpi/mpi_group.h"
#include "engine/comm/mpi/mpi_session.h"
#include "engine/comm/reduce.h"
#include "engine/comm/work.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;
// MPI counts in int; larger buffers go in pieces of so many bytes or elements.
constexpr std::size_t kPiece = std::size_t{1} << 30;

// Calls move(offset, count) for pieces that MPI can count.
template <typename Move>
void for_each_piece(std::size_t total, Move move) {
  for (std::size_t begin = 0; begin < total; begin += kPiece) {
    move(begin, static_cast<int>(std::min(kPiece, total - begin)));
  }
}

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
  require(header.device == DeviceType::cpu, ErrorCode::Device, name,
          "MPI moves CPU tensors here, found {}; use --comm nccl or own",
          lockstep::describe(call.input));
  require(header.plan == plan::AllReducePlan::automatic, ErrorCode::Usage, name,
          "MPI chooses its own algorithm, found the plan {}; use --plan auto, or --comm own",
          plan::to_string(header.plan));
  const bool is_half = header.dtype == DType::bfloat16 || header.dtype == DType::float16;
  const bool reduces =
      header.operation == Operation::all_reduce || header.operation == Operation::reduce_scatter;
  require(!is_half || !reduces, ErrorCode::DType, name,
          "MPI does not reduce {}; convert to float32 first, or use --comm own",
          lockstep::to_string(header.dtype));
  if (!call.output.defined()) return;
  const std::size_t part = std::min(call.input.num_elements(), call.output.num_elements());
  require(part <= INT_MAX, ErrorCode::Shape, name,
          "MPI counts to {} elements of each rank, found {}; cut the call, or use --comm own",
          INT_MAX, part);
}

// Carries out a collective; a barrier does nothing here, since comparing the calls was one.
void move_with_mpi(const CollectiveCall& call, MPI_Comm communicator, int rank, int world_size) {
  const CallHeader& header = call.header;
  if (header.num_elements == 0) return;
  const MPI_Datatype type = mpi_type(header.dtype);
  const MPI_Op op = mpi_op(header.op);
  const double factor = factor_of(header.op, world_size);
  switch (header.operation) {
    case Operation::all_reduce: {
      const TensorView buffer = call.input.view();
      multiply(call.input.stream(), factor, buffer);
      for_each_piece(buffer.num_elements, [&](std::size_t begin, int count) {
        void* data = buffer.part(begin, static_cast<std::size_t>(count)).data;
        MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, data, count, type, op, communicator));
      });
      return;
    }
    case Operation::broadcast: {
      const TensorView buffer = call.input.view();
      for_each_piece(buffer.num_elements, [&](std::size_t begin, int count) {
        void* data = buffer.part(begin, static_cast<std::size_t>(count)).data;
        MPI_CHECK(MPI_Bcast(data, count, type, header.root, communicator));
      });
      return;
    }
    case Operation::all_gather: {
      const std::size_t count = call.input.num_elements();
      const Tensor mine =
          call.output.slice(static_cast<std::size_t>(rank) * count, call.input.shape());
      const bool is_in_place = mine.raw() == call.input.raw();
      MPI_CHECK(MPI_Allgather(is_in_place ? MPI_IN_PLACE : call.input.raw(),
                              static_cast<int>(count), type, call.output.raw(),
                              static_cast<int>(count), type, communicator));
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

// A call in numbers: the fields that same_call() compares.
using CallWords = std::array<std::uint64_t, 3>;

CallWords words_of(const CallHeader& call) {
  const auto byte = [](auto value, int position) {
    return std::uint64_t{static_cast<std::uint8_t>(value)} << (8 * position);
  };
  return {call.sequence, call.num_elements,
          byte(call.operation, 0) | byte(call.dtype, 1) | byte(call.device, 2) | byte(call.op, 3) |
              std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32};
}

CallHeader call_of(const CallWords& words) {
  const auto byte = [&](int position) {
    return static_cast<std::uint8_t>(words[2] >> (8 * position));
  };
  CallHeader call;
  call.sequence = words[0];
  call.num_elements = words[1];
  call.operation = static_cast<Operation>(byte(0));
  call.dtype = static_cast<DType>(byte(1));
  call.device = static_cast<DeviceType>(byte(2));
  call.op = static_cast<ReduceOp>(byte(3));
  call.root = static_cast<std::int32_t>(words[2] >> 32);
  return call;
}

// Waits for ranks that may come late without taking the core that they may need: the library itself
// would spin.
void wait_politely(MPI_Request request) {
  int is_done = 0;
  for (unsigned round = 0;; ++round) {
    MPI_CHECK(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
    if (is_done != 0) return;
    runtime::poll_pause(round);
  }
}

// A message on its way: MPI reads it until the requests are done.
struct Outgoing {
  CallWords header;
  std::vector<std::byte> data;
  std::vector<MPI_Request> requests;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiSession& session, double timeout_seconds)
      : session_(session), numbers_(session.world_size()), all_words_(num_ranks()) {
    set_timeout_seconds(timeout_seconds);
    const MpiTimeLimit limit("making a communicator", rank(), timeout_seconds);
    const auto inside = session_.enter();
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
    MPI_CHECK(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
  }

  // Finishes asynchronous calls and messages that were sent.
  ~MpiCommunicator() override {
    async_.finish();
    const auto inside = session_.enter();
    for (auto& message : outgoing_) {
      if (failure_.is_set()) {
        message.release();  // MPI may still read it
        continue;
      }
      const MpiTimeLimit limit("messages that were sent", rank(), timeout_seconds());
      MPI_Waitall(static_cast<int>(message->requests.size()), message->requests.data(),
                  MPI_STATUSES_IGNORE);
    }
    if (!failure_.is_set()) MPI_Comm_free(&communicator_);
  }

  int rank() const override { return session_.rank(); }
  int world_size() const override { return session_.world_size(); }
  std::string description() const override { return "mpi: " + session_.library(); }
  std::string_view transport() const override { return "mpi"; }
  void abort(const std::string& why) override { give_up(aborted_by(rank(), why)); }
  plan::AllReducePlan plan_for(std::size_t) const override {
    return plan::AllReducePlan::automatic;
  }

 private:
  std::size_t num_ranks() const { return static_cast<std::size_t>(session_.world_size()); }

  Work submit(CollectiveCall call, Launch launch) override {
    require_served(call);
    call.header.sequence = numbers_.next(call.header.operation, call.peer);
    if (launch == Launch::async) {
      return async_.start(std::move(call), {}, [this](const CollectiveCall& c) { run(c); });
    }
    async_.finish();
    run(call);
    return {};
  }

  void run(const CollectiveCall& call);
  void compare_calls(const CollectiveCall& call);
  void send_message(const CollectiveCall& call);
  void receive_message(const CollectiveCall& call);

  // The first error stays, and MPI is not finished.
  void give_up(const Error& error) {
    session_.give_up();
    failure_.set(error);
  }

  MpiSession& session_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  CallNumbers numbers_;
  FirstFailure failure_;
  std::vector<CallWords> all_words_;  // by rank: the calls that are compared
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  AsyncCalls async_{"mpi comm"};  // ends first
};

void MpiCommunicator::run(const CollectiveCall& call) {
  const CallHeader& header = call.header;
  const char* name = name_of(header.operation);
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                         header.num_elements * size_of(header.dtype));
  span.set_sequence(static_cast<std::int64_t>(header.sequence));
  failure_.throw_if_set();
  try {
    const MpiTimeLimit limit(call, rank());
    const auto inside = session_.enter();
    std::erase_if(outgoing_, [](const auto& message) {
      int are_sent = 0;
      MPI_Testall(static_cast<int>(message->requests.size()), message->requests.data(), &are_sent,
                  MPI_STATUSES_IGNORE);
      return are_sent != 0;
    });
    if (header.operation == Operation::send) {
      send_message(call);
    } else if (header.operation == Operation::recv) {
      receive_message(call);
    } else {
      compare_calls(call);
      move_with_mpi(call, communicator_, rank(), world_size());
    }
  } catch (const Error& error) {
    give_up(error);
    throw;
  }
  trace::count_collective(rank(), name, least_bytes_sent(header, rank(), world_size()));
}

// Throws the same error on every rank when they have come with different calls.
void MpiCommunicator::compare_calls(const CollectiveCall& call) {
  const CallWords mine = words_of(call.header);
  constexpr int kNumWords = static_cast<int>(std::tuple_size_v<CallWords>);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_CHECK(MPI_Iallgather(mine.data(), kNumWords, MPI_UINT64_T, all_words_.data(), kNumWords,
                           MPI_UINT64_T, communicator_, &request));
  wait_politely(request);
  const auto other = std::ranges::find_if(
      all_words_, [&](const CallWords& words) { return words != all_words_.front(); });
  if (other == all_words_.end()) return;
  throw Error(ErrorCode::Comm, "collective",
              describe_difference(static_cast<int>(other - all_words_.begin()), call_of(*other), 0,
                                  call_of(all_words_.front())));
}

// The data is copied, so the call is done at once; MPI reads the copy when the receiver comes, and
// goes on with it in every later call.
void MpiCommunicator::send_message(const CollectiveCall& call) {
  Outgoing& message = *outgoing_.emplace_back(std::make_unique<Outgoing>());
  message.header = words_of(call.header);
  message.data.resize(call.input.num_bytes());
  if (!message.data.empty()) {
    std::memcpy(message.data.data(), call.input.raw(), message.data.size());
  }
  const auto post = [&](const void* data, int num_bytes, int tag) {
    MPI_Request& request = message.requests.emplace_back(MPI_REQUEST_NULL);
    MPI_CHECK(MPI_Isend(data, num_bytes, MPI_BYTE, call.peer, tag, communicator_, &request));
  };
  post(&message.header, sizeof message.header, kHeaderTag);
  for_each_piece(message.data.size(), [&](std::size_t begin, int num_bytes) {
    post(message.data.data() + begin, num_bytes, kDataTag);
  });
}

void MpiCommunicator::receive_message(const CollectiveCall& call) {
  const auto receive = [&](void* data, int num_bytes, int tag) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_CHECK(MPI_Irecv(data, num_bytes, MPI_BYTE, call.peer, tag, communicator_, &request));
    wait_politely(request);
  };
  CallWords words;
  receive(words.data(), sizeof words, kHeaderTag);
  const CallHeader sent = call_of(words);
  if (sent.num_elements != call.header.num_elements || sent.dtype != call.header.dtype) {
    throw Error(ErrorCode::Comm, name_of(Operation::recv),
                describe_difference(rank(), call.header, call.peer, sent));
  }
  for_each_piece(call.input.num_bytes(), [&](std::size_t begin, int num_bytes) {
    receive(static_cast<std::byte*>(call.input.raw()) + begin, num_bytes, kDataTag);
  });
}

}  // namespace

bool has_mpi() {
  return true;
}

const std::string& no_mpi_reason() {
  static const std::string reason;
  return reason;
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions& options) {
  MpiSession& session = MpiSession::get(options);
  require(
      session.rank() == options.rank && session.world_size() == options.world_size,
      ErrorCode::Usage, "mpi",
      "this process is rank {} of {}{}, but MPI says rank {} of {} (the library: {}); start the "
      "program by the mpirun of that library or by srun, or use --comm own",
      options.rank, options.world_size,
      options.started_by.empty() ? "" : fmt::format(" (started by: {})", options.started_by),
      session.rank(), session.world_size(), session.library());
  return std::make_unique<MpiCommunicator>(session, options.timeout_seconds);
}

}  // namespace lockstep::comm
