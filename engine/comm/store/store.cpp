#include "engine/comm/store/store.h"

#include <fmt/format.h>

namespace lockstep::comm {

// Rank r of round g says that it has come by "name/g/r"; the last one opens "name/g/open". The
// round is known from the count of all arrivals. What the round before left is cleared away: all
// ranks are past it.
void Store::barrier(std::string_view name, int rank, int world_size, runtime::Deadline deadline) {
  const std::int64_t count = add(fmt::format("{}/count", name), 1);
  const std::int64_t round = (count - 1) / world_size;
  const auto key = [&](std::int64_t of_round, std::string_view what) {
    return fmt::format("{}/{}/{}", name, of_round, what);
  };
  erase(key(round - 1, std::to_string(rank)));
  set(key(round, std::to_string(rank)), "");
  if (count % world_size == 0) {
    erase(key(round - 1, "open"));
    set(key(round, "open"), "");
  }
  try {
    get(key(round, "open"), deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    std::string missing;
    for (int r = 0; r < world_size; ++r) {
      if (try_get(key(round, std::to_string(r)))) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
    }
    fail(ErrorCode::Timeout, "store",
         "rank {} waited in the barrier \"{}\": {} of {} ranks came, "
         "missing: rank {}",
         rank, name, count - round * world_size, world_size, missing);
  }
}

Error abort_error(const Error& why) {
  return {ErrorCode::Comm, why.operation(), why.message()};
}

}  // namespace lockstep::comm
