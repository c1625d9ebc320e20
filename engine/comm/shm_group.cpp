// Ranks that are processes of one host: how each reaches the others' memory, and how they meet.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/comm/memory_group.h"
#include "engine/comm/process_transports.h"
#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/runtime/shared_memory.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {
namespace {

using runtime::MappedMemory;
using runtime::SharedMemory;

// Between ranks of which some are on other hosts, larger chunks travel in pieces of this size.
constexpr std::size_t kMessageBytes = std::size_t{128} << 10;

// A process that is a rank.
struct Peer {
  int process = 0;
  FileDescriptor end;  // none for this process
  std::optional<MappedMemory> memory;
};

class ProcessMemory final : public PeerMemory {
 public:
  // addresses: of each rank's shared memory, "PID N".
  ProcessMemory(const std::vector<std::string>& addresses, const std::vector<int>& ranks) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      Peer& peer = peers_.emplace_back();
      peer.process = std::atoi(addresses[i].c_str());
      if (peer.process == getpid()) continue;
      peer.end = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.process, 0)));
      peer.memory.emplace(addresses[i], fmt::format("rank {}", ranks[i]));
    }
  }

  runtime::MemoryPool& pool() override { return *pool_; }
  void keep(const runtime::MemoryPool::Block&) noexcept override {}  // until the process ends
  Address address_of(const void* data) const override { return mine_.offset_of(data).value_or(0); }

  std::byte* at(int peer, Address address, std::size_t num_bytes) override {
    std::optional<MappedMemory>& memory = of(peer).memory;
    if (!memory) memory.emplace(mine_.address(), "this process");  // several ranks in one process
    return memory->at(address, num_bytes);
  }

  // The kernel tells this only after it has reported the end of the process. So a launcher, which
  // blames the rank that ended first, cannot see the end of this rank sooner.
  bool is_alive(int peer) const override {
    const Peer& its = of(peer);
    if (its.process == getpid()) return true;
    if (!its.end.is_open()) return ::kill(its.process, 0) == 0;  // a kernel before 5.3
    pollfd end{its.end.descriptor(), POLLIN, 0};
    return ::poll(&end, 1, 0) != 1;  // a signal may interrupt it
  }
  int process_of(int peer) const override { return of(peer).process; }

 private:
  Peer& of(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  const Peer& of(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }

  SharedMemory& mine_ = SharedMemory::of_tensors();
  std::unique_ptr<runtime::MemoryPool> pool_ = runtime::make_host_memory_pool("the host");
  std::deque<Peer> peers_;
};

// place: "PID N OFFSET". The mapping lives as long as the result.
std::shared_ptr<std::byte> open_state(const std::string& place, int owner, std::size_t num_bytes) {
  const auto memory = std::make_shared<MappedMemory>(place, fmt::format("rank {}", owner));
  const Address offset = std::strtoull(place.c_str() + place.rfind(' '), nullptr, 10);
  return {memory, memory->at(offset, num_bytes)};
}

// Each rank tells where its memory is, then whether it reaches the others', so that all succeed or
// fail together.
class Meeting {
 public:
  Meeting(const ProcessGroupOptions& options, const std::vector<int>& ranks, std::size_t num_bytes)
      : options_(options), store_(*options.store), ranks_(ranks), num_bytes_(num_bytes) {}

  // Returns when all ranks of the group have told. why_not: empty if all share their memory.
  SharedState share(std::string& why_not) {
    SharedState state;
    std::string place;
    const std::string mine = try_to([&] { place = offer(state); });
    store_.set(key("memory", options_.rank), place);
    const std::string others = try_to([&] { open(state); });
    store_.set(key("shares", options_.rank), mine.empty() ? others : mine);
    store_.barrier(fmt::format("shared memory {}", options_.group), options_.rank,
                   options_.world_size, options_.timeout_seconds);
    for (int rank = 0; rank < options_.world_size && why_not.empty(); ++rank) {
      const std::string why = get("shares", rank);
      if (!why.empty() && why != kNotOffered) why_not = fmt::format("rank {}: {}", rank, why);
    }
    return state;
  }

 private:
  static constexpr std::string_view kNotOffered = "another rank shares nothing";

  std::string key(std::string_view what, int rank) const {
    return fmt::format("group/{}/{}/{}", options_.group, what, rank);
  }
  std::string get(std::string_view what, int rank) {
    return store_.get(key(what, rank), runtime::deadline_after(options_.timeout_seconds));
  }

  // An Error{Comm} of the system's is what hinders this rank; others end the meeting.
  template <typename Step>
  static std::string try_to(const Step& step) {
    try {
      step();
      return {};
    } catch (const Error& error) {
      if (error.operation() != "shared memory") throw;
      return std::string(error.message());
    }
  }

  // Returns where this rank's memory is: "PID N". The first rank makes the state of all, and adds
  // a line with its place.
  std::string offer(SharedState& state) {
    std::string place = SharedMemory::of_tensors().address();
    if (options_.rank != ranks_.front()) return place;
    const auto memory = std::make_shared<SharedMemory>();
    auto* const data = static_cast<std::byte*>(memory->allocate(num_bytes_));
    require(data != nullptr, ErrorCode::Comm, "shared memory", "no memory left for {} bytes",
            num_bytes_);
    state.data = {memory, data};
    return fmt::format("{}\n{} {}", place, memory->address(), *memory->offset_of(data));
  }

  void open(SharedState& state) {
    std::vector<std::string> places;
    for (const int rank : ranks_) places.push_back(get("memory", rank));
    require(std::ranges::count(places, "") == 0, ErrorCode::Comm, "shared memory", "{}",
            kNotOffered);
    state.memory = std::make_unique<ProcessMemory>(places, ranks_);
    if (state.data != nullptr) return;
    const std::string& first = places.front();
    state.data = open_state(first.substr(first.find('\n') + 1), ranks_.front(), num_bytes_);
  }

  const ProcessGroupOptions& options_;
  Store& store_;
  const std::vector<int>& ranks_;
  std::size_t num_bytes_;
};

}  // namespace

std::unique_ptr<Transport> shm_transport(const ProcessGroupOptions& options,
                                         const std::vector<int>& ranks, std::string& why_not) {
  GroupShape shape;
  shape.rank = static_cast<int>(std::ranges::find(ranks, options.rank) - ranks.begin());
  shape.world_size = static_cast<int>(ranks.size());
  shape.names = ranks;
  shape.name = "shm";
  shape.shares_memory = true;
  shape.max_message_bytes = kMessageBytes;
  SharedState shared = Meeting(options, ranks, bytes_to_share(ranks.size())).share(why_not);
  if (!why_not.empty()) return nullptr;
  const runtime::Spin spin = spin_of_ranks(num_sharing_cores(options, ranks.size()),
                                           options.link ? LinkKind::modelled : LinkKind::real);
  return std::make_unique<MemoryRank>(std::move(shape), std::move(shared), spin,
                                      options.timeout_seconds);
}

}  // namespace lockstep::comm
