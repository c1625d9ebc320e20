#include "tools/torch_trace/answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/text.h"
#include "engine/trace/breakdown.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

constexpr std::size_t kMostLines = 12;  // of a table

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string headline(const TraceRun& run) {
  const RankTrace& trace = run.ranks.front().trace;
  const TraceParts parts = run.mean_parts();
  const std::string how = trace.uses_fsdp  ? ", FSDP"
                          : trace.uses_ddp ? ", DistributedDataParallel"
                                           : "";
  std::string text = fmt::format(
      "{}{}{}{}, {}: a step takes {}; {:.0f} % of it is computation, {:.0f} % communication that "
      "nothing hides",
      count_text(run.ranks.size(), "rank"), trace.has_gpu() ? ", " + shown(trace.gpu) : ", CPU",
      trace.backend.empty() ? "" : ", " + shown(trace.backend), how,
      count_text(run.num_steps(), "step"), format_seconds(parts.step()),
      percent(parts.computation, parts.step()), percent(parts.exposed_comm, parts.step()));
  if (run.num_matched > 0) {
    text +=
        fmt::format(" (waiting for another rank: {:.0f} %)", percent(parts.waiting, parts.step()));
  }
  return text + ".";
}

// What the files cannot tell; a sentence each.
std::string limits(const TraceRun& run) {
  std::string text;
  if (!run.missing_ranks.empty()) {
    text += fmt::format(
        "Without rank{} {} of {}: {}. Give the files of all ranks.",
        run.missing_ranks.size() == 1 ? "" : "s",
        run.missing_ranks.size() > 8
            ? fmt::format("{} and {} more", run.missing_ranks[0], run.missing_ranks.size() - 1)
            : fmt::format("{}", fmt::join(run.missing_ranks, ", ")),
        run.world_size,
        run.ranks.size() == 1 ? "waiting for other ranks counts as communication"
                              : "ranks may have waited longer than is said here");
  }
  std::size_t most_calls = 0;
  for (const RankBreakdown& rank : run.ranks) most_calls = std::max(most_calls, rank.calls.size());
  if (run.ranks.size() > 1 && 10 * run.num_matched < 9 * most_calls) {
    text += fmt::format(
        "{}Only {} of {} collectives are found in all files, so waiting in the "
        "others counts as communication.",
        text.empty() ? "" : " ", run.num_matched, most_calls);
  }
  if (!run.clock_offsets.empty()) {
    const auto [least, most] = std::ranges::minmax(run.clock_offsets);
    text += fmt::format("{}Clocks that differ by {} were set by the ends of collectives.",
                        text.empty() ? "" : " ", format_seconds(most - least));
  }
  return text;
}

std::string parts_line(std::string_view head, const TraceParts& parts) {
  std::string line = fmt::format("{:>5}{:>9}", head, format_seconds(parts.step()));
  for (const auto& [name, seconds] : kTraceParts) {
    const double value = parts.*seconds;
    line += fmt::format("{:>8}", value > 0 ? format_seconds(value) : "-");
  }
  return line + "\n";
}

std::string parts_head(std::string_view of) {
  return fmt::format("{:>5}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}\n", of, "step", "compute",
                     "exposed", "waiting", "copies", "loader", "host", "idle", "hidden");
}

std::string more_lines(std::size_t count, std::string_view what) {
  return count > kMostLines
             ? fmt::format("{:>5} and {} (--json)\n", "...", count_text(count - kMostLines, what))
             : "";
}

std::string parts_tables(const TraceRun& run) {
  std::string text = parts_head("rank");
  for (std::size_t r = 0; r < std::min(run.ranks.size(), kMostLines); ++r) {
    text += parts_line(std::to_string(run.ranks[r].trace.rank), mean(run.ranks[r].steps));
  }
  text += more_lines(run.ranks.size(), "more rank");
  if (run.ranks.size() > 1) text += parts_line("mean", run.mean_parts());
  text += "\n" + parts_head("step");
  const std::vector<TorchStep>& steps = run.ranks.front().trace.steps;
  for (std::size_t i = 0; i < std::min(steps.size(), kMostLines); ++i) {
    std::vector<TraceParts> of_ranks;
    for (const RankBreakdown& rank : run.ranks) {
      for (std::size_t j = 0; j < rank.steps.size(); ++j) {
        if (rank.trace.steps[j].number == steps[i].number) of_ranks.push_back(rank.steps[j]);
      }
    }
    text += parts_line(fmt::format("#{}", steps[i].number), mean(of_ranks));
  }
  return text + more_lines(steps.size(), "more step") +
         wrap(
             "exposed, hidden: communication without and with computation beside it; waiting: "
             "the part of exposed in which it waits for another rank; host: "
             "operators or launches while nothing computes; idle: Python, and waiting") +
         "\n";
}

// "mm" for "aten::mm"; a kernel without its types and arguments.
std::string short_name(std::string name) {
  name = name.substr(0, name.find_first_of("<("));
  if (name.starts_with("void ")) name = name.substr(5);
  const std::size_t colons = name.rfind("::");
  return shown(colons == std::string::npos ? name : name.substr(colons + 2));
}

// Seconds on the named links; 0 if unknown. All-gathers and reduce-scatters are half an all-reduce.
double link_seconds(const CollectiveGroup& group, const Links& links) {
  const bool is_half = group.kind == "all_gather" || group.kind == "reduce_scatter";
  if (links.name.empty() || group.num_bytes <= 0 || (!is_half && group.kind != "all_reduce"))
    return 0;
  return links.all_reduce_seconds(group.num_ranks, group.num_bytes) / (is_half ? 2 : 1);
}

std::string collectives_table(const std::vector<CollectiveGroup>& groups, const Links& links) {
  std::string text =
      fmt::format("{:<14}{:>10}{:>7}{:>8}{:>8}{:>7}{:>7}{}  {}\n", "collective", "bytes", "a step",
                  "time", "waiting", "hidden", "GB/s", links.name.empty() ? "" : "  link", "by");
  bool has_sizes = true;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostLines); ++i) {
    const CollectiveGroup& group = groups[i];
    const double rate = group.bus_bytes_per_second();
    has_sizes &= group.num_bytes > 0 || group.kind == "barrier";
    std::string line = fmt::format(
        "{:<14}{:>10}{:>7.3g}{:>8}{:>8}{:>5.0f} %{:>7}", group.kind,
        group.num_bytes > 0 ? format_bytes(static_cast<std::size_t>(group.num_bytes)) : "?",
        group.calls, format_seconds(group.seconds),
        group.wait_seconds > 0 ? format_seconds(group.wait_seconds) : "-",
        percent(group.hidden_seconds, group.seconds),
        rate <= 0    ? "?"
        : rate < 1e6 ? "<0.001"
                     : fmt::format("{:.3g}", rate / 1e9));
    if (const double link = link_seconds(group, links); link > 0) {
      line += fmt::format("{:>4.0f} %", percent(link, group.transfer_seconds()));
    } else if (!links.name.empty()) {
      line += fmt::format("{:>6}", "?");
    }
    const std::size_t room = kTerminalColumns - std::min(kTerminalColumns, line.size() + 2);
    text += line + "  " + short_name(group.hidden_by).substr(0, room) + "\n";
  }
  text += more_lines(groups.size(), "more kind");
  std::string note =
      "a step: calls of a rank; GB/s: bus bandwidth without the waiting; hidden, by: beside "
      "computation, most of it this";
  if (!has_sizes) note += "; ?: record with record_shapes=True for the sizes";
  note += links.name.empty()
              ? "; --topology NAME compares with what links can do"
              : fmt::format("; link: of the speed predicted for {}'s links", links.name);
  return text + wrap(note) + "\n";
}

std::string slowest_text(const TraceRun& run) {
  if (run.num_matched == 0) return "";
  if (!run.slowest) return "No rank is the last one in most steps.";
  const SlowestRank& slowest = *run.slowest;
  std::string text =
      fmt::format("Rank {}: in {} of {} steps the others wait longest for it, {}{} a step each.",
                  slowest.rank, slowest.num_steps, run.num_steps(),
                  slowest.since ? fmt::format("in all since step #{}, ", *slowest.since) : "",
                  format_seconds(slowest.wait_seconds));
  if (slowest.more_seconds > 0) {
    text += fmt::format(" Its {} time is {} longer than the others' median.", slowest.part,
                        format_seconds(slowest.more_seconds));
  }
  return text;
}

std::string changes_text(const TraceRun& run, const std::vector<CollectiveGroup>& groups) {
  const std::vector<Change> changes = best_changes(run, groups);
  const double step = run.mean_parts().step();
  if (changes.empty()) {
    return wrap(fmt::format("Nothing but faster computation: no other part of a step is 2 % of its "
                            "{}.",
                            format_seconds(step))) +
           "\n";
  }
  std::string text;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    text +=
        wrap(fmt::format("{}. {} of {} a step ({:.0f} %): {}. Because {}.", i + 1,
                         format_seconds(changes[i].seconds), format_seconds(step),
                         percent(changes[i].seconds, step), changes[i].what, changes[i].because),
             kTerminalColumns, 3) +
        "\n";
  }
  return text + "Each is an estimate under its assumption; they overlap, so don't add them up.\n";
}

}  // namespace

std::string trace_answer(const TraceRun& run, const Links& links) {
  const std::vector<CollectiveGroup> groups = collective_groups(run);
  std::string text = wrap(headline(run)) + "\n";
  if (const std::string what = limits(run); !what.empty()) text += wrap(what) + "\n";
  text += "\nWhere a step's time goes\n" + parts_tables(run);
  if (!groups.empty()) text += "\nCollectives\n" + collectives_table(groups, links);
  if (const std::string slowest = slowest_text(run); !slowest.empty()) {
    text += "\nThe slowest rank\n" + wrap(slowest) + "\n";
  }
  return text + "\nWhat would gain most\n" + changes_text(run, groups);
}

nlohmann::ordered_json trace_answer_json(const TraceRun& run, const Links& links) {
  using nlohmann::ordered_json;
  const auto parts_json = [](const TraceParts& parts) {
    ordered_json json{{"step", parts.step()}};
    for (const auto& [name, seconds] : kTraceParts) json[std::string(name)] = parts.*seconds;
    return json;
  };
  ordered_json json{{"world_size", run.world_size},         {"missing_ranks", run.missing_ranks},
                    {"mean", parts_json(run.mean_parts())}, {"ranks", ordered_json::array()},
                    {"collectives", ordered_json::array()}, {"changes", ordered_json::array()}};
  for (const RankBreakdown& rank : run.ranks) {
    ordered_json one{{"rank", rank.trace.rank}, {"file", rank.trace.path}};
    one["backend"] = rank.trace.backend;
    one["gpu"] = rank.trace.gpu;
    one["steps"] = ordered_json::array();
    for (std::size_t i = 0; i < rank.steps.size(); ++i) {
      ordered_json step = parts_json(rank.steps[i]);
      step["number"] = rank.trace.steps[i].number;
      one["steps"].push_back(std::move(step));
    }
    if (const auto& device = rank.device) {
      one["device"] = {{"span", device->span},
                       {"computation", device->computation},
                       {"other", device->other},
                       {"idle", device->idle},
                       {"communication", device->communication},
                       {"hidden", device->hidden}};
    }
    json["ranks"].push_back(std::move(one));
  }
  const std::vector<CollectiveGroup> groups = collective_groups(run);
  for (const CollectiveGroup& group : groups) {
    json["collectives"].push_back({{"kind", group.kind},
                                   {"bytes", group.num_bytes},
                                   {"ranks", group.num_ranks},
                                   {"calls", group.calls},
                                   {"seconds", group.seconds},
                                   {"wait", group.wait_seconds},
                                   {"hidden", group.hidden_seconds},
                                   {"hidden_by", group.hidden_by},
                                   {"bus_bytes_per_second", group.bus_bytes_per_second()},
                                   {"link_seconds", link_seconds(group, links)}});
  }
  if (run.slowest) {
    json["slowest"] = {{"rank", run.slowest->rank},
                       {"steps", run.slowest->num_steps},
                       {"wait", run.slowest->wait_seconds}};
    if (run.slowest->since) json["slowest"]["since"] = *run.slowest->since;
  }
  for (const Change& change : best_changes(run, groups)) {
    json["changes"].push_back(
        {{"what", change.what}, {"seconds", change.seconds}, {"because", change.because}});
  }
  return json;
}

}  // namespace lockstep::tools
