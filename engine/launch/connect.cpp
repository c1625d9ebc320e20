#include "engine/launch/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "engine/comm/comm_errors.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/store/tcp_store.h"
#include "engine/core/error.h"
#include "engine/launch/init_method.h"
#include "engine/launch/job_token.h"
#include "engine/launch/meeting.h"
#include "engine/launch/private_file.h"
#include "engine/launch/token_socket.h"

namespace lockstep::launch {
namespace {

constexpr auto kKnockAgainAfter = std::chrono::milliseconds(20);
constexpr double kRankZeroLingersSeconds = 2;
// Less than a launcher leaves the ranks to say what went wrong.
constexpr double kRankZeroLingersSecondsAfterError = 0.5;
constexpr double kProbeSeconds = 1;

double seconds_until(runtime::Deadline end) {
  return std::max(0.1, std::chrono::duration<double>(runtime::time_until(end)).count());
}

// How long to try to connect, and how long a request may take then.
struct Patience {
  double connect_seconds;
  double request_seconds;
};

std::shared_ptr<comm::TcpStoreClient> connect_once(const Address& address, int rank,
                                                   const Patience& patience) {
  comm::TcpStoreClientOptions options;
  options.host = address.host;
  options.port = static_cast<std::uint16_t>(address.port);
  options.token = address.token;
  options.timeout_seconds = patience.request_seconds;
  options.connect_seconds = patience.connect_seconds;
  options.served_by = "rank 0";
  options.rank = rank;
  return std::make_shared<comm::TcpStoreClient>(options);
}

// Does anybody listen there? Not where the file is that of an older job, which was killed.
bool is_served(const Address& address) {
  try {
    comm::connect_to(address.host, static_cast<std::uint16_t>(address.port),
                     runtime::deadline_after(kProbeSeconds));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Knocks until rank 0 opens. A file whose port is closed, or whose token is refused, belongs to an
// older job: rank 0 will replace it. So does a job that this rank has left before.
std::shared_ptr<comm::TcpStoreClient> connect(const Meeting& meeting, int rank,
                                              const JoinOptions& options, std::string& token) {
  const runtime::Deadline end = runtime::deadline_after(options.timeout_seconds);
  const runtime::Deadline tell_at = runtime::deadline_after(options.waiting.after_seconds);
  bool has_told = !options.waiting.tell;
  const auto rank_zero_is_missing = [&](const std::string& why) {
    fail(ErrorCode::Timeout, "join", "rank {} waited {:g} s for rank 0, which has not come: {}",
         rank, options.timeout_seconds, why);
  };
  for (;;) {
    if (!has_told && runtime::has_passed(tell_at)) {
      has_told = true;
      options.waiting.tell({0});
    }
    const std::optional<Address> address = find_address(meeting);
    const bool is_late = runtime::has_passed(end);
    try {
      const bool may_be_old = meeting.through == Meeting::Through::file;
      if (address && (!may_be_old || is_served(*address))) {
        token = address->token;
        const auto attempt_end = has_told ? end : runtime::earlier(end, tell_at);
        return connect_once(*address, rank, {seconds_until(attempt_end), seconds_until(end)});
      }
    } catch (const comm::DuplicateRank& error) {
      if (error.holder() == comm::DuplicateRank::Holder::is_here || is_late) throw;
    } catch (const Error& error) {
      const bool is_timeout = error.code() == ErrorCode::Timeout;
      if (is_timeout && runtime::has_passed(end)) rank_zero_is_missing(error.what());
      if (!is_timeout && (meeting.through == Meeting::Through::nothing || is_late)) throw;
    }
    if (is_late) {
      rank_zero_is_missing(
          meeting.through == Meeting::Through::file
              ? fmt::format("there is no {} of its making", meeting.file.string())
              : fmt::format("no process of this user hands out a token for port {} of this host",
                            meeting.address.port));
    }
    std::this_thread::sleep_for(kKnockAgainAfter);
  }
}

// Where others reach rank 0: at the address that was named. To the host itself its own name may be
// one of the loopback (127.0.1.1 in Debian's /etc/hosts), which says nothing; then at all of them.
std::string address_to_serve(const std::string& named, Hosts hosts) {
  const bool says_nothing =
      hosts == Hosts::several && !is_loopback(named) && comm::is_loopback_here(named);
  return says_nothing ? "::" : named;
}

// What rank 0 has open for the others.
struct Door {
  std::unique_ptr<comm::TcpStoreServer> server;
  std::unique_ptr<TokenSocket> token;
  std::unique_ptr<MeetingFile> file;  // until all have joined
};

// Rank 0 opens the store, and only when nobody else holds the port, it says with which token.
void serve(Meeting& meeting, const RankEnvironment& rank, Door& door) {
  Address& address = meeting.address;
  if (address.token.empty()) address.token = make_token();
  comm::TcpStoreServerOptions options;
  options.bind_address = address_to_serve(address.host, rank.hosts);
  options.port = static_cast<std::uint16_t>(address.port);
  options.token = address.token;
  options.num_expected_clients = static_cast<std::size_t>(rank.world_size);
  door.server = std::make_unique<comm::TcpStoreServer>(options);
  address.port = door.server->port();
  if (meeting.through == Meeting::Through::token_socket) {
    door.token = std::make_unique<TokenSocket>(address.port, address.token);
  } else if (meeting.through == Meeting::Through::file) {
    door.file =
        std::make_unique<MeetingFile>(meeting.file, address.host, address.port, address.token);
  }
  meeting.through = Meeting::Through::nothing;
}

constexpr const char* kServerAddressKey = "join/server_address";

// A rank on the host of rank 0 may have come by the loopback: many a host's own name is 127.0.1.1
// to itself. There the others cannot reach it, but where they reached rank 0.
void tell_server_address(comm::TcpStoreClient& store) {
  if (is_loopback(store.local_address())) return;
  store.set_if_absent(kServerAddressKey, store.server_address());
}
// REQUIRES: all ranks have called tell_server_address.
std::string reachable_address(comm::TcpStoreClient& store) {
  const std::string address = store.local_address();
  return is_loopback(address) ? store.try_get(kServerAddressKey).value_or(address) : address;
}

}  // namespace

// Members are destroyed from below: the client leaves before its server closes.
struct Job::State {
  RankEnvironment rank;
  std::string token;
  std::string address = "127.0.0.1";
  Door door;
  std::shared_ptr<comm::Store> store;

  ~State() {
    store.reset();
    // An error that is on its way to main() is not told before this is over.
    const bool is_after_error = std::uncaught_exceptions() > 0;
    if (!door.server) return;
    door.server->wait_until_unused(is_after_error ? kRankZeroLingersSecondsAfterError
                                                  : kRankZeroLingersSeconds);
  }
};

Job join_job(const Environment& environment, const JoinOptions& options) {
  const InitMethod method = parse_init_method(options.init_method);
  auto state = std::make_unique<Job::State>();
  RankEnvironment& rank = state->rank;
  const Environment used = with_init_method(environment, method);
  rank = rank_environment(used);
  if (rank.world_size == 1) {
    state->token = make_token();
    state->store = std::make_shared<comm::MemoryStore>();
    return Job(std::move(state));
  }
  Meeting meeting = decide_meeting(used, rank, method);
  if (rank.rank == 0) serve(meeting, rank, state->door);
  const auto client = connect(meeting, rank.rank, options, state->token);
  state->store = client;
  if (rank.hosts == Hosts::several) tell_server_address(*client);
  call_roll(*client, rank, options.timeout_seconds, options.waiting, options.settings);
  state->door.file.reset();
  state->address =
      rank.hosts == Hosts::several ? reachable_address(*client) : client->local_address();
  return Job(std::move(state));
}

Job::Job(std::unique_ptr<State> state) : state_(std::move(state)) {}
Job::Job(Job&&) noexcept = default;
Job::~Job() = default;
const RankEnvironment& Job::rank() const {
  return state_->rank;
}
const std::shared_ptr<comm::Store>& Job::store() const {
  return state_->store;
}
const std::string& Job::address() const {
  return state_->address;
}
const std::string& Job::token() const {
  return state_->token;
}

}  // namespace lockstep::launch
