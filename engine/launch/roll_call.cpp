#include "engine/launch/roll_call.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

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
    if (num_missing == 0) {
      const std::string_view words = error.what();  // "[store] rank 0 waited ..., missing: rank 1"
      end_for_all(
          store, ErrorCode::Timeout,
          fmt::format("all ranks came, but not all go on; {}", words.substr(words.find("] ") + 2)));
    }
    end_for_all(
        store, ErrorCode::Timeout,
        fmt::format("{} of {} ranks came within {:g} s, missing: rank {}; start them too, "
                    "or correct WORLD_SIZE",
                    rank.world_size - num_missing, rank.world_size, timeout_seconds, missing));
  }
  store.set("join/complete", "");
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

void call_roll(comm::Store& store, RankEnvironment& rank, double timeout_seconds) {
  register_rank(store, rank);
  wait_for_all(store, rank, timeout_seconds);
  count_hosts(store, rank);
}

}  // namespace lockstep::launch
