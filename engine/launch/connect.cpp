#include "engine/launch/connect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <thread>

#include "engine/comm/host_identity.h"
#include "engine/comm/store/memory_store.h"
#include "engine/comm/store/tcp_store_client.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/core/error.h"
#include "engine/launch/init_method.h"
#include "engine/launch/job_token.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kKnockAgainAfter = std::chrono::milliseconds(20);
constexpr double kRankZeroLingersSeconds = 2;

// Where rank 0 serves, and the token that opens the door.
struct Address {
  std::string host;
  int port = 0;
  std::string token;
};

// How the address reaches the other ranks: all of it is known to everybody (no file), or the token
// is in a file, or everything is.
struct Meeting {
  Address address;
  enum class InFile { nothing, token, everything } in_file = InFile::nothing;
  std::filesystem::path file;
};

// tcp:// replaces what the environment says about the meeting point; file:// needs none.
Environment with_init_method(Environment environment, const InitMethod& method) {
  if (method.kind == InitMethod::Kind::tcp) {
    environment["MASTER_ADDR"] = method.host;
    environment["MASTER_PORT"] = std::to_string(method.port);
    environment.erase("TORCHELASTIC_USE_AGENT_STORE");
  } else if (method.kind == InitMethod::Kind::file && !find_variable(environment, "MASTER_ADDR")) {
    environment["MASTER_ADDR"] = "localhost";
  }
  return environment;
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

Meeting decide_meeting(const Environment& environment, const RankEnvironment& rank,
                       const InitMethod& method) {
  Meeting meeting;
  const bool is_ipv6 = rank.master_address == "::1";
  const bool is_one_host = rank.hosts == Hosts::one;
  meeting.address.host =
      is_one_host ? (is_ipv6 ? "::1" : "127.0.0.1") : std::string(rank.master_address);
  meeting.address.port = rank.master_port;
  meeting.address.token = find_variable(environment, "LOCKSTEP_TOKEN").value_or("");
  if (method.kind == InitMethod::Kind::file) {
    meeting.in_file = Meeting::InFile::everything;
    meeting.file = method.path;
    meeting.address.port = 0;
    if (!is_one_host) meeting.address.host = host_name();
  } else if (meeting.address.token.empty()) {
    const auto file = find_variable(environment, "LOCKSTEP_TOKEN_FILE");
    require(file || is_one_host, ErrorCode::Usage, "LOCKSTEP_TOKEN",
            "this environment variable is missing: ranks on several hosts recognise each other by "
            "it; set it to the same secret on all of them, for example that of `openssl rand -hex "
            "32`");
    meeting.in_file = Meeting::InFile::token;
    meeting.file =
        file ? std::filesystem::path(*file) : default_token_file(environment, rank.master_port);
  }
  return meeting;
}

// What the file says now; none when it is missing, or half of an address.
std::optional<Address> read_address(const Meeting& meeting) {
  if (meeting.in_file == Meeting::InFile::nothing) return meeting.address;
  const auto text = read_private_file(meeting.file);
  if (!text) return std::nullopt;
  Address address = meeting.address;
  if (meeting.in_file == Meeting::InFile::token) {
    address.token = *text;
    return address;
  }
  std::istringstream words(*text);
  words >> address.host >> address.port >> address.token;
  if (!words || address.port < 1 || address.port > 65535) return std::nullopt;
  return address;
}

double seconds_until(Clock::time_point end) {
  return std::max(0.1, std::chrono::duration<double>(end - Clock::now()).count());
}

std::shared_ptr<comm::TcpStoreClient> connect_once(const Address& address, int rank,
                                                   double seconds) {
  comm::TcpStoreClientOptions options;
  options.host = address.host;
  options.port = static_cast<std::uint16_t>(address.port);
  options.token = address.token;
  options.timeout_seconds = seconds;
  options.served_by = "rank 0";
  options.rank = rank;
  return std::make_shared<comm::TcpStoreClient>(options);
}

// Knocks until rank 0 opens. A file's token that is refused belongs to an older job.
std::shared_ptr<comm::TcpStoreClient> connect(const Meeting& meeting, int rank,
                                              double timeout_seconds, std::string& token) {
  const auto end = *runtime::deadline_after(std::min(timeout_seconds, 1e8));
  const auto rank_zero_is_missing = [&](const std::string& why) {
    fail(ErrorCode::Timeout, "join", "rank {} waited {:g} s for rank 0, which has not come: {}",
         rank, timeout_seconds, why);
  };
  for (;;) {
    const std::optional<Address> address = read_address(meeting);
    const bool is_late = Clock::now() >= end;
    try {
      if (address) {
        token = address->token;
        return connect_once(*address, rank, seconds_until(end));
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::Timeout) rank_zero_is_missing(error.what());
      if (meeting.in_file == Meeting::InFile::nothing || is_late) throw;
    }
    if (is_late) {
      rank_zero_is_missing(fmt::format("there is no {} of its making", meeting.file.string()));
    }
    std::this_thread::sleep_for(kKnockAgainAfter);
  }
}

std::string rank_key(int rank) {
  return fmt::format("join/rank/{}", rank);
}

// Ends the rendezvous for everybody, in the same words.
[[noreturn]] void end_for_all(comm::Store& store, ErrorCode code, const std::string& why) {
  store.abort(fmt::format("[join] {}", why));
  fail(code, "join", "{}", why);
}

// Says who this rank is, and finds out whether that contradicts what another one said. (That two
// have the same number was noticed when the second one connected.)
void register_rank(comm::Store& store, const RankEnvironment& rank) {
  store.set(rank_key(rank.rank), "");
  const std::string mine = fmt::format("{} (rank {})", rank.world_size, rank.rank);
  const std::string first = store.set_if_absent("join/world_size", mine);
  if (std::stoi(first) != rank.world_size) {
    end_for_all(store, ErrorCode::Usage,
                fmt::format("the ranks were told different world sizes: {} and {}; set one "
                            "WORLD_SIZE for all",
                            first, mine));
  }
  store.set(fmt::format("join/host/{}", rank.rank), comm::host_identity());
}

void wait_for_all(comm::Store& store, const RankEnvironment& rank, double timeout_seconds) {
  try {
    store.barrier("join/all", rank.rank, rank.world_size, runtime::deadline_after(timeout_seconds));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    std::string missing;
    int num_missing = 0;
    for (int r = 0; r < rank.world_size; ++r) {
      if (store.try_get(rank_key(r))) continue;
      ++num_missing;
      if (num_missing <= 8) missing += fmt::format("{}{}", num_missing > 1 ? ", " : "", r);
      if (num_missing == 9) missing += ", ...";
    }
    end_for_all(
        store, ErrorCode::Timeout,
        fmt::format("{} of {} ranks came within {:g} s, missing: rank {}; start them too, "
                    "or correct WORLD_SIZE",
                    rank.world_size - num_missing, rank.world_size, timeout_seconds, missing));
  }
  store.set("join/complete", "");
}

// Local world size and node rank by who is on this host; nodes are numbered by their lowest rank.
void count_hosts(comm::Store& store, RankEnvironment& rank) {
  if (rank.local_world_size != 0 && rank.node_rank >= 0) return;
  const std::string mine = comm::host_identity();
  std::set<std::string> hosts_before;
  int on_this_host = 0;
  int node_rank = -1;
  for (int r = 0; r < rank.world_size; ++r) {
    const std::string host = store.try_get(fmt::format("join/host/{}", r)).value_or("");
    if (host == mine) {
      ++on_this_host;
      if (node_rank < 0) node_rank = static_cast<int>(hosts_before.size());
    }
    hosts_before.insert(host);
  }
  if (rank.local_world_size == 0) rank.local_world_size = on_this_host;
  if (rank.node_rank < 0) rank.node_rank = node_rank;
  require(rank.local_rank < rank.local_world_size, ErrorCode::Usage, "LOCAL_RANK",
          "rank {} has local rank {}, but only {} ranks are on its host", rank.rank,
          rank.local_rank, rank.local_world_size);
}

}  // namespace

// Members are destroyed from below: the client leaves before its server closes, the file last.
struct Job::State {
  RankEnvironment rank;
  std::string token;
  std::string address = "127.0.0.1";
  std::unique_ptr<PrivateFile> file;
  std::unique_ptr<comm::TcpStoreServer> server;
  std::shared_ptr<comm::Store> store;

  ~State() {
    store.reset();
    if (server) server->wait_until_unused(kRankZeroLingersSeconds);
  }
};

namespace {

// Rank 0 opens the store. The token goes into the file only when nobody else holds the port.
void serve(Meeting& meeting, const RankEnvironment& rank, const char* everywhere,
           std::unique_ptr<comm::TcpStoreServer>& server, std::unique_ptr<PrivateFile>& file) {
  Address& address = meeting.address;
  if (address.token.empty()) address.token = make_token();
  comm::TcpStoreServerOptions options;
  options.bind_address = rank.hosts == Hosts::one ? address.host : everywhere;
  options.port = static_cast<std::uint16_t>(address.port);
  options.token = address.token;
  server = std::make_unique<comm::TcpStoreServer>(options);
  address.port = server->port();
  if (meeting.in_file == Meeting::InFile::token) {
    file = std::make_unique<PrivateFile>(meeting.file, address.token);
  } else if (meeting.in_file == Meeting::InFile::everything) {
    file = std::make_unique<PrivateFile>(
        meeting.file, fmt::format("{} {} {}\n", address.host, address.port, address.token));
  }
  meeting.in_file = Meeting::InFile::nothing;
}

}  // namespace

Job join_job(const Environment& environment, const JoinOptions& options) {
  const InitMethod method = parse_init_method(options.init_method);
  auto state = std::make_unique<Job::State>();
  RankEnvironment& rank = state->rank;
  const Environment used = with_init_method(environment, method);
  rank = rank_environment(used);
  if (rank.world_size == 1) {
    state->token = find_variable(used, "LOCKSTEP_TOKEN").value_or(make_token());
    state->store = std::make_shared<comm::MemoryStore>();
    return Job(std::move(state));
  }
  Meeting meeting = decide_meeting(used, rank, method);
  if (rank.rank == 0) serve(meeting, rank, "::", state->server, state->file);
  const auto client = connect(meeting, rank.rank, options.timeout_seconds, state->token);
  state->address = client->local_address();
  state->store = client;
  register_rank(*state->store, rank);
  wait_for_all(*state->store, rank, options.timeout_seconds);
  count_hosts(*state->store, rank);
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
