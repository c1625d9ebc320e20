#include "tools/report/waiting_status.h"

#include <fmt/ranges.h>

#include "tools/report/status_line.h"

namespace lockstep::tools {

std::string waiting_words(const std::vector<int>& missing, int world_size) {
  return fmt::format("waiting for rank{} {} of {}", missing.size() == 1 ? "" : "s",
                     fmt::join(missing, ", "), world_size);
}

launch::WaitingNotice show_who_joins_late(int world_size) {
  launch::WaitingNotice notice;
  if (!has_status_line()) return notice;
  notice.tell = [world_size](const std::vector<int>& missing) {
    show_status(waiting_words(missing, world_size));
  };
  return notice;
}

ShowLateRanks::ShowLateRanks() {
  if (!has_status_line()) return;
  watch_.emplace([](const std::string& words) {
    if (words.empty()) {
      clear_status();
    } else {
      show_status("waiting in " + words);
    }
  });
}

}  // namespace lockstep::tools
