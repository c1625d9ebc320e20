// Ranks that share a store make sure that they belong together, and count who is on which host.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <sstream>

#include "engine/comm/host_identity.h"
#include "engine/core/error.h"
#include "engine/launch/rendezvous.h"

namespace lockstep::launch {
namespace {

// Holds the rank's host. Two ranks with the same number were told apart when they connected.
std::string rank_key(int rank) {
  return fmt::format("join/rank/{}", rank);
}

// Ends the rendezvous for all ranks, in the same words.
[[noreturn]] void end_for_all(comm::Store& store, ErrorCode code, const std::string& why) {
  const Error error(code, "join", why);
  store.abort(error);
  throw error;
}

// Each rank compares its world size and settings with those of the first that came. Their text: the
// rank, and then one setting to a line.
void compare_settings(comm::Store& store, const RankEnvironment& rank,
                      const std::vector<Setting>& settings) {
  std::string mine = fmt::format("{}\nWORLD_SIZE={}\n", rank.rank, rank.world_size);
  for (const auto& [name, value] : settings) mine += fmt::format("{}={}\n", name, value);
  std::istringstream theirs(store.set_if_absent("join/settings", mine));
  std::istringstream ours(mine);
  std::string their_rank;
  std::string our_rank;
  std::getline(theirs, their_rank);
  std::getline(ours, our_rank);
  std::string a;
  std::string b;
  do {
    if (!std::getline(theirs, a)) a = "nothing";
    if (!std::getline(ours, b)) b = "nothing";
    if (!theirs && !ours) return;
  } while (a == b);
  std::string name = a.substr(0, a.find('='));
  if (theirs && b.starts_with(name + "=")) {
    a.erase(0, name.size() + 1);
    b.erase(0, name.size() + 1);
  } else {
    name = "what they do";  // settings of other kinds
  }
  end_for_all(store, ErrorCode::Usage,
              fmt::format("the ranks differ in {}: {:.80} (rank {}) and {:.80} (rank {}); start "
                          "all of them with the same",
                          name, a, their_rank, b, our_rank));
}

std::vector<int> find_missing(comm::Store& store, int world_size) {
  std::vector<int> missing;
  for (int r = 0; r < world_size; ++r) {
    if (!store.try_get(rank_key(r))) missing.push_back(r);
  }
  return missing;
}

[[noreturn]] void fail_missing(comm::Store& store, int world_size, double timeout_seconds,
                               const std::vector<int>& missing) {
  if (missing.empty()) {
    end_for_all(store, ErrorCode::Timeout,
                fmt::format("all {} ranks came within {:g} s, but one of them does not go on: its "
                            "process is stopped",
                            world_size, timeout_seconds));
  }
  constexpr std::size_t kMostNamed = 8;
  const auto named = std::span(missing).first(std::min(missing.size(), kMostNamed));
  const auto refused = store.try_get(comm::kRefusedKey);
  end_for_all(store, ErrorCode::Timeout,
              fmt::format("{} of {} ranks came within {:g} s, missing: rank {}{}; start them too, "
                          "or correct WORLD_SIZE{}",
                          static_cast<std::size_t>(world_size) - missing.size(), world_size,
                          timeout_seconds, fmt::join(named, ", "),
                          missing.size() > kMostNamed ? ", ..." : "",
                          refused ? fmt::format(" ({})", *refused) : ""));
}

// The last rank that comes says so to all.
void wait_for_all(comm::Store& store, const RankEnvironment& rank, const JoinOptions& options) {
  constexpr const char* kComplete = "join/complete";
  if (store.add("join/num_ranks", 1) == rank.world_size) store.set(kComplete, "");
  const WaitingNotice& notice = options.waiting;
  const runtime::Deadline end = runtime::deadline_after(options.timeout_seconds);
  double patience = notice.after_seconds;
  std::vector<int> told;
  for (;; patience = notice.after_seconds / 2) {
    const runtime::Deadline look =
        notice.tell ? runtime::earlier(runtime::deadline_after(patience), end) : end;
    if (store.find(kComplete, look)) return;
    std::vector<int> missing = find_missing(store, rank.world_size);
    if (look == end) fail_missing(store, rank.world_size, options.timeout_seconds, missing);
    if (!missing.empty() && missing != told) notice.tell(missing);
    told = std::move(missing);
  }
}

void count_hosts(comm::Store& store, RankEnvironment& rank) {
  if (rank.local_world_size != 0 && rank.node_rank >= 0) return;
  const std::string mine = comm::host_identity();
  std::set<std::string> hosts_before;
  int on_this_host = 0;
  int node_rank = -1;
  for (int r = 0; r < rank.world_size; ++r) {
    const std::string host = store.try_get(rank_key(r)).value_or("");
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

void check_ranks(comm::Store& store, RankEnvironment& rank, const JoinOptions& options) {
  store.set(rank_key(rank.rank), comm::host_identity());
  compare_settings(store, rank, options.settings);
  wait_for_all(store, rank, options);
  count_hosts(store, rank);
}

}  // namespace lockstep::launch
