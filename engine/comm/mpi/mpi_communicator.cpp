#include "engine/comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "engine/comm/mpi/mpi_group.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {

// The state of a call that the communicator's thread carries out.
class MpiWork final : public WorkState {
 public:
  explicit MpiWork(const CallHeader& call) : call_(call) {}

  void finish(std::exception_ptr error) {
    error_ = std::move(error);
    is_done_.store(1);
  }
  bool is_done() const override { return is_done_.load() != 0; }
  void wait_until_done() const { is_done_.wait_while_equal(0); }

  void wait(std::optional<double> timeout_seconds) const override {
    const runtime::Deadline deadline =
        timeout_seconds ? runtime::deadline_after(*timeout_seconds) : runtime::Deadline{};
    require(is_done() || is_done_.wait_while_equal(0, deadline), ErrorCode::Timeout,
            name_of(call_.operation),
            "{} was not done within {} s; it goes on, and its own time limit names who is missing",
            to_string(call_), timeout_seconds.value_or(0));
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  CallHeader call_;
  runtime::WaitWord is_done_{0};
  std::exception_ptr error_;
};

namespace {

constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

bool is_point_to_point(Operation operation) {
  return operation == Operation::send || operation == Operation::recv;
}

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
    : session_(session),
      membership_(session, timeout_seconds),
      num_sent_(static_cast<std::size_t>(session.world_size())),
      num_received_(num_sent_.size()) {
  set_timeout_seconds(timeout_seconds);
}

void MpiCommunicator::abort(const std::string& why) {
  membership_.break_group(
      Error(ErrorCode::Comm, "abort", fmt::format("rank {} aborted the group: {}", rank(), why)));
}

void MpiCommunicator::number(CollectiveCall& call) {
  if (is_point_to_point(call.header.operation)) {
    auto& counts = call.header.operation == Operation::send ? num_sent_ : num_received_;
    call.header.sequence = counts[static_cast<std::size_t>(call.peer)]++;
  } else {
    call.header.sequence = num_collectives_++;
  }
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
  number(call);
  if (launch == Launch::blocking) {
    if (last_async_ != nullptr) last_async_->wait_until_done();
    last_async_ = nullptr;
    run(call);
    return {};
  }
  auto work = std::make_shared<MpiWork>(call.header);
  last_async_ = work;
  worker_.post([this, work, call = std::move(call), context = thread_context(),
                track = trace::current_track()]() mutable {
    const ThreadContextScope context_scope(context);
    const trace::TrackScope track_scope(track);
    std::exception_ptr error;
    try {
      run(call);
    } catch (...) {
      error = std::current_exception();
    }
    call = {};  // lets go of the tensors before anybody hears that it is done
    work->finish(std::move(error));
  });
  return Work(std::move(work));
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
      const bool is_late = deadline && runtime::Clock::now() >= *deadline;
      if (membership_.has_failed() || is_late) {
        return MpiSession::keep(message);
      }
      runtime::spin_pause(round);
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
    membership_.break_group(
        Error(ErrorCode::Comm, name_of(Operation::recv),
              fmt::format("rank {} called {} while rank {} called {}", rank(),
                          to_string(call.header), call.peer, to_string(theirs))));
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
