// The figures of a run that are made of bars.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/page/bar_chart.h"
#include "tools/page/html_text.h"
#include "tools/page/parts.h"
#include "tools/page/run_charts.h"
#include "tools/page/timeline_chart.h"

namespace lockstep::tools::page {
namespace {

// More devices are not drawn one by one: the one that holds most stands for them.
constexpr std::size_t kMostDevicesDrawn = 16;
// On a phone a longer name of a bar would reach its value.
constexpr std::size_t kLongestName = 40;

std::string legend(const std::set<std::string_view>& colors) {
  std::string html = "<ul class=\"legend\">";
  const auto add = [&](const StepPart& part) {
    if (!colors.contains(part.color)) return;
    html += fmt::format(
        R"(<li><svg class="swatch" width="11" height="11" aria-hidden="true"><rect class="c-{}" width="11" height="11"/></svg>{}</li>)",
        part.color, part.name);
  };
  for (const StepPart& part : kStepParts) add(part);
  for (const StepPart& part : kLaneParts) add(part);
  return html + "</ul>\n";
}

std::string share_text(double share) {
  return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0);
}

}  // namespace

std::string breakdown_figure(const RunFile& run) {
  double largest = 0;
  for (const FileRow& row : run.rows) {
    if (row.breakdown) largest = std::max(largest, row.step_seconds);
  }
  if (largest == 0) return {};
  const Unit unit = seconds_unit(largest);
  BarChart chart{"Where the time of a step goes",
                 fmt::format("time in the median step ({})", unit.name), "mode x devices"};
  std::set<std::string_view> colors;
  bool has_hidden = false, has_band = false;
  for (const FileRow& row : run.rows) {
    if (!row.breakdown) continue;
    Bar bar{shortened(bar_label(run, row), kLongestName),
            fmt::format("{} {}", short_number(row.step_seconds / unit.size), unit.name), row.kind};
    if (row.shortest && row.longest) {
      has_band = true;
      bar.band = {*row.shortest / unit.size, *row.longest / unit.size};
    }
    for (const StepPart& part : kStepParts) {
      const double seconds = (*row.breakdown).*part.seconds;
      if (seconds <= 0) continue;
      colors.insert(part.color);
      bar.parts.push_back({fmt::format("c-{}", part.color), seconds / unit.size,
                           fmt::format("{} {} {}, {}", part.name, short_number(seconds / unit.size),
                                       unit.name, share_text(seconds / row.step_seconds))});
    }
    const double hidden = row.breakdown->overlapped_comm;
    if (hidden > 0.002 * row.step_seconds) {
      has_hidden = true;
      bar.below.push_back({"c-comm", hidden / unit.size,
                           fmt::format("communication, hidden behind computation {} {}",
                                       short_number(hidden / unit.size), unit.name)});
    }
    chart.bars.push_back(std::move(bar));
  }
  std::string notes = legend(colors);
  if (has_hidden) {
    notes +=
        "<p class=\"note\">The thin line below a bar is communication that computation hid.</p>\n";
  }
  if (has_band) {
    notes +=
        "<p class=\"note\">The dark line is the band of a prediction: its step with better and "
        "with "
        "worse links, latencies and stragglers.</p>\n";
  }
  return figure("breakdown wide", "Where a step's time goes", "on rank 0, in its median step",
                bar_chart_svg(chart), notes);
}

std::string memory_figure(const RunFile& run) {
  double largest = 0;
  for (const FileRow& row : run.rows) {
    for (const double bytes : row.peak_bytes) largest = std::max(largest, bytes);
  }
  if (largest == 0) return {};
  const Unit unit = bytes_unit(largest);
  BarChart chart{"Memory per device", fmt::format("peak memory of a device ({})", unit.name),
                 "mode x devices, a bar for each device"};
  bool is_cut = false;
  for (const FileRow& row : run.rows) {
    if (row.peak_bytes.empty()) continue;
    const double most = *std::ranges::max_element(row.peak_bytes);
    Bar bar{bar_label(run, row), fmt::format("{} {}", short_number(most / unit.size), unit.name),
            row.kind};
    const bool is_drawn_whole = row.peak_bytes.size() <= kMostDevicesDrawn;
    is_cut = is_cut || !is_drawn_whole;
    const std::vector<double> drawn = is_drawn_whole ? row.peak_bytes : std::vector{most};
    for (const double bytes : drawn) {
      bar.stacked.push_back({"m-" + color_of(row.mode), bytes / unit.size,
                             fmt::format("{} {}", short_number(bytes / unit.size), unit.name)});
    }
    chart.bars.push_back(std::move(bar));
  }
  return figure(
      "memory", "Memory", "most in use on each device", bar_chart_svg(chart),
      is_cut ? "<p class=\"note\">Of more than 16 devices the largest is drawn.</p>\n" : "");
}

std::string timeline_figure(const StepTimeline& timeline) {
  std::set<std::string_view> colors;
  for (const RankLanes& rank : timeline.ranks) {
    for (const Lane& lane : rank.lanes) {
      for (const LaneSpan& span : lane.spans) colors.insert(part_of_category(span.category));
    }
  }
  std::string notes = legend(colors);
  if (timeline.ranks.size() > kMostRanksDrawn) {
    notes += fmt::format("<p class=\"note\">The first {} of {} ranks.</p>\n", kMostRanksDrawn,
                         timeline.ranks.size());
  }
  if (!timeline.is_judged) {
    notes +=
        "<p class=\"note\">This timeline does not say which thread did what, so nobody can tell "
        "what "
        "of the communication was hidden: --trace of this version writes it.</p>\n";
  }
  const std::string what =
      timeline.row.empty()
          ? fmt::format("of {} devices; the run file has no such row", timeline.ranks.size())
          : "of " + timeline.row;
  return figure(
      "timeline full", "One step, device by device",
      timeline.is_predicted
          ? what
          : fmt::format("{}; step {} of the timeline, the median by length", what, timeline.step),
      timeline_svg(timeline), notes);
}

}  // namespace lockstep::tools::page
