#include "engine/comm/store/tcp_store_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>

#include "engine/comm/comm_errors.h"
#include "engine/comm/host_identity.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/store/store_protocol.h"
#include "engine/comm/store/token_handshake.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// A server that strangers keep busy may not have taken the connection at all.
constexpr std::chrono::seconds kHandshakeTurn{2};

// Beyond a request's own deadline, for the server's answer to arrive.
std::chrono::milliseconds answer_grace(double timeout_seconds) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(1e3 * std::clamp(timeout_seconds / 4, 0.5, 5.0)));
}

}  // namespace

class TcpStoreClient::Connection {
 public:
  explicit Connection(const TcpStoreClientOptions& options)
      : port_(options.port),
        where_(fmt::format("{} port {}", options.host, options.port)),
        server_(options.served_by.empty()
                    ? fmt::format("the store at {}", where_)
                    : fmt::format("{}, which serves the store at {},", options.served_by, where_)),
        timeout_seconds_(options.timeout_seconds) {
    require_token(options.token);
    const runtime::Deadline deadline =
        runtime::deadline_after(options.connect_seconds.value_or(options.timeout_seconds));
    for (IoResult result{}; (result = try_handshake(options, deadline)) != IoResult::done;) {
      require(result != IoResult::closed, ErrorCode::Comm, "store",
              "{} closed the connection: it belongs to a job with another token, or is no Lockstep "
              "store; give this job another --master-port, or both the same LOCKSTEP_TOKEN",
              where_);
      require(!runtime::has_passed(deadline), ErrorCode::Timeout, "store", "{} {}", where_,
              result == IoResult::timeout
                  ? "took the connection but does not answer"
                  : "cut every connection: too many others want to be let in, or it is no Lockstep "
                    "store");
      std::this_thread::sleep_for(kPauseAfterReset);
    }
    if (!options.rank) return;
    ask(StoreWriter(StoreRequest::register_rank).number(*options.rank).text(name_of_this_process()),
        {});
  }

  ~Connection() {
    const auto message = StoreWriter(StoreRequest::leave).finish();
    if (!lost_.is_set()) send_all(socket_, message, runtime::deadline_after(1));
  }

  struct Reply {
    StoreStatus status;
    std::vector<std::byte> body;
    StoreReader reader() const { return StoreReader(body); }
  };

  // Sends a request and waits for its answer; deadline: of a request that waits for keys.
  Reply ask(StoreWriter& request, std::optional<runtime::Deadline> deadline) {
    lost_.throw_if_set();
    const std::vector<std::byte> message = request.finish();
    require(message.size() <= kMaxStoreMessageBytes, ErrorCode::Usage, "store",
            "a request has at most {} bytes, found {}", kMaxStoreMessageBytes, message.size());
    runtime::Deadline answer_by = runtime::deadline_after(timeout_seconds_);
    if (deadline) answer_by = *deadline;
    if (deadline && answer_by) answer_by = *answer_by + answer_grace(timeout_seconds_);
    check(send_all(socket_, message, runtime::deadline_after(timeout_seconds_)));
    std::array<std::byte, kStoreHeaderBytes> bytes;
    check(receive_all(socket_, bytes, answer_by));
    const StoreHeader header = read_store_header(bytes);
    if (header.num_bytes > kMaxStoreMessageBytes) check(IoResult::closed);
    Reply reply{static_cast<StoreStatus>(header.kind), {}};
    reply.body.resize(header.num_bytes);
    check(receive_all(socket_, reply.body, answer_by));
    throw_unless_answered(reply);
    return reply;
  }

  const Socket& socket() const { return socket_; }

 private:
  // closed: the server does not want this client. reset, timeout: it has had no time for it.
  IoResult try_handshake(const TcpStoreClientOptions& options, runtime::Deadline deadline) {
    socket_ = connect_to(options.host, options.port, deadline);
    const runtime::Deadline turn =
        runtime::earlier(deadline, runtime::Clock::now() + kHandshakeTurn);
    const ClientHandshake handshake(options.token, kStorePurpose);
    Answer answer;
    IoResult result = send_all(socket_, handshake.hello(), turn);
    if (result == IoResult::done) result = receive_all(socket_, answer, turn);
    if (result != IoResult::done) return result;
    const auto proof = handshake.proof(answer);
    require(proof.has_value(), ErrorCode::Comm, "store",
            "the server at {} does not hold this job's token", where_);
    return send_all(socket_, *proof, turn);
  }

  void check(IoResult result) {
    if (result == IoResult::done) return;
    lost_.set(result != IoResult::timeout
                  ? Error(ErrorCode::Comm, "store",
                          fmt::format("{} is gone: its process ended, or was killed", server_))
                  : Error(ErrorCode::Timeout, "store",
                          fmt::format("{} does not answer: its process is stopped, or its host was "
                                      "cut off",
                                      server_)));
    throw lost_.error();
  }

  void throw_unless_answered(const Reply& reply) {
    StoreReader reader = reply.reader();
    switch (reply.status) {
      case StoreStatus::ok:
      case StoreStatus::absent:
        return;
      case StoreStatus::timeout:
        fail(ErrorCode::Timeout, "store", "the key \"{}\" was not there at the deadline",
             reader.text());
      case StoreStatus::refused:
        throw Error(ErrorCode::Usage, "store", reader.text());
      case StoreStatus::aborted:
        throw decode_error(reader.text());
      case StoreStatus::taken: {
        const auto holder =
            reader.number() == 0 ? DuplicateRank::Holder::is_here : DuplicateRank::Holder::has_left;
        throw DuplicateRank(
            "join",
            fmt::format(
                "{}, so {} cannot join; is another job using port {}? give each job its own "
                "MASTER_PORT (lockstep run --standalone takes a free one), and each process "
                "of a job its own RANK",
                reader.text(), name_of_this_process(), port_),
            holder);
      }
    }
    check(IoResult::closed);
  }

  std::uint16_t port_;
  std::string where_;
  std::string server_;
  double timeout_seconds_;
  Socket socket_;
  FirstFailure lost_;
};

TcpStoreClient::TcpStoreClient(const TcpStoreClientOptions& options)
    : connection_(std::make_unique<Connection>(options)) {}

TcpStoreClient::~TcpStoreClient() = default;

void TcpStoreClient::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  connection_->ask(StoreWriter(StoreRequest::set).text(key).text(value), {});
}

std::string TcpStoreClient::set_if_absent(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  return connection_->ask(StoreWriter(StoreRequest::set_if_absent).text(key).text(value), {})
      .reader()
      .text();
}

std::string TcpStoreClient::get(std::string_view key, runtime::Deadline deadline) {
  const std::lock_guard lock(mutex_);
  StoreWriter request(StoreRequest::get);
  request.number(runtime::milliseconds_until(deadline)).text(key);
  return connection_->ask(request, deadline).reader().text();
}

std::optional<std::string> TcpStoreClient::try_get(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto reply = connection_->ask(StoreWriter(StoreRequest::try_get).text(key), {});
  if (reply.status == StoreStatus::absent) return std::nullopt;
  return reply.reader().text();
}

std::int64_t TcpStoreClient::add(std::string_view key, std::int64_t difference) {
  const std::lock_guard lock(mutex_);
  return connection_->ask(StoreWriter(StoreRequest::add).text(key).number(difference), {})
      .reader()
      .number();
}

void TcpStoreClient::wait(std::span<const std::string> keys, runtime::Deadline deadline) {
  const std::lock_guard lock(mutex_);
  // A request asks for so many at most; a job may have more ranks.
  do {
    const auto some = keys.first(std::min(keys.size(), kMaxKeysPerWait));
    keys = keys.subspan(some.size());
    StoreWriter request(StoreRequest::wait);
    request.number(runtime::milliseconds_until(deadline)).count(some.size());
    for (const std::string& key : some) request.text(key);
    connection_->ask(request, deadline);
  } while (!keys.empty());
}

bool TcpStoreClient::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  return connection_->ask(StoreWriter(StoreRequest::erase).text(key), {}).status == StoreStatus::ok;
}

std::size_t TcpStoreClient::num_keys() {
  const std::lock_guard lock(mutex_);
  StoreWriter request(StoreRequest::num_keys);
  return static_cast<std::size_t>(connection_->ask(request, {}).reader().number());
}

std::int64_t TcpStoreClient::clock_ns() {
  const std::lock_guard lock(mutex_);
  StoreWriter request(StoreRequest::clock);
  return connection_->ask(request, {}).reader().number();
}

void TcpStoreClient::abort(const Error& why) {
  const std::lock_guard lock(mutex_);
  connection_->ask(StoreWriter(StoreRequest::abort).text(encode(why, kMaxValueBytes)), {});
}

std::string TcpStoreClient::local_address() const {
  return local_address_of(connection_->socket());
}

std::string TcpStoreClient::server_address() const {
  return remote_address_of(connection_->socket());
}

}  // namespace lockstep::comm
