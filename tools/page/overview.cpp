#include "tools/page/overview.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/explain/explain.h"
#include "tools/page/bar_chart.h"
#include "tools/page/html_text.h"
#include "tools/page/run_charts.h"

namespace lockstep::tools::page {
namespace {

// More lines in one picture cannot be told apart.
constexpr std::size_t kMostLines = 6;

// Where the row's devices are: not here, if it is predicted.
std::string machine_text(const FileHost& host, const FileRow& row) {
  if (row.kind == "predicted") {
    return row.topology.empty() ? "predicted" : row.topology + ", predicted";
  }
  return host.gpus.empty() ? fmt::format("{}, {} cores", host.cpu, host.cores) : host.gpus[0];
}

// A long name would take the room of the others: its end, and all of it when it is pointed at.
std::string name_cell(const std::string& name, std::size_t most_letters = 28) {
  const std::string shown = shortened(name, most_letters);
  if (shown == name) return escape(name);
  return fmt::format("<span title=\"{}\">{}</span>", escape(name), escape(shown));
}

std::string table(const std::vector<PageRun>& runs) {
  std::string html =
      "<div "
      "class=\"scroll\"><table "
      "class=\"runs\"><thead><tr><th>run</th><th>model</th><th>data</th><th>machine</th>"
      "<th>made</th><th>row</th><th>step</th><th>speed-up</th><th>efficiency</th></tr></"
      "thead><tbody>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFile& file = runs[i].file;
    const FileRow& row = judged_row(file);
    html += fmt::format(
        "<tr class=\"kind-{}\"><th scope=\"row\"><a "
        "href=\"#run-{}\">{}</a></th><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        row.kind, i + 1, name_cell(runs[i].name), name_cell(file.config_value("model")),
        name_cell(file.config_value("dataset")), name_cell(machine_text(file.host, row), 44),
        escape(file.date.substr(0, 10)), escape(bar_label(file, row)),
        trace::format_seconds(row.step_seconds),
        row.speedup ? fmt::format("{:.2f}×", *row.speedup) : "–",
        row.efficiency ? fmt::format("{:.0f} %", 100 * *row.efficiency) : "–");
  }
  return html + "</tbody></table></div>\n";
}

// Short enough for a phone: of a long name its end, where names of runs differ.
std::string bar_name(const PageRun& run, const FileRow& row) {
  return fmt::format("{}: {}", shortened(run.name, 16), bar_label(run.file, row));
}

std::string speedups(const std::vector<PageRun>& runs) {
  BarChart chart{"Speed-up of each run", "speed-up (times the run's own baseline)", "run, its row"};
  for (const PageRun& run : runs) {
    const FileRow& row = judged_row(run.file);
    if (!row.speedup) continue;
    Bar bar{bar_name(run, row), fmt::format("{:.2f}×", *row.speedup), row.kind};
    bar.parts.push_back({"m-" + color_of(row.mode), *row.speedup, ""});
    chart.bars.push_back(std::move(bar));
  }
  if (chart.bars.empty()) return {};
  return figure("speedups wide", "Speed-up of each run", "of the row by which it is judged",
                bar_chart_svg(chart));
}

std::string rates(const std::vector<PageRun>& runs) {
  BarChart chart{"Rows a second of each run", "rows trained (1/s)", "run, its row"};
  for (const PageRun& run : runs) {
    const FileRow& row = judged_row(run.file);
    const double rate = row.samples_per_second();
    Bar bar{bar_name(run, row), fmt::format("{}/s", short_number(rate)), row.kind};
    bar.parts.push_back({"m-" + color_of(row.mode), rate, ""});
    chart.bars.push_back(std::move(bar));
  }
  return figure("rates", "Rows a second", "of the same rows", bar_chart_svg(chart));
}

// The speed-ups of few runs in one picture, where all are against devices.
std::string together(const std::vector<PageRun>& runs) {
  LineChart chart{"Speed-up of all runs against devices", "devices (count)",
                  "speed-up (times the run's own baseline)", XScale::log2};
  std::size_t num_runs = 0;
  for (const PageRun& run : runs) {
    if (has_growing_batch(run.file)) continue;
    const std::size_t num_before = chart.series.size();
    for (const FileRow& row : run.file.rows) {
      if (!row.speedup || row.mode == "single") continue;
      std::string label = fmt::format("{} {}", run.name, row.mode);
      if (!row.what_if.empty()) label += fmt::format(" ({})", row.what_if);
      if (row.kind != "measured") label += ", " + row.kind;
      auto found = std::ranges::find(chart.series, label, &Series::label);
      if (found == chart.series.end()) {
        const std::string color = fmt::format("s-{}", 1 + chart.series.size() % 8);
        found = chart.series.insert(chart.series.end(), {label, color, row.kind, {}});
      }
      found->points.push_back({static_cast<double>(row.devices), *row.speedup});
    }
    num_runs += chart.series.size() > num_before;
  }
  if (num_runs < 2 || chart.series.size() > kMostLines) return {};
  return figure("together", "Speed-up", "of all runs, against devices", line_chart_svg(chart),
                line_chart_key(chart));
}

}  // namespace

std::string overview(const std::vector<PageRun>& runs) {
  return "<section><h2>Side by side</h2>\n" + table(runs) + "<div class=\"figures\">\n" +
         speedups(runs) + rates(runs) + together(runs) + "</div></section>\n";
}

}  // namespace lockstep::tools::page
