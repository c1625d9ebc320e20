#include "tools/run/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "engine/core/error.h"
#include "tools/flags/numbers.h"
#include "tools/run/layer_recorder.h"
#include "tools/run/model.h"
#include "tools/run/step_statistics.h"

namespace lockstep::tools {
namespace {

constexpr int kMicroBatchesPerStage = 4;  // GPipe's rule: the bubble is then a fifth at most

// The layer of a pipeline that a layer of a run file is in: a GPT's block is one, and so are its
// two tables.
std::string outer_layer(const std::string& name) {
  constexpr std::string_view kBlocks = "transformer.h.";
  if (name == "transformer.wpe") return "transformer.wte";
  if (!name.starts_with(kBlocks)) return name;
  return name.substr(0, name.find('.', kBlocks.size()));
}

// For the forward pass of one row.
double multiplications(const FileLayer& layer) {
  double sum = 0;
  for (const auto& product : {layer.product, layer.attention}) {
    if (product) sum += product->rows * product->inputs * product->outputs;
  }
  return sum;
}

// From two rows on the CPU, so that every rank gets the same.
std::vector<FileLayer> layers_on_cpu(const TrainingTask& task, nn::Module& model) {
  LayerRecorder recorder(model);
  const Variable x(Tensor::zeros(task.batch_shape(2), task.batch_dtype(), Device{}));
  recorder.record(2, [&] { return model(x); });
  return recorder.layers();
}

}  // namespace

parallel::PipelineOptions read_pipeline(const TrainingFlags& flags, const std::string& model,
                                        std::size_t num_stages) {
  refuse(flags.bitwise, "--bitwise",
         "adds eight micro-shards in a tree, and a pipeline its own micro-batches in their order; "
         "leave it out");
  refuse(flags.graph, "--graph",
         "captures steps from one thread, and the stages of a pipeline wait for each other; leave "
         "it out");
  refuse(flags.sync_batch_norm || nn::parse_model(model).has_batch_norm(),
         flags.sync_batch_norm ? "--sync-batch-norm" : "--model",
         "in a pipeline batch norm would take the statistics of each micro-batch, not of the whole "
         "batch; use a model without batch norm");
  refuse(flags.accumulate != 1, "--accumulate",
         "a pipeline has micro-batches of its own; use --micro-batches");
  refuse(flags.sampler != "exact", "--sampler",
         "torch gives each rank rows of its own, and the stages of a pipeline share them; use "
         "exact");
  refuse(flags.comm == "nccl", "--comm",
         "stages send to each other at the same time, and NCCL's messages wait for their "
         "receiver; use --comm own");
  parallel::PipelineOptions options;
  options.schedule = plan::parse_pipeline_schedule(flags.pipeline_schedule);
  options.num_micro_batches = require_positive(
      "--micro-batches",
      flags.micro_batches.value_or(kMicroBatchesPerStage * static_cast<int>(num_stages)));
  const bool is_interleaved = options.schedule == plan::PipelineSchedule::interleaved;
  options.num_chunks =
      is_interleaved ? require_positive("--chunks", flags.chunks.value_or(2)) : std::size_t{1};
  plan::pipeline_plan(options.schedule, num_stages, options.num_micro_batches, options.num_chunks);
  return options;
}

std::string default_pipeline_model(const TrainingFlags& flags, std::size_t num_stages) {
  constexpr int kMostChunks = 64;
  const bool is_interleaved = flags.pipeline_schedule == "interleaved";
  const int num_chunks = is_interleaved ? flags.chunks.value_or(2) : 1;
  return default_model(
      flags, num_stages * static_cast<std::size_t>(std::clamp(num_chunks, 1, kMostChunks)));
}

PipelineLayers pipeline_layers(std::span<const FileLayer> layers) {
  PipelineLayers outer;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i == 0 || outer_layer(layers[i].name) != outer_layer(layers[i - 1].name)) {
      outer.first.push_back(i);
      outer.costs.push_back(0);
    }
    outer.costs.back() += multiplications(layers[i]);
  }
  outer.first.push_back(layers.size());
  return outer;
}

TrainingTask with_pipeline(TrainingTask task, const TrainingFlags& flags, std::size_t num_stages) {
  parallel::PipelineOptions options = read_pipeline(flags, task.model, num_stages);
  const std::size_t rows = task.rows_of_full_batch();
  if (!flags.micro_batches) {
    options.num_micro_batches =
        plan::fitting_micro_batches(options.schedule, num_stages, options.num_micro_batches, rows);
  }
  require(options.num_micro_batches <= rows, ErrorCode::Usage, "--micro-batches",
          "{} cannot be cut from a batch of {} rows; use at most {}", options.num_micro_batches,
          rows, rows);
  const std::shared_ptr<nn::Module> model = make_model(task, Device{});
  options.layer_costs = pipeline_layers(layers_on_cpu(task, *model)).costs;
  require(options.layer_costs.size() == parallel::layers_of(model).size(), ErrorCode::State,
          "pipeline", "{} has {} layers to cut, {} were recorded", task.model,
          parallel::layers_of(model).size(), options.layer_costs.size());
  parallel::pipeline_plan_for(options, num_stages, options.layer_costs.size());
  task.pipeline = std::move(options);
  return task;
}

std::optional<double> measured_bubble(const trace::Recording& recording,
                                      const std::vector<int>& tracks) {
  struct Pass {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
    std::int64_t busy = 0;
    std::size_t num_stages = 0;
  };
  std::map<std::int64_t, Pass> passes;  // keyed by step
  for (const int track : tracks) {
    // A device's own times count if there are any; else its thread's spans do.
    std::vector<trace::Span> steps, works;
    const bool is_timed = std::ranges::any_of(recording.spans, [&](const trace::Span& span) {
      return span.rank == track && span.thread == trace::kDeviceThread &&
             span.category == trace::Category::step;
    });
    for (const trace::Span& span : recording.spans) {
      if (span.rank != track || (span.thread == trace::kDeviceThread) != is_timed) continue;
      if (span.category == trace::Category::step) steps.push_back(span);
      const bool is_pass =
          span.category == trace::Category::forward || span.category == trace::Category::backward;
      if (is_pass && span.lane == trace::Lane::compute) works.push_back(span);
    }
    std::ranges::sort(works, {}, &trace::Span::begin_ns);
    for (const trace::Span& step : steps) {
      Pass& pass = passes[step.sequence];
      ++pass.num_stages;
      auto work = std::ranges::lower_bound(works, step.begin_ns, {}, &trace::Span::begin_ns);
      for (; work != works.end() && work->begin_ns < step.end_ns; ++work) {
        pass.begin = std::min(pass.begin, work->begin_ns);
        pass.end = std::max(pass.end, work->end_ns);
        pass.busy += work->end_ns - work->begin_ns;
      }
    }
  }
  std::vector<double> idle;
  for (const auto& [step, pass] : passes) {
    if (pass.num_stages < tracks.size() || pass.end <= pass.begin) continue;
    const auto all =
        static_cast<double>(tracks.size()) * static_cast<double>(pass.end - pass.begin);
    idle.push_back(1 - static_cast<double>(pass.busy) / all);
  }
  if (idle.empty()) return std::nullopt;
  return median(idle);
}

double bubble_formula(const parallel::PipelineOptions& options, std::size_t num_stages) {
  return plan::pipeline_bubble_formula(num_stages, options.num_micro_batches, options.num_chunks);
}

std::string bubble_text(const TrainingTask& task, std::size_t num_stages,
                        std::optional<double> measured) {
  if (!task.pipeline) return {};
  const parallel::PipelineOptions& options = *task.pipeline;
  const bool has_chunks = options.num_chunks > 1;
  const std::string formula =
      fmt::format("({}-1)/({}{}+{}-1) = {:.1f} %", num_stages,
                  has_chunks ? fmt::format("{}*", options.num_chunks) : "",
                  options.num_micro_batches, num_stages, 100 * bubble_formula(options, num_stages));
  const std::string how = measured ? fmt::format("{:.1f} % of the stages' time", 100 * *measured)
                                   : std::string("not measured");
  return fmt::format("bubble: {}; with even stages it would be {}", how, formula);
}

}  // namespace lockstep::tools
