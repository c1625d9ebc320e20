#include "tools/commands/watching.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/run/slow_motion.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr double kMostBytes = 20e6;

// How often a step goes through the model.
std::size_t num_passes(const TrainingTask& task) {
  return task.pipeline ? task.pipeline->num_micro_batches : task.accumulate;
}

// The bytes of a recording, within a factor of about two: each event, moment and value has some.
double estimated_bytes(const TrainingTask& task, const DevicePlacement& placement,
                       watch::Numbers numbers) {
  constexpr double kBytesPerEvent = 60;    // with its span
  constexpr double kBytesPerMoment = 300;  // with its sentence
  constexpr double kBytesPerValue = 7;
  const double elements = nn::count_parameters(nn::parse_model(task.model), task.model_data());
  const double num_parameters =
      static_cast<double>(std::ranges::count(task.model, '-')) * 4 + 60 * (elements > 1e6 ? 1 : 0);
  const auto ranks = static_cast<double>(placement.devices.size());
  const auto passes = static_cast<double>(num_passes(task));
  const double bucket = static_cast<double>(task.bucket_byte_limits.back());
  const double num_calls =
      has_ranks(placement.mode) ? 2 + std::max(num_parameters / 2, 4 * elements / bucket) : 2;
  const double steps_of_plan = 2 * ranks;
  const double moments =
      passes * 3 * num_parameters * (task.pipeline ? ranks : 1) + num_calls * (steps_of_plan + 2);
  const double events = passes * 3 * num_parameters * ranks + num_calls * steps_of_plan * ranks;
  const double values =
      numbers == watch::Numbers::yes ? elements * ranks * (3 + passes + ranks) : 0;
  return events * kBytesPerEvent + moments * kBytesPerMoment + values * kBytesPerValue;
}

std::string title_of(const DevicePlacement& placement) {
  const std::size_t count = placement.devices.size();
  const std::string_view mode = to_string(placement.mode);
  return placement.mode == Mode::single
             ? "one device"
             : fmt::format("{} on {}", mode, count_text(count, "device"));
}

std::string about(const TrainingTask& task, const DevicePlacement& placement, std::size_t step) {
  std::string text = fmt::format("{}, {} a step, step {}", task.model,
                                 count_text(task.rows_of_full_batch(), "row"), step + 1);
  if (task.accumulate > 1) text += fmt::format(", {} micro-batches", task.accumulate);
  if (task.pipeline) {
    text += fmt::format(", {} micro-batches, {}", task.pipeline->num_micro_batches,
                        plan::to_string(task.pipeline->schedule));
  }
  if (placement.mode == Mode::ddp) {
    const bool is_automatic = task.all_reduce_plan == plan::AllReducePlan::automatic;
    text += fmt::format(", plan {}, buckets of {}",
                        is_automatic ? "two-shot" : plan::to_string(task.all_reduce_plan),
                        format_bytes(task.bucket_byte_limits.back()));
  }
  const std::string note = slow_motion_note(task);
  return text + (note.empty() ? ", measured here" : "; " + note);
}

}  // namespace

void require_watchable(const TrainingFlags& flags, DeviceType type, std::size_t num_devices,
                       std::string_view flag) {
  const auto refuse = [&](bool is_refused, std::string_view why) {
    require(!is_refused, ErrorCode::Usage, flag,
            "records ranks that are threads, on devices of the CPU: {}", why);
  };
  refuse(type != DeviceType::cpu, "these are GPUs; add --device cpu, or record them by --trace");
  refuse(flags.ranks == "processes",
         "leave out --ranks processes (--trace records their timeline)");
  refuse(flags.graph, "--graph makes a step one launch; leave it out");
  refuse(flags.bitwise, "--bitwise adds in a tree of its own, which no page draws; leave it out");
  require(num_devices <= kMostWatched, ErrorCode::Usage, "--devices",
          "a page shows up to {} devices, found {}", kMostWatched, num_devices);
}

void require_short(const TrainingTask& task, const DevicePlacement& placement,
                   watch::Numbers numbers) {
  const double bytes = estimated_bytes(task, placement, numbers);
  require(bytes <= kMostBytes, ErrorCode::Usage, "watch",
          "the recording of {} would have about {:.0f} MB, and a page holds {:.0f}: {}use fewer "
          "--devices or micro-batches, or a --model with fewer layers",
          title_of(placement), 1e-6 * bytes, 1e-6 * kMostBytes,
          numbers == watch::Numbers::yes ? "leave out --numbers, " : "");
}

watch::PageRecording recorded(const TrainingTask& task, const DevicePlacement& placement,
                              watch::Recorder& recorder) {
  watch::PageRecording page{title_of(placement), {}, recorder.take()};
  page.about = about(task, placement, page.recording.step);
  return page;
}

void write_watch_page(const std::string& path, const std::vector<watch::PageRecording>& recordings,
                      std::FILE* out) {
  const std::string html = watch::make_page(recordings);
  write_file_atomically(path, html);
  fmt::print(out, "watch: {} ({}, {} kB); open it in a browser\n", path,
             count_text(recordings.size(), "recording"), html.size() / 1000);
}

}  // namespace lockstep::tools
