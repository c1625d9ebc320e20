#include "engine/launch/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <utility>

#include "engine/comm/store/tcp_store.h"
#include "engine/core/error.h"
#include "engine/core/log.h"

namespace lockstep::launch {
namespace {

constexpr double kRankZeroLingersSeconds = 2;
// It is shorter than the time that a launcher leaves the ranks to report an error.
constexpr double kRankZeroLingersSecondsAfterError = 0.5;

// The address of rank 0's store, and the secret that admits a process.
struct MeetingPoint {
  std::string host;
  std::uint16_t port = 0;
  std::string token;
};

MeetingPoint meeting_point(const Environment& environment, const RankEnvironment& rank) {
  const bool is_one_host = rank.hosts == Hosts::one;
  MeetingPoint point;
  point.host = rank.master_address;
  if (is_one_host) point.host = rank.master_address == "::1" ? "::1" : "127.0.0.1";
  point.port = static_cast<std::uint16_t>(rank.master_port);
  const auto token = find_token(environment);
  require(token || is_one_host || is_loopback(rank.master_address), ErrorCode::Usage,
          "LOCKSTEP_TOKEN",
          "this environment variable is missing: ranks on several hosts recognise each other by "
          "it; set it to the same secret on all of them, for example that of `openssl rand -hex "
          "32`");
  point.token = token.value_or(fmt::format("no secret on the loopback: user {}, job {}",
                                           ::geteuid(), rank.job_id.substr(0, 200)));
  return point;
}

// All ranks meet on the loopback of their host, whatever address was given.
void warn_of_unused_address(const RankEnvironment& rank) {
  const bool is_used = rank.hosts == Hosts::several || is_loopback(rank.master_address);
  const std::string why = is_used ? "" : comm::why_unknown(rank.master_address);
  if (why.empty()) return;
  log_warning(
      "MASTER_ADDR={} is not a host ({}); all ranks are on this one and meet on its loopback",
      rank.master_address, why);
}

// Rank 0 listens at the given address. A host may know its own name as its loopback (127.0.1.1 in
// Debian's /etc/hosts), where other hosts cannot reach it: then rank 0 listens at all its
// addresses.
std::unique_ptr<comm::TcpStoreServer> serve(const MeetingPoint& point,
                                            const RankEnvironment& rank) {
  const bool is_misleading = rank.hosts == Hosts::several && !is_loopback(point.host) &&
                             comm::is_loopback_here(point.host);
  comm::TcpStoreServerOptions options;
  options.bind_address = is_misleading ? "::" : point.host;
  options.port = point.port;
  options.token = point.token;
  options.num_expected_clients = static_cast<std::size_t>(rank.world_size);
  return std::make_unique<comm::TcpStoreServer>(options);
}

// Connects when rank 0 is there.
std::shared_ptr<comm::TcpStoreClient> connect(const MeetingPoint& point, int rank,
                                              const JoinOptions& options) {
  comm::TcpStoreClientOptions client;
  client.host = point.host;
  client.port = point.port;
  client.token = point.token;
  client.rank = rank;
  client.timeout_seconds = options.timeout_seconds;
  const auto start = runtime::Clock::now();
  try {
    return std::make_shared<comm::TcpStoreClient>(client);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    // It is less than the timeout if another program holds the port.
    const double waited = std::chrono::duration<double>(runtime::Clock::now() - start).count();
    fail(ErrorCode::Timeout, "join", "rank {} waited {:g} s for rank 0, which has not come: {}",
         rank, waited < options.timeout_seconds ? std::round(waited) : options.timeout_seconds,
         error.what());
  }
}

// Other hosts reach a rank that came to rank 0 by the loopback at the address where they reached
// rank 0; one of them writes it down before all have met.
constexpr const char* kServerAddressKey = "join/server_address";

void share_server_address(comm::TcpStoreClient& store) {
  if (is_loopback(store.local_address())) return;
  store.set(kServerAddressKey, store.server_address());
}
std::string reachable_address(comm::TcpStoreClient& store) {
  const std::string address = store.local_address();
  return is_loopback(address) ? store.try_get(kServerAddressKey).value_or(address) : address;
}

// --- ranks that share a store make sure that they belong together ---

// Key of the rank's host. Two ranks with the same number were found out when they connected.
std::string rank_key(int rank) {
  return fmt::format("join/rank/{}", rank);
}

// Ends the rendezvous for all ranks, with the same words.
[[noreturn]] void end_for_all(comm::Store& store, ErrorCode code, const std::string& why) {
  const Error error(code, "join", why);
  store.abort(error);
  throw error;
}

// Each rank compares its world size and settings with those of rank 0.
void compare_settings(comm::Store& store, const RankEnvironment& rank, const JoinOptions& options) {
  std::vector<Setting> settings = options.settings;
  settings.insert(settings.begin(), {"WORLD_SIZE", std::to_string(rank.world_size)});
  const runtime::Deadline deadline = runtime::deadline_after(options.timeout_seconds);
  for (const auto& [name, value] : settings) {
    const std::string key = "join/setting/" + name;
    if (rank.rank == 0) store.set(key, value);
    const std::string first = store.get(key, deadline);
    if (first == value) continue;
    end_for_all(store, ErrorCode::Usage,
                fmt::format("the ranks differ in {}: {:.80} (rank 0) and {:.80} (rank {}); start "
                            "all of them with the same",
                            name, first, value, rank.rank));
  }
}

void wait_for_all(comm::Store& store, const RankEnvironment& rank, double timeout_seconds) {
  try {
    store.barrier("join", rank.rank, rank.world_size, timeout_seconds);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    end_for_all(store, error.code(),
                fmt::format("{}; start them too, or correct WORLD_SIZE", error.message()));
  }
}

void count_local_ranks(comm::Store& store, RankEnvironment& rank) {
  if (rank.local_world_size != 0) return;
  const std::string mine = comm::host_identity();
  for (int r = 0; r < rank.world_size; ++r) {
    if (store.try_get(rank_key(r)) == mine) ++rank.local_world_size;
  }
  require(rank.local_rank < rank.local_world_size, ErrorCode::Usage, "LOCAL_RANK",
          "rank {} has local rank {}, but only {} ranks are on its host", rank.rank,
          rank.local_rank, rank.local_world_size);
}

}  // namespace

std::string make_token() {
  std::array<unsigned char, 32> random;
  // The system gives up to 256 bytes at once.
  const ssize_t found = getrandom(random.data(), random.size(), 0);
  const int number = errno;
  require(found == static_cast<ssize_t>(random.size()), ErrorCode::Io, "token",
          "the system gives no random bytes: {}", std::strerror(number));
  std::string text;
  for (const unsigned char byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<std::string> find_token(const Environment& environment) {
  constexpr const char* kToken = "LOCKSTEP_TOKEN";
  const auto token = find_variable(environment, kToken);
  if (token) comm::require_token(*token, kToken);
  return token;
}

Job::Job() = default;
Job::Job(Job&&) noexcept = default;

Job::~Job() {
  store_.reset();
  if (!server_) return;
  // An error on its way to main() is only reported after this.
  const bool is_after_error = std::uncaught_exceptions() > 0;
  server_->wait_until_unused(is_after_error ? kRankZeroLingersSecondsAfterError
                                            : kRankZeroLingersSeconds);
}

Job join_job(const Environment& environment, const JoinOptions& options) {
  Job job;
  RankEnvironment& rank = job.rank_;
  rank = rank_environment(environment);
  if (rank.world_size == 1) {
    job.token_ = make_token();
    job.store_ = std::make_shared<comm::MemoryStore>();
    return job;
  }
  const MeetingPoint point = meeting_point(environment, rank);
  job.token_ = point.token;
  if (rank.rank == 0) job.server_ = serve(point, rank);
  const auto client = connect(point, rank.rank, options);
  job.store_ = client;
  const bool has_several_hosts = rank.hosts == Hosts::several;
  if (has_several_hosts) share_server_address(*client);
  client->set(rank_key(rank.rank), comm::host_identity());
  compare_settings(*client, rank, options);
  wait_for_all(*client, rank, options.timeout_seconds);
  count_local_ranks(*client, rank);
  job.address_ = has_several_hosts ? reachable_address(*client) : client->local_address();
  if (rank.rank == 0) warn_of_unused_address(rank);
  return job;
}

// Linux lets several sockets share one port as long as all of them set SO_REUSEADDR and at most one
// of them listens.
PortReservation::PortReservation(int port, Scope scope)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int socket = socket_.descriptor();
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(scope == Scope::loopback ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, generic, length) != 0 || ::getsockname(socket, generic, &length) != 0) {
    const int number = errno;
    require(number != EADDRINUSE, ErrorCode::Comm, "run", "port {} is in use; choose another port",
            port);
    fail(ErrorCode::Comm, "run", "cannot take port {}: {}", port, std::strerror(number));
  }
  port_ = ntohs(address.sin_port);
}

}  // namespace lockstep::launch
