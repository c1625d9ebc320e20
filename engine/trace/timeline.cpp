#include "engine/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::trace {

namespace {

// What shares rows; its order is the order of the picture.
struct Group {
  int rank;
  int position;
  std::string name;

  bool operator<(const Group& other) const {
    return std::tie(rank, position) < std::tie(other.rank, other.position);
  }
};

// The rows of a GPU stand below all rows of the host that gives it work.
constexpr int kDevicePosition = 10;

Group on_host(const Span& span) {
  if (span.category == Category::step) {
    return {span.rank, 0, "steps"};
  }
  const auto position_of = [](Lane lane) {
    switch (lane) {
      case Lane::host:
        return 1;
      case Lane::compute:
        return 3;
      case Lane::copy:
        return 5;
      case Lane::comm:
        break;
    }
    return 7;
  };
  const std::string lane(to_string(span.lane));
  return span.category == Category::op ? Group{span.rank, position_of(span.lane) + 1, lane + " ops"}
                                       : Group{span.rank, position_of(span.lane), lane};
}

Group group_of(const Span& span) {
  Group group = on_host(span);
  if (span.thread == kDeviceThread) {
    group.position += kDevicePosition;
    group.name = "GPU " + group.name;
  }
  return group;
}

}  // namespace

std::vector<std::vector<Span>> disjoint_rows(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
  });
  std::vector<std::vector<Span>> rows;
  for (const Span& span : spans) {
    auto free = std::find_if(rows.begin(), rows.end(), [&](const std::vector<Span>& row) {
      return row.back().end_ns <= span.begin_ns;
    });
    if (free == rows.end()) {
      free = rows.emplace(rows.end());
    }
    free->push_back(span);
  }
  return rows;
}

std::vector<TimelineRow> timeline_of(const std::vector<Span>& spans) {
  std::map<Group, std::vector<Span>> groups;
  for (const Span& span : spans) {
    groups[group_of(span)].push_back(span);
  }
  std::vector<TimelineRow> all;
  for (auto& [group, spans_of_group] : groups) {
    std::size_t level = 0;
    for (std::vector<Span>& row : disjoint_rows(std::move(spans_of_group))) {
      ++level;
      std::string name = level == 1 ? group.name : fmt::format("{}, level {}", group.name, level);
      all.push_back({group.rank, std::move(name), std::move(row)});
    }
  }
  return all;
}

}  // namespace lockstep::trace
