#include "tools/commands/train_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/core/error.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/matmul_precision.h"
#include "tools/record/contention.h"
#include "tools/run/beginning.h"
#include "tools/run/interruption.h"
#include "tools/run/model_flops.h"
#include "tools/run/pipeline.h"
#include "tools/run/settings.h"
#include "tools/run/sha256.h"
#include "tools/run/slow_motion.h"
#include "tools/run/trace_file.h"
#include "tools/run/weights_file.h"
#include "tools/run/workload.h"
#include "tools/show/row_table.h"
#include "tools/text/format.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

nn::GptOptions gpt_of(const TrainingTask& task) {
  nn::GptOptions gpt = nn::parse_model(task.model).gpt;
  gpt.vocabulary = nn::padded_vocabulary(task.model_data().num_classes);
  return gpt;
}

// In build-nanogpt's words; empty where all parameters decay.
std::string describe_decay_groups(const TrainingTask& task) {
  if (task.optimizer.decays == OptimizerSettings::Decays::all) return {};
  const nn::GptParameterCounts counts = nn::count_parameters(gpt_of(task));
  const auto line = [](const char* kind, std::size_t tensors, double elements) {
    return fmt::format("num {} parameter tensors: {}, with {} parameters\n", kind, tensors,
                       with_thousands(static_cast<std::size_t>(elements)));
  };
  return line("decayed", counts.matrices, counts.matrix_elements) +
         line("non-decayed", counts.vectors, counts.vector_elements);
}

// 1, 2, 5, 10, 20, 50 ...: about twenty lines a run, or as many as it has steps.
std::size_t steps_between_lines(std::size_t num_steps) {
  constexpr std::size_t kMostLines = 25;
  std::size_t every = 1;
  for (std::size_t i = 0; num_steps > kMostLines * every; ++i)
    every = i % 3 == 1 ? every / 2 * 5 : 2 * every;
  return every;
}

// The devices are alike, so the first one's card stands for all.
std::string describe_flops_of(const TrainingTask& task, const RunRow& row) {
  const nn::GptOptions gpt = gpt_of(task);
  TokenRate rate{static_cast<double>(gpt.context) * row.samples_per_second(), "",
                 row.physical_devices, kernels::matmul_precision()};
  if (row.result.simulated) {
    rate.card = row.result.simulated->device;
  } else if (!row.is_on_cores) {
    const int gpu = runtime::logical_gpus().at(0);
    rate.card = runtime::physical_gpus().at(static_cast<std::size_t>(gpu)).name;
  }
  return describe_flops(gpt, rate);
}

}  // namespace

std::FILE* progress_stream(const TrainingFlags& flags) {
  return flags.json_path == "-" ? stderr : stdout;
}

void print_task(const TrainingFlags& flags, const TrainingTask& task,
                const DevicePlacement& placement) {
  std::FILE* const out = progress_stream(flags);
  print_wrapped(
      out, fmt::format("{} on {}: {}, {}", task.model, flags.dataset,
                       count_text(task.data->train.num_rows(), "training row"), steps_text(task)));
  if (task.resumed) {
    fmt::print(out, "resumed after step {} of {}\n", task.first_step(), task.num_steps);
    print_wrapped(out, describe_moved_place(task));
  } else if (!flags.resume.empty()) {
    fmt::print(out, "no checkpoint in {} yet: starting from step 0\n", flags.checkpoint_dir);
  }
  fmt::print(out, "{}", describe_decay_groups(task));
  for (const std::string& note : {idle_note(task, placement), torch_sampler_note(task),
                                  link_note(flags), slow_motion_note(task)}) {
    print_wrapped(out, note);
  }
}

bool needs_recording(const TrainingFlags& flags) {
  return !flags.trace_path.empty() || !flags.json_path.empty() || !flags.row_path.empty() ||
         flags.parallel == "pipeline";  // for its bubble
}

TrainingObserver report_progress(const TrainingFlags& flags, const TrainingTask& task,
                                 Progress& progress) {
  TrainingObserver observer;
  observer.log_path = flags.log_path;
  observer.on_step = progress.observer();
  observer.on_loss = warn_of_explosion(task.data->train.num_classes);
  if (task.is_text()) {
    observer.lines_every = steps_between_lines(task.num_steps);
    observer.on_line = [&flags](const LoggedStep& line) {
      clear_status();
      std::FILE* const out = progress_stream(flags);
      fmt::print(out, "step {:5d} | loss {:.5f} | lr {:.2e} | norm {:.4g} | {} | {:.0f} tok/s\n",
                 line.step, line.loss, line.learning_rate, line.grad_norm,
                 trace::format_seconds(line.seconds), line.labels_per_second);
      std::fflush(out);
    };
  }
  observer.on_epoch = [&flags](std::size_t epoch, double seconds, double loss) {
    clear_status();
    std::FILE* const out = progress_stream(flags);
    fmt::print(out, "epoch {}: {}, loss {:.4f}\n", epoch + 1, trace::format_seconds(seconds), loss);
    std::fflush(out);
  };
  return observer;
}

void report_training(const TrainingFlags& flags, const std::vector<std::string>& command,
                     const TrainingTask& task, const MeasuredRow& measured, Device measured_on) {
  const RunRow& row = measured.row;
  std::FILE* const out = progress_stream(flags);
  if (row.result.simulated) print_wrapped(out, factor_note({row}));
  for (const std::string& note : contention_notes({row})) print_wrapped(out, note);
  if (row.result.stopped_by != 0) {
    // The last whole epoch's figure is not that of these weights.
  } else if (!row.result.epoch_validation_loss.empty()) {
    fmt::print(out, "{}\n", describe_flops_of(task, row));
    fmt::print(out, "validation loss: {:.4f}\n", row.result.epoch_validation_loss.back());
  } else if (!task.is_text()) {
    fmt::print(out, "test accuracy: {:.2f} %\n", 100 * row.result.test_accuracy());
  }
  print_wrapped(out, bubble_text(task, row.devices, row.result.bubble));
  fmt::print(out, "weights sha256: {}\n", weights_digest(row.result.weights));
  if (!flags.save_path.empty()) {
    nn::save_weights(flags.save_path, row.result.weights, metadata_of(task));
  }
  if (!flags.trace_path.empty()) {
    write_trace(flags, measured.placement, measured.recording);
    fmt::print(stderr, "{}", describe_trace(flags));
  }
  if (flags.json_path.empty()) return;
  const double optimizer_seconds = row.result.breakdown ? row.result.breakdown->optimizer : 0;
  nlohmann::ordered_json json = make_run_file(command, flags_json(flags, task), {row});
  json["workload"] = workload_json(measure_workload(task, measured_on, optimizer_seconds));
  if (row.result.stopped_by != 0) {
    mark_interrupted(json, row.result.stopped_by, "steps", row.result.num_steps, task.num_steps);
  }
  write_json(flags.json_path, json);
}

int end_training(const TrainingFlags& flags, const TrainingTask& task,
                 const TrainingResult& result) {
  const int signal = result.stopped_by != 0 ? result.stopped_by : Interruption::signal();
  if (signal == 0) return 0;
  std::vector<std::string> written;
  for (const std::string* path :
       {&flags.save_path, &flags.json_path, &flags.log_path, &flags.trace_path}) {
    if (!path->empty()) written.push_back(*path == "-" ? "the run file" : *path);
  }
  if (task.checkpoints) {
    written.push_back(fmt::format("a checkpoint in {}", task.checkpoints->folder.string()));
  }
  return say_interrupted(signal, fmt::format("{} of {} steps", result.num_steps, task.num_steps),
                         fmt::format("{}", fmt::join(written, ", ")));
}

std::function<void(std::size_t, double)> warn_of_explosion(std::size_t num_classes) {
  return [watch = LossWatch(num_classes)](std::size_t step, double loss) mutable {
    const std::optional<std::string> warning = watch.see(step, loss);
    if (!warning) return;
    clear_status();
    fmt::print(stderr, "lockstep: [train] warning: {}\n", *warning);
  };
}

std::string weights_digest(const nn::StateDict& weights) {
  nn::StateDict sorted = weights;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Sha256 digest;
  for (const auto& [name, tensor] : sorted) {
    const Tensor host = tensor.to(Device{});
    digest.add(std::span(static_cast<const std::byte*>(host.raw()), host.num_bytes()));
  }
  return digest.finish();
}

}  // namespace lockstep::tools
