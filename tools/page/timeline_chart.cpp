#include "tools/page/timeline_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/page/axis.h"
#include "tools/page/html_text.h"
#include "tools/page/parts.h"

namespace lockstep::tools::page {
namespace {

// Percent of the width: names left, time right of it.
constexpr double kGutter = 15;
// Pixels.
constexpr double kLanesTop = 22, kLanesLine = 16, kLane = 14, kLaneGap = 3, kRankGap = 8,
                 kLanesAxis = 34;
// Percent: what is narrower is no longer seen.
constexpr double kNarrowest = 0.04;

double place_of(double seconds, const StepTimeline& timeline) {
  return kGutter + (100 - kGutter) * seconds / timeline.seconds;
}

std::string span_svg(const LaneSpan& span, const StepTimeline& timeline, double y, double unit) {
  const double begin = place_of(span.begin, timeline), end = place_of(span.end, timeline);
  if (end - begin < kNarrowest) return {};
  return fmt::format(
      R"(<rect class="c-{}" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"><title>{} {}</title></rect>)",
      part_of_category(span.category), begin, y, end - begin, kLane, escape(span.name),
      short_number((span.end - span.begin) / unit));
}

std::string lanes_axis_svg(const StepTimeline& timeline, double bottom, const Unit& unit) {
  const Axis axis = tight_axis_to(timeline.seconds / unit.size);
  std::string svg;
  for (const double tick : axis.ticks) {
    const double percent = place_of(tick * unit.size, timeline);
    svg += fmt::format(R"(<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>)"
                       R"(<text class="tick" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>)",
                       tick == 0 ? "base" : "grid", percent, percent, kLanesTop, bottom, percent,
                       bottom + 13, tick_anchor(percent, short_number(tick)), short_number(tick));
  }
  return svg +
         fmt::format(R"(<text class="axis x" x="50%" y="{}" text-anchor="middle">time since the )"
                     R"(step began ({})</text>)",
                     bottom + 29, unit.name);
}

}  // namespace

std::string timeline_svg(const StepTimeline& timeline) {
  const std::size_t num_ranks = std::min(timeline.ranks.size(), kMostRanksDrawn);
  const Unit unit = seconds_unit(timeline.seconds);
  std::string lanes;
  double y = kLanesTop;
  for (std::size_t i = 0; i < num_ranks; ++i) {
    const RankLanes& rank = timeline.ranks[i];
    lanes += fmt::format(R"(<text class="name" x="0" y="{}">{}</text>)", y + 11, escape(rank.name));
    y += kLanesLine;
    for (const Lane& lane : rank.lanes) {
      lanes +=
          fmt::format(R"(<text class="tick" x="0" y="{}">{}</text>)", y + 11, escape(lane.name));
      lanes += fmt::format(R"(<rect class="lane" x="{}%" y="{}" width="{}%" height="{}"/>)",
                           kGutter, y, 100 - kGutter, kLane);
      for (const LaneSpan& span : lane.spans) lanes += span_svg(span, timeline, y, unit.size);
      y += kLane + kLaneGap;
    }
    y += kRankGap;
  }
  return fmt::format(
             R"(<svg class="bars" width="100%" height="{}" role="img"><title>Step {}, in {}</title>)",
             y + kLanesAxis, timeline.step, unit.name) +
         lanes_axis_svg(timeline, y, unit) +
         R"(<text class="axis y" x="0" y="12">rank, lane</text>)" + lanes + "</svg>\n";
}

}  // namespace lockstep::tools::page
