#include "tutorials/labs/puzzles/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lab {
namespace {

// Of the picture, in its own units.
constexpr double kPictureLeft = 60;
constexpr double kPictureWidth = 1120;
constexpr double kStreamHeight = 22;
constexpr double kMemoryHeight = 44;
constexpr double kGpuHeight = 3 * kStreamHeight + kMemoryHeight + 14;
constexpr double kLetterWidth = 4.7;

constexpr const char* kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 80rem; padding: 0 1rem; }
svg { width: 100%; min-width: 50rem; } .picture { overflow-x: auto; }
text { font: 10px system-ui, sans-serif; fill: currentColor; }
.piece text { fill: #fff; font-size: 8px; pointer-events: none; } .piece rect { stroke: #fff8; stroke-width: .5; }
.forward { fill: #1f6fb4; } .backward { fill: #b4531f; } .update { fill: #2e7d32; }
.comm { fill: #7b3fa0; } .copy { fill: #5f6b76; }
.memory { fill: #8886; stroke: currentColor; stroke-width: .7; } .limit { stroke: #8888; stroke-dasharray: 3; }
table { border-collapse: collapse; } td, th { padding: .1rem .7rem; text-align: left; }
.wrong { border-left: 4px solid #c62828; padding-left: .7rem; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } }
)";

const char* class_of(const Event& event) {
  if (event.stream == Stream::comm) return "comm";
  if (event.stream == Stream::copy) return "copy";
  if (event.verb.op == Op::update) return "update";
  return event.verb.op == Op::forward ? "forward" : "backward";
}

// "F2.0" is the forward pass of layer 2 and micro-batch 0.
std::string short_name(const Event& event) {
  const Verb& verb = event.verb;
  switch (verb.op) {
    case Op::forward:
      return fmt::format("F{}.{}", verb.layer, verb.micro_batch);
    case Op::backward:
      return fmt::format("B{}.{}", verb.layer, verb.micro_batch);
    case Op::update:
      return fmt::format("U{}", verb.layer);
    case Op::all_reduce:
      return fmt::format("R{}", verb.layer);
    case Op::reduce_scatter:
      return fmt::format("S{}", verb.layer);
    case Op::all_gather:
      return fmt::format("G{}", verb.layer);
    default:
      return fmt::format("{}.{}", verb.layer, verb.micro_batch);
  }
}

class Picture {
 public:
  Picture(const PuzzleSizes& sizes, const Played& played)
      : sizes_(sizes), played_(played), seconds_(std::max(played.seconds, 1e-9)) {}

  std::string svg() const {
    std::string text;
    for (int gpu = 0; gpu < sizes_.num_gpus; ++gpu) text += labels(gpu) + memory(gpu);
    for (const Event& event : played_.events) {
      for (const int gpu : event.gpus) text += piece(event, gpu);
    }
    const double height = kGpuHeight * sizes_.num_gpus;
    return fmt::format(
        "<div class=\"picture\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"The streams "
        "of {} GPUs over {:.2f} ms, and their memory; the table below has the "
        "same\">{}</svg></div>\n",
        kPictureLeft + kPictureWidth, height, sizes_.num_gpus, 1e3 * played_.seconds, text);
  }

 private:
  double x(double seconds) const { return kPictureLeft + kPictureWidth * seconds / seconds_; }
  static double top(int gpu) { return kGpuHeight * gpu; }

  static std::string labels(int gpu) {
    static constexpr std::array kNames = {"compute", "comm", "send", "memory"};
    std::string text;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      text += fmt::format("<text x=\"0\" y=\"{}\">{}{}</text>",
                          top(gpu) + kStreamHeight * double(i) + 15,
                          i == 0 ? fmt::format("{}: ", gpu) : "", kNames[i]);
    }
    return text;
  }

  std::string piece(const Event& event, int gpu) const {
    const double left = x(event.time.begin);
    const double width = x(event.time.end) - left;
    const double y = top(gpu) + kStreamHeight * double(event.stream);
    const std::string name = short_name(event);
    const bool fits = width > kLetterWidth * double(name.size());
    return fmt::format(
        "<g class=\"piece\"><title>rank {}: {}, {:.3f} to {:.3f} ms</title><rect class=\"{}\" "
        "x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" rx=\"2\"/>{}</g>",
        gpu, to_string(event.verb), 1e3 * event.time.begin, 1e3 * event.time.end, class_of(event),
        left, y, width, kStreamHeight - 2,
        fits ? fmt::format("<text x=\"{:.2f}\" y=\"{}\">{}</text>", left + 2, y + 14, name) : "");
  }

  // A curve of steps, as high as the GPU that holds most.
  std::string memory(int gpu) const {
    const double bottom = top(gpu) + 3 * kStreamHeight + kMemoryHeight;
    const auto y = [&](std::size_t num_bytes) {
      return bottom - kMemoryHeight * double(num_bytes) /
                          double(std::max<std::size_t>(played_.most_bytes, 1));
    };
    std::string points = fmt::format("M{:.2f} {:.2f}", kPictureLeft, bottom);
    std::size_t most = 0;
    for (const Held& held : played_.memory[std::size_t(gpu)]) {
      points += fmt::format("H{:.2f}V{:.2f}", x(held.seconds), y(held.num_bytes));
      most = std::max(most, held.num_bytes);
    }
    return fmt::format(
        "<path class=\"memory\" d=\"{}H{}V{:.2f}Z\"><title>memory of rank {}: at most {:.2f} "
        "MB</title></path><line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>"
        "<text x=\"{}\" y=\"{:.2f}\">{:.0f} MB</text>",
        points, kPictureLeft + kPictureWidth, bottom, gpu, 1e-6 * double(most), kPictureLeft,
        kPictureLeft + kPictureWidth, y(most), y(most), 0, bottom, 1e-6 * double(most));
  }

  const PuzzleSizes& sizes_;
  const Played& played_;
  const double seconds_;
};

std::string table(const Played& played) {
  std::vector<const Event*> events;
  for (const Event& event : played.events) events.push_back(&event);
  std::ranges::stable_sort(events, {}, [](const Event* event) { return event->time.begin; });
  std::string rows;
  for (const Event* event : events) {
    rows += fmt::format(
        "<tr><td>{:.3f}</td><td>{:.3f}</td><td>{}</td><td>{}</td></tr>\n", 1e3 * event->time.begin,
        1e3 * event->time.end,
        event->gpus.size() > 1 ? "all that hold it" : fmt::format("rank {}", event->gpus.front()),
        to_string(event->verb));
  }
  return "<details><summary>The same as a table</summary><table>\n<tr><th>from ms</th><th>to "
         "ms</th><th>where</th><th>call</th></tr>\n" +
         rows + "</table></details>\n";
}

}  // namespace

std::string draw_page(const std::string& title, const PuzzleSizes& sizes, const Played& played) {
  const std::string wrong =
      played.wrong.empty()
          ? ""
          : fmt::format("<p class=\"wrong\">{}. It is drawn up to there.</p>\n", played.wrong);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta "
      "name=\"viewport\" content=\"width=device-width\"/>\n<title>{0}</title>\n<style>{1}</style>\n"
      "</head>\n<body>\n<h1>{0}</h1>\n{2}<p>{3:.2f} ms on a DGX A100; at most {4:.2f} MB on a GPU. "
      "F2.0 is the forward pass of layer 2 for micro-batch 0, B backward, U update, R all-reduce, "
      "S reduce-scatter, G all-gather. Point at a piece for its "
      "times.</p>\n{5}{6}</body>\n</html>\n",
      title, kStyle, wrong, 1e3 * played.seconds, 1e-6 * double(played.most_bytes),
      Picture(sizes, played).svg(), table(played));
}

}  // namespace lab
