#include "engine/launch/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/comm/host_identity.h"
#include "engine/core/error.h"

namespace lockstep::launch {
namespace {

std::string rank_key(int rank) {
  return fmt::format("join/rank/{}", rank);
}

// Ends the roll call for everybody, in the same words.
[[noreturn]] void end_for_all(comm::Store& store, ErrorCode code, const std::string& why) {
  store.abort(fmt::format("[join] {}", why));
  fail(code, "join", "{}", why);
}

// Says who this rank is, and finds out whether that contradicts what another one said. (That two
// have the same number was noticed when the second one connected, and refused.)
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

std::vector<int> find_missing(comm::Store& store, const RankEnvironment& rank) {
  std::vector<int> missing;
  for (int r = 0; r < rank.world_size; ++r) {
    if (!store.try_get(rank_key(r))) missing.push_back(r);
  }
  return missing;
}

[[noreturn]] void fail_missing(comm::Store& store, const RankEnvironment& rank,
                               double timeout_seconds, const std::vector<int>& missing) {
  if (missing.empty()) {
    end_for_all(store, ErrorCode::Timeout,
                fmt::format("all {} ranks came within {:g} s, but one of them does not go on: its "
                            "process is stopped",
                            rank.world_size, timeout_seconds));
  }
  constexpr std::size_t kMostNamed = 8;
  const auto named = std::span(missing).first(std::min(missing.size(), kMostNamed));
  const auto refused = store.try_get(comm::kRefusedKey);
  end_for_all(store, ErrorCode::Timeout,
              fmt::format("{} of {} ranks came within {:g} s, missing: rank {}{}; start them too, "
                          "or correct WORLD_SIZE{}",
                          static_cast<std::size_t>(rank.world_size) - missing.size(),
                          rank.world_size, timeout_seconds, fmt::join(named, ", "),
                          missing.size() > kMostNamed ? ", ..." : "",
                          refused ? fmt::format(" ({})", *refused) : ""));
}

// The last one that comes opens the door for all.
void wait_for_all(comm::Store& store, const RankEnvironment& rank, double timeout_seconds,
                  const WaitingNotice& notice) {
  constexpr const char* kComplete = "join/complete";
  if (store.add("join/num_ranks", 1) == rank.world_size) store.set(kComplete, "");
  const runtime::Deadline end = runtime::deadline_after(timeout_seconds);
  const auto deadline_of_look = [&](double seconds) {
    const runtime::Deadline look = runtime::deadline_after(seconds);
    return notice.tell && (!end || *look < *end) ? look : end;
  };
  runtime::Deadline look = deadline_of_look(notice.after_seconds);
  std::vector<int> told;
  for (;;) {
    try {
      store.get(kComplete, look);
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Timeout) throw;
    }
    std::vector<int> missing = find_missing(store, rank);
    if (look == end) fail_missing(store, rank, timeout_seconds, missing);
    if (!missing.empty() && missing != told) notice.tell(missing);
    told = std::move(missing);
    look = deadline_of_look(notice.after_seconds / 2);
  }
}

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

void call_roll(comm::Store& store, RankEnvironment& rank, double timeout_seconds,
               const WaitingNotice& notice) {
  register_rank(store, rank);
  wait_for_all(store, rank, timeout_seconds, notice);
  count_hosts(store, rank);
}

}  // namespace lockstep::launch
