#include "tools/page/run_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "tools/page/html_text.h"

namespace lockstep::tools::page {
namespace {

struct Column {
  std::string_view name;
  std::function<std::string(const FileRow&)> text;
};

std::string seconds_cell(std::optional<double> value) {
  if (value == 0.0) return "0";
  return value ? trace::format_seconds(*value) : "–";
}

std::string factor_cell(std::optional<double> value) {
  return value ? fmt::format("{:.2f}×", *value) : "–";
}

std::string percent_cell(std::optional<double> fraction, int decimals = 0) {
  return fraction ? fmt::format("{:.{}f} %", 100 * *fraction, decimals) : "–";
}

// All cells of a column in one unit.
std::string bytes_cell(std::optional<double> value, const Unit& unit) {
  if (!value) return "–";
  if (*value == 0) return "0";
  return fmt::format("{} {}", short_number(*value / unit.size), unit.name);
}

std::optional<double> mean_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> most_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return *std::ranges::max_element(values);
}

std::string kind_cell(const FileRow& row) {
  if (row.kind != "acted" || row.slow_motion == 1) return row.kind;
  return fmt::format("acted, 1 : {}", short_number(row.slow_motion));
}

std::string verdict_cell(const FileRow& row) {
  if (!row.verdict_equal) return "–";
  return *row.verdict_equal ? "equal" : "WRONG";
}

std::string band_cell(const FileRow& row) {
  if (!row.shortest || !row.longest) return "–";
  const Unit unit = seconds_unit(*row.longest);
  return fmt::format("{} to {} {}", short_number(*row.shortest / unit.size),
                     short_number(*row.longest / unit.size), unit.name);
}

template <typename Value>
Unit unit_of(const RunFile& run, const Value& value) {
  double largest = 0;
  for (const FileRow& row : run.rows) largest = std::max(largest, value(row).value_or(0.0));
  return bytes_unit(largest);
}

// Those that some row fills.
std::vector<Column> columns(const RunFile& run) {
  const auto sent = [](const FileRow& r) {
    return std::optional(r.comm_bytes_per_device_per_step);
  };
  const auto peak = [](const FileRow& r) { return most_of(r.peak_bytes); };
  const Unit sent_unit = unit_of(run, sent), peak_unit = unit_of(run, peak);
  std::vector<Column> all = {
      {"what if", [](const FileRow& r) { return r.what_if.empty() ? "–" : r.what_if; }},
      {"devices", [](const FileRow& r) { return fmt::format("{}", r.devices); }},
      {"batch", [](const FileRow& r) { return fmt::format("{}", r.batch); }},
      {"epoch", [](const FileRow& r) { return seconds_cell(r.median_epoch_seconds); }},
      {"step", [](const FileRow& r) { return seconds_cell(r.step_seconds); }},
      {"step, band", band_cell},
      {"speed-up", [](const FileRow& r) { return factor_cell(r.speedup); }},
      {"ideal", [](const FileRow& r) { return factor_cell(r.ideal_speedup); }},
      {"efficiency", [](const FileRow& r) { return percent_cell(r.efficiency); }},
      {"busy", [](const FileRow& r) { return percent_cell(mean_of(r.busy_fraction)); }},
      {"exposed comm.",
       [](const FileRow& r) {
         return seconds_cell(r.breakdown ? std::optional(r.breakdown->exposed_comm) : std::nullopt);
       }},
      {"sent / step", [=](const FileRow& r) { return bytes_cell(sent(r), sent_unit); }},
      {"peak memory", [=](const FileRow& r) { return bytes_cell(peak(r), peak_unit); }},
      {"loss", [](const FileRow& r) { return r.final_loss ? short_number(*r.final_loss) : "–"; }},
      {"accuracy", [](const FileRow& r) { return percent_cell(r.test_accuracy, 1); }},
      {"verdict", verdict_cell}};
  std::erase_if(all, [&](const Column& column) {
    return std::ranges::all_of(run.rows, [&](const FileRow& r) { return column.text(r) == "–"; });
  });
  return all;
}

}  // namespace

std::string run_table(const RunFile& run) {
  std::string html = "<div class=\"scroll\"><table><thead><tr><th>mode</th><th>kind</th>";
  const std::vector<Column> filled = columns(run);
  for (const Column& column : filled) html += fmt::format("<th>{}</th>", column.name);
  html += "</tr></thead><tbody>\n";
  for (const FileRow& row : run.rows) {
    html += fmt::format(
        "<tr class=\"kind-{}\"><th scope=\"row\">{}{}</th><td><span class=\"badge\">{}</span></td>",
        row.kind, escape(row.mode), row.contended == true ? "*" : "", kind_cell(row));
    for (const Column& column : filled) {
      html += fmt::format("<td>{}</td>", escape(column.text(row)));
    }
    html += "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  if (std::ranges::any_of(run.rows, [](const FileRow& r) { return r.contended == true; })) {
    html +=
        "<p class=\"note\">* contended: another process was at work meanwhile, so times may be "
        "too long.</p>\n";
  }
  return html;
}

}  // namespace lockstep::tools::page
