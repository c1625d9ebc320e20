#include "tools/page/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/explain/explain.h"
#include "tools/explain/headline.h"

namespace lockstep::tools::page {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json losses_json(const ThinnedLosses& losses) {
  return {{"steps_per_point", losses.steps_per_point}, {"mean", losses.mean}};
}

// The fields that page.js shows, of which the reader has seen that they can be true.
Json row_json(const RunFile& file, const FileRow& row) {
  const bool is_gpu = file.config_value("device") == "cuda";
  Json json{{"mode", row.mode},
            {"kind", row.kind},
            {"name", name_of(row)},
            {"simulated", row.kind != "measured"},
            {"cpu", row.kind == "measured" && !is_gpu},
            {"topology", row.topology},
            {"slow_motion", row.slow_motion},
            {"devices", row.devices},
            {"batch", row.batch},
            {"rows_per_device", row.rows_per_device()},
            {"what_if", row.what_if},
            {"contended", row.contended == true},
            {"epochs", row.epoch_seconds},
            {"epoch", or_null(row.median_epoch_seconds)},
            {"step", row.step_seconds},
            {"speedup", or_null(row.speedup)},
            {"ideal", or_null(row.ideal_speedup)},
            {"efficiency", or_null(row.efficiency)},
            {"busy", row.busy_fraction},
            {"sent", row.comm_bytes_per_device_per_step},
            {"peaks", row.peak_bytes},
            {"equal", or_null(row.verdict_equal)},
            {"loss", or_null(row.final_loss)},
            {"accuracy", or_null(row.test_accuracy)},
            {"accuracies", row.epoch_accuracy},
            {"losses", losses_json(row.losses)}};
  if (row.shortest && row.longest) json["band"] = {*row.shortest, *row.longest};
  if (!row.breakdown) return json;
  for (const auto& [name, seconds] : trace::kBreakdownParts) {
    json["parts"][name] = (*row.breakdown).*seconds;
  }
  json["hidden"] = row.breakdown->overlapped_comm;
  return json;
}

Json timeline_json(const StepTimeline& timeline) {
  Json json{{"step", timeline.step},
            {"seconds", timeline.seconds},
            {"predicted", timeline.is_predicted},
            {"row", timeline.row},
            {"ranks", Json::array()}};
  for (const RankLanes& rank : timeline.ranks) {
    Json lanes = Json::array();
    for (const Lane& lane : rank.lanes) {
      Json spans = Json::array();  // [begin, end, category, name, bucket]
      for (const LaneSpan& span : lane.spans) {
        spans.push_back({span.begin, span.end, span.category, span.name, span.bucket});
      }
      lanes.push_back({{"name", lane.name}, {"spans", spans}});
    }
    json["ranks"].push_back({{"name", rank.name}, {"lanes", lanes}});
  }
  return json;
}

// The words as a shell reads them back.
std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    line += is_plain ? word : shell_quoted(word);
  }
  return line;
}

Json run_json(const PageRun& run) {
  const RunFile& file = run.file;
  const FileRow& judged = judged_row(file);
  Json json{{"name", run.name},
            {"headline", headline(file)},
            {"date", file.date},
            {"command", shell_line(file.command)},
            {"host",
             {{"cpu", file.host.cpu},
              {"cores", file.host.cores},
              {"memory_bytes", file.host.memory_bytes},
              {"os", file.host.os},
              {"gpus", file.host.gpus},
              {"version", file.host.version},
              {"build", file.host.build}}},
            {"config", Json::array()},
            {"judged", &judged - file.rows.data()},
            {"answers", Json::array()},
            {"missing", run.missing},
            {"log", losses_json(run.losses)},
            {"rows", Json::array()}};
  for (const auto& [flag, value] : file.config) json["config"].push_back({flag, or_null(value)});
  for (const Answer& answer : explain(file)) {
    json["answers"].push_back({{"title", answer.title}, {"text", answer.text}});
  }
  for (const FileRow& row : file.rows) json["rows"].push_back(row_json(file, row));
  if (run.timeline) json["timeline"] = timeline_json(*run.timeline);
  return json;
}

// No text of a file ends the script element that it is in, or begins another.
std::string json_text(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string make_page(const std::vector<PageRun>& runs, std::string_view chart_js) {
  require(!chart_js.empty(), ErrorCode::State, "report",
          "this program was built without Chart.js, which draws the page; install libjs-chart.js "
          "(scripts/setup.sh does), configure and build again");
  Json json = Json::array();
  for (const PageRun& run : runs) json.push_back(run_json(run));
  std::string page;
  std::string_view rest = kPageHtml;
  const auto put = [&](std::string_view place, std::string_view text) {
    const std::size_t at = rest.find(place);
    page.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + place.size());
  };
  put("/* page.css */", kPageCss);
  put("\"RUNS\"", json_text(json));
  put("/* chart.js */", chart_js);
  put("/* page.js */", kPageJs);
  return page.append(rest);
}

}  // namespace lockstep::tools::page
