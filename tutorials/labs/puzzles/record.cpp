#include "tutorials/labs/puzzles/record.h"

#include <algorithm>
#include <utility>

namespace lab {

std::size_t Record::add(const Verb& verb, Piece piece) {
  verbs_.push_back(verb);
  pieces_.push_back(std::move(piece));
  return pieces_.size() - 1;
}

void Record::time(std::size_t num_gpus, Played& played) const {
  const std::vector<Interval> times = run_pieces(pieces_, int(num_gpus));
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    played.seconds = std::max(played.seconds, times[i].end);
    played.events.push_back({verbs_[i], pieces_[i].gpus, pieces_[i].stream, times[i]});
  }
  std::vector<std::vector<std::pair<double, std::ptrdiff_t>>> changes(num_gpus);
  for (const Change& change : changes_) {
    const Interval& time = times[change.piece];
    changes[std::size_t(change.gpu)].emplace_back(change.num_bytes > 0 ? time.begin : time.end,
                                                  change.num_bytes);
  }
  for (auto& of_gpu : changes) {
    std::ranges::sort(of_gpu);  // what is given back at an instant comes first
    std::ptrdiff_t held = 0;
    std::vector<Held>& memory = played.memory.emplace_back();
    for (const auto& [seconds, num_bytes] : of_gpu) {
      held += num_bytes;
      memory.push_back({seconds, std::size_t(held)});
      played.most_bytes = std::max(played.most_bytes, std::size_t(held));
    }
  }
}

}  // namespace lab
