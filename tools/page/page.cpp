#include "tools/page/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/explain/explain.h"
#include "tools/page/html_text.h"
#include "tools/page/overview.h"
#include "tools/page/run_charts.h"
#include "tools/page/run_table.h"
#include "tools/page/style.h"

namespace lockstep::tools::page {
namespace {

// More runs are folded.
constexpr std::size_t kMostOpenRuns = 6;

std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name, value,
                     escape(note));
}

// Key figures of the row by which the run is judged.
std::string tiles(const RunFile& run) {
  const FileRow& row = judged_row(run);
  const std::string of = bar_label(run, row);
  std::string html = "<dl class=\"tiles\">\n";
  if (row.speedup && row.ideal_speedup && row.mode != "single") {
    html += tile("Speed-up", fmt::format("{:.2f}×", *row.speedup),
                 fmt::format("{}; ideal {:.2f}×", of, *row.ideal_speedup));
  }
  html += tile("Step", escape(trace::format_seconds(row.step_seconds)),
               fmt::format("{}, batch {}", of, row.batch));
  if (row.breakdown) {
    const trace::StepBreakdown& step = *row.breakdown;
    const double computation = step.forward + step.backward + step.optimizer;
    html += tile("Computation", fmt::format("{:.0f} %", 100 * computation / row.step_seconds),
                 "of the step");
    if (row.devices > 1) {
      html +=
          tile("Exposed communication",
               fmt::format("{:.0f} %", 100 * step.exposed_comm / row.step_seconds), "of the step");
    }
  }
  if (row.test_accuracy) {
    html += tile("Test accuracy", fmt::format("{:.1f} %", 100 * *row.test_accuracy), "at the end");
  }
  return html + "</dl>\n";
}

std::string findings(const RunFile& run) {
  std::string html = "<div class=\"findings\">\n";
  for (const Answer& answer : explain(run)) {
    html +=
        fmt::format("<div><h3>{}</h3><p>{}</p></div>\n", escape(answer.title), escape(answer.text));
  }
  return html + "</div>\n";
}

// How the kinds of rows are drawn; nothing where all were measured.
std::string kinds(const RunFile& run) {
  const auto has = [&](const char* kind) {
    return std::ranges::any_of(run.rows, [&](const FileRow& row) { return row.kind == kind; });
  };
  if (!has("acted") && !has("predicted")) return {};
  std::string html = "<p class=\"kinds\">";
  for (const auto& [kind, marker] :
       {std::pair("measured", R"(<circle class="marker" cx="20" cy="7" r="3.5"/>)"),
        std::pair("acted", R"(<circle class="marker" cx="20" cy="7" r="3.5"/>)"),
        std::pair("predicted", R"(<path class="marker" d="M20 2.5l4.5 4.5-4.5 4.5-4.5-4.5z"/>)")}) {
    if (!has(kind)) continue;
    html += fmt::format(
        R"(<span><svg width="40" height="14" aria-hidden="true"><g class="{} s-single">)"
        R"(<path class="line" d="M1 7H39"/>{}</g></svg>{}</span>)",
        kind, marker, kind);
  }
  return html + "</p>\n";
}

std::string figures(const PageRun& run) {
  const RunFile& file = run.file;
  std::string html = "<div class=\"figures\">\n";
  if (file.rows.size() == 1) {
    html += epochs_figure(file.rows[0]);
  } else {
    html += epoch_figure(file) + speedup_figure(file);
    if (accuracy_curve(file).empty()) html += accuracy_figure(file);
  }
  if (!run.losses.empty()) html += loss_figure(run.losses);
  html += accuracy_curve(file);
  html += breakdown_figure(file) + memory_figure(file);
  if (run.timeline) html += timeline_figure(*run.timeline);
  html += "</div>\n";
  if (run.missing.empty()) return html;
  html += "<p class=\"note\">";
  for (const std::string& sentence : run.missing) html += escape(sentence) + " ";
  return html + "</p>\n";
}

bool is_predicted(const RunFile& run) {
  return std::ranges::all_of(run.rows, [](const FileRow& row) { return row.kind == "predicted"; });
}

std::string topology_of(const RunFile& run) {
  const std::string topology = run.config_value("topology");
  return topology.empty() ? run.rows[0].topology : topology;
}

std::string origin(const RunFile& run) {
  const FileHost& host = run.host;
  std::string machine = fmt::format("{}, {} cores, {} GiB of memory", host.cpu, host.cores,
                                    short_number(host.memory_bytes / (1 << 30)));
  for (const std::string& gpu : host.gpus) machine += ", " + gpu;
  std::string html = fmt::format(
      "<div class=\"origin\"><div><h3>{}</h3><p>{}</p><p>{}</p><p>Lockstep {}, "
      "{}</p></div>\n"
      "<div><h3>The command, to do it again</h3><pre>{}</pre></div></div>\n",
      is_predicted(run) ? "The machine that made the prediction" : "The machine", escape(machine),
      escape(host.os), escape(host.version), escape(host.build), escape(shell_line(run.command)));
  html +=
      "<details open=\"open\"><summary>The configuration, every flag resolved</summary><dl "
      "class=\"config\">\n";
  std::string unset;
  for (const auto& [flag, value] : run.config) {
    if (value) {
      html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(flag), escape(*value));
    } else {
      unset += (unset.empty() ? "" : ", ") + flag;
    }
  }
  html += "</dl>";
  if (!unset.empty()) html += fmt::format("<p class=\"note\">Not in force: {}.</p>", escape(unset));
  return html + "</details>\n";
}

// "2026-01-31, 23:59 UTC" of "2026-01-31T23:59:59Z".
std::string shown_date(const std::string& date) {
  if (date.size() != 20 || date[10] != 'T' || date[19] != 'Z') return date;
  return fmt::format("{}, {} UTC", date.substr(0, 10), date.substr(11, 5));
}

// "mlp:64-16-10 on digits, batch 64, 2 epochs; made 2026-01-31, 23:59 UTC".
std::string lede(const RunFile& run) {
  const std::string batch = run.config_value("batch");
  const std::string epochs = run.config_value("epochs");
  std::string text =
      fmt::format("{} on {}", run.config_value("model"), run.config_value("dataset"));
  if (!batch.empty() && !has_growing_batch(run)) text += ", batch " + batch;
  const std::string topology = topology_of(run);
  if (is_predicted(run)) {
    text += topology.empty() ? ", predicted" : ", predicted for " + topology;
  }
  if (!epochs.empty()) text += fmt::format(", {} epoch{}", epochs, epochs == "1" ? "" : "s");
  return text + "; made " + shown_date(run.date);
}

std::string body(const PageRun& run) {
  return fmt::format("<p class=\"lede\">{}</p>\n", escape(lede(run.file))) + tiles(run.file) +
         findings(run.file) + kinds(run.file) + figures(run) + run_table(run.file) +
         origin(run.file);
}

std::string head(const std::string& title) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"/>\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
      escape(title), kStyle);
}

constexpr std::string_view kFoot =
    "<footer>Made by <code>lockstep report</code>. Times are wall times; rows are measured unless "
    "they say otherwise.</footer>\n</body>\n</html>\n";

}  // namespace

std::string make_page(const std::vector<PageRun>& runs) {
  if (runs.size() == 1) {
    return head("Lockstep: " + runs[0].name) +
           fmt::format("<main id=\"run-1\"><h1>{}</h1>\n", escape(runs[0].name)) + body(runs[0]) +
           "</main>\n" + std::string(kFoot);
  }
  std::string html = head(fmt::format("Lockstep: {} runs", runs.size())) +
                     fmt::format("<main><h1>{} runs</h1>\n", runs.size()) + overview(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string name = escape(runs[i].name);
    html += runs.size() > kMostOpenRuns
                ? fmt::format(
                      "<details class=\"run\" id=\"run-{}\"><summary>{}</summary>\n{}</details>\n",
                      i + 1, name, body(runs[i]))
                : fmt::format("<section id=\"run-{}\"><h2>{}</h2>\n{}</section>\n", i + 1, name,
                              body(runs[i]));
  }
  return html + "</main>\n" + std::string(kFoot);
}

}  // namespace lockstep::tools::page
