#include "engine/comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/comm/comm_errors.h"
#include "engine/comm/mpi/mpi_data.h"
#include "engine/comm/mpi/mpi_group.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

// What goes before a message's data.
struct MessageHeader {
  std::uint64_t sequence = 0;
  std::uint64_t num_elements = 0;
  std::int64_t dtype = 0;
};

MessageHeader header_of(const CallHeader& call) {
  return {call.sequence, call.num_elements, static_cast<std::int64_t>(call.dtype)};
}

// A message on its way: what MPI reads until the requests are done.
struct Outgoing {
  MessageHeader header;
  std::vector<std::byte> data;
  std::vector<MPI_Request> requests;
};

// Calls move(offset, count) for pieces that MPI can count.
template <typename Move>
void for_each_piece(std::size_t num_bytes, Move move) {
  for (std::size_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
    move(begin, static_cast<int>(std::min(kPieceBytes, num_bytes - begin)));
  }
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiSession& session, double timeout_seconds)
    : session_(session), membership_(session, timeout_seconds), numbers_(session.world_size()) {
  set_timeout_seconds(timeout_seconds);
}

void MpiCommunicator::abort(const std::string& why) {
  membership_.break_group(aborted_by(rank(), why));
}

Work MpiCommunicator::submit(CollectiveCall call, Launch launch) {
  require(call.header.device == DeviceType::cpu, ErrorCode::Device, name_of(call.header.operation),
          "MPI moves CPU tensors here, found {}; use --comm nccl or own",
          lockstep::describe(call.input));
  require(call.header.plan == plan::AllReducePlan::automatic, ErrorCode::Usage,
          name_of(call.header.operation),
          "MPI chooses its own algorithm, found the plan {}; use --plan auto, or --comm own",
          plan::to_string(call.header.plan));
  require_served(call);
  call.header.sequence = numbers_.next(call.header.operation, call.peer);
  if (launch == Launch::async) {
    return async_.start(std::move(call), {}, [this](const CollectiveCall& c) { run(c); });
  }
  async_.finish();
  run(call);
  return {};
}

void MpiCommunicator::run(const CollectiveCall& call) {
  const CallHeader& header = call.header;
  const char* name = name_of(header.operation);
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                         header.num_elements * size_of(header.dtype));
  span.set_sequence(static_cast<std::int64_t>(header.sequence));
  if (call.trace_flow != 0) span.pass_flow(call.trace_flow);
  membership_.throw_if_failed(header);
  if (header.operation == Operation::send) {
    send_message(call);
  } else if (header.operation == Operation::recv) {
    receive_message(call);
  } else {
    run_collective(call);
  }
  trace::count_collective(rank(), name, least_bytes_sent(header, rank(), world_size()));
}

void MpiCommunicator::run_collective(const CollectiveCall& call) {
  membership_.compare_calls(call.header, call.timeout_seconds);
  try {
    const MpiWatchdog::Scope watched(watchdog_, call.header, call.timeout_seconds);
    const std::lock_guard lock(session_.mutex());
    move_with_mpi(call, membership_.communicator(), rank(), world_size());
  } catch (const Error& error) {
    membership_.break_group(error);
    throw;
  }
  membership_.count_collective();
}

// The data is copied, so the call is done at once; MPI reads the copy when the receiver comes. Some
// thread must be inside MPI for that: sends_ looks after the message.
void MpiCommunicator::send_message(const CollectiveCall& call) {
  auto message = std::make_shared<Outgoing>();
  message->header = header_of(call.header);
  message->data.resize(call.input.num_bytes());
  if (!message->data.empty()) {
    std::memcpy(message->data.data(), call.input.raw(), message->data.size());
  }
  const auto post = [&](const void* data, int num_bytes, int tag) {
    MPI_Request& request = message->requests.emplace_back(MPI_REQUEST_NULL);
    MPI_CHECK(
        MPI_Isend(data, num_bytes, MPI_BYTE, call.peer, tag, membership_.communicator(), &request));
  };
  {
    const std::lock_guard lock(session_.mutex());
    post(&message->header, sizeof message->header, kHeaderTag);
    for_each_piece(message->data.size(), [&](std::size_t begin, int num_bytes) {
      post(message->data.data() + begin, num_bytes, kDataTag);
    });
  }
  sends_.post([this, message, deadline = runtime::deadline_after(call.timeout_seconds)] {
    const auto is_sent = [&](MPI_Request& request) { return membership_.test(request); };
    for (unsigned round = 0; !std::ranges::all_of(message->requests, is_sent); ++round) {
      if (membership_.has_failed() || runtime::has_passed(deadline)) {
        return MpiSession::keep(message);
      }
      runtime::poll_pause(round);
    }
  });
}

void MpiCommunicator::receive_message(const CollectiveCall& call) {
  MessageHeader sent;
  receive(reinterpret_cast<std::byte*>(&sent), sizeof sent, kHeaderTag, call);
  const MessageHeader mine = header_of(call.header);
  if (sent.num_elements != mine.num_elements || sent.dtype != mine.dtype) {
    CallHeader theirs = call.header;
    theirs.operation = Operation::send;
    theirs.sequence = sent.sequence;
    theirs.num_elements = sent.num_elements;
    theirs.dtype = static_cast<DType>(sent.dtype);
    membership_.break_group(Error(ErrorCode::Comm, name_of(Operation::recv),
                                  describe_difference(rank(), call.header, call.peer, theirs)));
    membership_.throw_if_failed(call.header);
  }
  receive(static_cast<std::byte*>(call.input.raw()), call.input.num_bytes(), kDataTag, call);
}

void MpiCommunicator::receive(std::byte* data, std::size_t num_bytes, int tag,
                              const CollectiveCall& call) {
  for_each_piece(num_bytes, [&](std::size_t begin, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const std::lock_guard lock(session_.mutex());
      MPI_CHECK(MPI_Irecv(data + begin, count, MPI_BYTE, call.peer, tag, membership_.communicator(),
                          &request));
    }
    try {
      membership_.await(request, call.header, call.timeout_seconds);
    } catch (...) {
      const std::lock_guard lock(session_.mutex());
      MPI_Cancel(&request);
      MPI_Request_free(&request);
      throw;
    }
  });
}

bool has_mpi() {
  return true;
}

const std::string& no_mpi_reason() {
  static const std::string reason;
  return reason;
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions& options) {
  MpiSession& session = MpiSession::get();
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
