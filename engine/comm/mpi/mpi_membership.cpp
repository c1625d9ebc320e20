#include "engine/comm/mpi/mpi_membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {
namespace {

// How often a waiting rank looks beyond its request.
constexpr unsigned kRoundsPerLook = 64;
// How long a rank that is late waits for what the others say.
constexpr double kInquirySeconds = 1;
// How long a rank that leaves waits for the others to leave.
constexpr double kGoodByeSeconds = 2;

// A call in numbers: what same_call() compares.
constexpr std::size_t kNumWords = 3;
using CallWords = std::array<std::uint64_t, kNumWords>;

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

}  // namespace

// The largest and, as complements, the smallest words of all ranks; then the words of each rank.
struct MpiMembership::Words {
  std::array<std::uint64_t, 2 * kNumWords> extremes{};
  CallWords mine{};
  std::vector<CallWords> all;
};

MpiMembership::MpiMembership(MpiSession& session, double timeout_seconds)
    : session_(session), words_(std::make_shared<Words>()), timeout_seconds_(timeout_seconds) {
  duplicate(communicator_, timeout_seconds);
  MPI_Comm for_notices = MPI_COMM_NULL;
  duplicate(for_notices, timeout_seconds);
  const std::lock_guard lock(session_.mutex());
  notices_ = std::make_unique<MpiNotices>(for_notices);
  words_->all.resize(notices_->received().size());
}

// Collective, and so the ranks' first meeting.
void MpiMembership::duplicate(MPI_Comm& communicator, double timeout_seconds) {
  // Of its own, so that it may be written to after this call has given up.
  const auto result = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(session_.mutex());
    MPI_CHECK(MPI_Comm_idup(MPI_COMM_WORLD, result.get(), &request));
  }
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  for (unsigned round = 0; !test(request); ++round) {
    runtime::poll_pause(round);
    if (!runtime::has_passed(deadline)) continue;
    session_.give_up();
    MpiSession::keep(result);
    fail(ErrorCode::Timeout, "mpi",
         "rank {} waited {} s for all {} ranks to come; each must make as many communicators",
         session_.rank(), timeout_seconds, session_.world_size());
  }
  communicator = *result;
  const std::lock_guard lock(session_.mutex());
  MPI_CHECK(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN));
}

MpiMembership::~MpiMembership() {
  const bool is_whole = !has_failed();
  const runtime::Deadline deadline =
      runtime::deadline_after(is_whole ? kGoodByeSeconds : kInquirySeconds);
  MpiNotice good_bye;
  good_bye.num_collectives = num_collectives_;
  bool have_all_come = false;
  try {
    for (unsigned round = 0; !have_all_come && !runtime::has_passed(deadline); ++round) {
      {
        const std::lock_guard lock(session_.mutex());
        notices_->send(good_bye, "");
        notices_->poll();
        have_all_come = notices_->have_all_come();
      }
      runtime::poll_pause(round);
    }
  } catch (const Error&) {
    // MPI itself is broken, and so is the group.
  }
  const std::lock_guard lock(session_.mutex());
  notices_.reset();
  if (have_all_come && is_whole) MPI_Comm_free(&communicator_);
  if (!is_whole) MpiSession::keep(words_);
}

bool MpiMembership::test(MPI_Request& request) {
  const std::lock_guard lock(session_.mutex());
  int is_done = 0;
  MPI_CHECK(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
  return is_done != 0;
}

void MpiMembership::await(MPI_Request& request, const CallHeader& call, double timeout_seconds) {
  timeout_seconds_ = timeout_seconds;
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  for (unsigned round = 0; !test(request); ++round) {
    if (round % kRoundsPerLook == kRoundsPerLook - 1) {
      throw_if_failed(call);
      if (runtime::has_passed(deadline)) conclude_late(call, timeout_seconds);
    }
    runtime::poll_pause(round);
  }
}

void MpiMembership::compare_calls(const CallHeader& mine, double timeout_seconds) {
  words_->mine = words_of(mine);
  for (std::size_t i = 0; i < kNumWords; ++i) {
    words_->extremes[i] = words_->mine[i];
    words_->extremes[kNumWords + i] = ~words_->mine[i];
  }
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(session_.mutex());
    MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, words_->extremes.data(), 2 * kNumWords, MPI_UINT64_T,
                             MPI_MAX, communicator_, &request));
  }
  await(request, mine, timeout_seconds);
  for (std::size_t i = 0; i < kNumWords; ++i) {
    if (words_->extremes[i] != ~words_->extremes[kNumWords + i]) {
      name_difference(mine, timeout_seconds);
    }
  }
}

void MpiMembership::name_difference(const CallHeader& mine, double timeout_seconds) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(session_.mutex());
    MPI_CHECK(MPI_Iallgather(words_->mine.data(), kNumWords, MPI_UINT64_T, words_->all.data(),
                             kNumWords, MPI_UINT64_T, communicator_, &request));
  }
  await(request, mine, timeout_seconds);
  const auto other = std::ranges::find_if(
      words_->all, [&](const CallWords& words) { return words != words_->all.front(); });
  const auto rank = static_cast<int>(other - words_->all.begin());
  break_group(Error(ErrorCode::Comm, "collective",
                    describe_difference(rank, call_of(*other), 0, call_of(words_->all.front()))));
  throw_if_failed(mine);
  fail(ErrorCode::State, "mpi", "ranks differ in their calls, and then do not");
}

void MpiMembership::throw_if_failed(const CallHeader& call) {
  if (!has_failed()) {
    std::vector<std::optional<MpiNotice>> received;
    {
      const std::lock_guard lock(session_.mutex());
      notices_->poll();
      received = notices_->received();
    }
    // What broke the group comes before what followed from it.
    for (const bool is_cause : {true, false}) {
      for (std::size_t peer = 0; peer < received.size(); ++peer) {
        if (!received[peer] || (received[peer]->kind == MpiNotice::Kind::failed) != is_cause) {
          continue;
        }
        react(static_cast<int>(peer), *received[peer], call);
      }
    }
  }
  failure_.throw_if_set();
}

void MpiMembership::react(int peer, const MpiNotice& notice, const CallHeader& call) {
  switch (notice.kind) {
    case MpiNotice::Kind::failed:
      return break_group(decode_error(notice.text()));
    case MpiNotice::Kind::late:
      if (!has_failed()) conclude_late(call, timeout_seconds_);
      return;
    case MpiNotice::Kind::left:
      if (is_point_to_point(call.operation) || call.sequence < notice.num_collectives) return;
      return break_group(left_before(call, peer, notice.num_collectives));
  }
}

// Every rank that waits says so, and so does every rank that hears it: whoever is silent is the one
// they wait for.
void MpiMembership::conclude_late(const CallHeader& call, double timeout_seconds) {
  MpiNotice late;
  late.kind = MpiNotice::Kind::late;
  std::vector<std::optional<MpiNotice>> received;
  const runtime::Deadline deadline = runtime::deadline_after(kInquirySeconds);
  // Once at least, also where this process was stopped in the line above.
  for (unsigned round = 0; round == 0 || !runtime::has_passed(deadline); ++round) {
    {
      const std::lock_guard lock(session_.mutex());
      notices_->send(late, to_string(call));
      notices_->poll();
      received = notices_->received();
      if (notices_->have_all_come()) break;
    }
    runtime::poll_pause(round);
  }
  std::string silent;
  std::string elsewhere;
  for (int peer = 0; peer < session_.world_size(); ++peer) {
    const auto& notice = received[static_cast<std::size_t>(peer)];
    if (peer == session_.rank()) continue;
    if (!notice) {
      add_to_list(silent, fmt::format("rank {}", peer));
    } else if (notice->kind == MpiNotice::Kind::late && to_string(call) != notice->text()) {
      elsewhere += fmt::format("; rank {} is in {}", peer, notice->text());
    } else if (notice->kind == MpiNotice::Kind::left) {
      elsewhere += fmt::format("; rank {} left the group", peer);
    }
  }
  if (silent.empty())
    silent = elsewhere.empty() ? "all ranks are there, but too late" : "all ranks answer";
  else
    silent += " did not come";
  set_failure(Error(ErrorCode::Timeout, name_of(call.operation),
                    fmt::format("rank {}'s {}: {}{}", session_.rank(),
                                not_done(call, timeout_seconds), silent, elsewhere)));
  throw failure_.error();
}

void MpiMembership::set_failure(const Error& error) {
  session_.give_up();
  failure_.set(error);
}

void MpiMembership::break_group(const Error& error) {
  set_failure(error);
  MpiNotice notice;
  notice.kind = MpiNotice::Kind::failed;
  const std::lock_guard lock(session_.mutex());
  notices_->send(notice, encode(error, notice.text_bytes.size()));
}

}  // namespace lockstep::comm
