#include <fmt/format.h>

#include <cmath>

#include "tutorials/labs/judging/lab.h"
#include "tutorials/labs/judging/values.h"
#include "tutorials/labs/puzzles/real.h"
#include "tutorials/labs/puzzles/rules.h"

namespace lab {
namespace {

// The best known schedule's figures.
struct Best {
  double milliseconds = 0;
  double megabytes = 0;  // 10^6 bytes, on the GPU that holds most
};

// How much more than the best known still has the points, in percent.
struct Slack {
  double time = 5;
  double memory = 5;
};

struct Puzzle {
  std::string folder;
  std::string title;
  PuzzleSizes sizes;
  Best best;
  Slack slack;
  std::string rule;  // the hint for wrong weights
  std::string hint;  // for time and memory
  // Hidden checks draw at least two GPUs, and so many layers and micro-batches for each.
  bool has_layers_for_each = false;
  std::size_t most_micro_batches_for_each = 1;
};

std::string compare(double found, double best, const char* unit) {
  const double percent = 100 * (found / best - 1);
  const std::string text = fmt::format("{:.2f} {}, ", found, unit);
  if (std::abs(percent) < 0.05) return text + "as the best known";
  return text + fmt::format("{:.1f} % {} than the best known, {:.2f} {}", std::abs(percent),
                            percent > 0 ? "more" : "less", best, unit);
}

Played play_answer(const json& inputs, const json& answer) {
  const Programs programs = programs_of(answer);
  const PuzzleSizes sizes = sizes_of(inputs);
  if (programs.size() != std::size_t(sizes.num_gpus)) throw std::runtime_error("not a schedule");
  return play(sizes, programs);
}

std::string judge_weights(const json& inputs, const json& answer) {
  const std::string wrong = play_answer(inputs, answer).wrong;
  if (!wrong.empty()) return wrong;
  return compare_with_one_device(sizes_of(inputs), programs_of(answer));
}

enum class Figure { time, memory };

std::string describe(Figure figure, const Best& best, const Played& played) {
  return figure == Figure::time
             ? compare(1e3 * played.seconds, best.milliseconds, "ms")
             : compare(1e-6 * static_cast<double>(played.most_bytes), best.megabytes, "MB");
}

Check figure_check(const Puzzle& puzzle, Figure figure) {
  const bool is_time = figure == Figure::time;
  const double slack = is_time ? puzzle.slack.time : puzzle.slack.memory;
  const auto judge = [=, best = puzzle.best](const json& inputs, const json& answer) {
    const Played played = play_answer(inputs, answer);
    if (!played.wrong.empty()) return played.wrong;
    const double excess = is_time ? 1e3 * played.seconds / best.milliseconds
                                  : 1e-6 * static_cast<double>(played.most_bytes) / best.megabytes;
    if (excess <= 1 + slack / 100) return std::string();
    return fmt::format("{}; up to {:.0f} % more has the points", describe(figure, best, played),
                       slack);
  };
  Check check = visible(is_time ? "time_is_near_the_best_known" : "memory_is_near_the_best_known",
                        10, puzzle.hint, to_json(puzzle.sizes), judge);
  check.reached = [=, best = puzzle.best](const json& inputs, const json& answer) {
    return describe(figure, best, play_answer(inputs, answer));
  };
  return check;
}

json draw_sizes(const Puzzle& puzzle, lockstep::Rng& rng) {
  PuzzleSizes sizes = puzzle.sizes;
  const std::size_t num_gpus = draw_between(rng, 2, 8);
  const std::size_t for_each = draw_between(rng, 1, 3);
  sizes.num_gpus = int(num_gpus);
  sizes.num_layers = int(puzzle.has_layers_for_each ? for_each * num_gpus : 1 + for_each);
  sizes.num_micro_batches =
      int(num_gpus * draw_between(rng, 1, puzzle.most_micro_batches_for_each));
  return to_json(sizes);
}

Check weights_check(const Puzzle& puzzle) {
  Check check = visible("weights_are_those_of_one_device", 30, puzzle.rule, to_json(puzzle.sizes),
                        judge_weights);
  check.play = play_answer;
  return check;
}

Lab lab_of(const Puzzle& puzzle) {
  Lab lab{puzzle.folder, puzzle.title, {}};
  lab.checks = {
      weights_check(puzzle), figure_check(puzzle, Figure::time),
      figure_check(puzzle, Figure::memory),
      hidden(
          "drawn_sizes", 50, "take the numbers of GPUs, layers and micro-batches from gpu", 3,
          [=](lockstep::Rng& rng) { return draw_sizes(puzzle, rng); }, judge_weights)};
  return lab;
}

constexpr const char* kReduced = "every gradient is all-reduced and waited for before its update";
constexpr const char* kScattered =
    "every gradient is reduce-scattered and waited for before the update of its shard";
constexpr const char* kStaged =
    "a GPU receives the input of its first layer and sends the output of its last one; gradients "
    "go the other way";

constexpr PuzzleSizes kPipeline{
    .num_gpus = 4, .num_layers = 8, .num_micro_batches = 8, .rows = 1024, .is_pipeline = true};

}  // namespace

std::vector<Lab> puzzles() {
  const std::vector<Puzzle> all = {
      {.folder = "p1_data_parallel",
       .title = "Data parallel: all-reduce after backward",
       .sizes = {.num_gpus = 4, .num_layers = 6, .num_micro_batches = 4, .rows = 256},
       .best = {13.87, 968.88},
       .slack = {.time = 20, .memory = 30},
       .rule = kReduced,
       .hint = "free and update each layer as soon as its sum is there"},
      {.folder = "p2_overlap",
       .title = "DDP: all-reduce beside backward",
       .sizes = {.num_gpus = 4, .num_layers = 6, .num_micro_batches = 4, .rows = 256},
       .best = {13.87, 968.88},
       .slack = {.time = 5, .memory = 30},
       .rule = kReduced,
       .hint = "start a layer's all_reduce right after its backward, and wait for it later"},
      {.folder = "p3_accumulation",
       .title = "Gradient accumulation: one all-reduce for many micro-batches",
       .sizes = {.num_gpus = 4, .num_layers = 6, .num_micro_batches = 16, .rows = 256},
       .best = {46.07, 1241.51},
       .slack = {.time = 2, .memory = 3},
       .rule = kReduced,
       .hint = "only the last micro-batch's backward is followed by all_reduce",
       .most_micro_batches_for_each = 4},
      {.folder = "p4_zero2",
       .title = "ZeRO-2: a shard of gradients and state",
       .sizes = {.num_gpus = 8, .num_layers = 8, .num_micro_batches = 8, .rows = 256},
       .best = {17.96, 784.33},
       .slack = {},
       .rule = kScattered,
       .hint = "free a gradient as soon as its reduce_scatter is over, during backward"},
      {.folder = "p5_zero3",
       .title = "ZeRO-3: a shard of everything",
       .sizes = {.num_gpus = 8, .num_layers = 8, .num_micro_batches = 8, .rows = 256},
       .best = {18.87, 448.79},
       .slack = {},
       .rule = kScattered,
       .hint = "gather the next layer before this one computes; free each layer after its use"},
      {.folder = "p6_gpipe",
       .title = "A pipeline: all forward, then all backward",
       .sizes = kPipeline,
       .best = {164.80, 805.31},
       .slack = {.time = 5, .memory = 20},
       .rule = kStaged,
       .hint = "receive, compute and send one micro-batch before the next one",
       .has_layers_for_each = true,
       .most_micro_batches_for_each = 2},
      {.folder = "p7_1f1b",
       .title = "1F1B: a pipeline that holds fewer activations",
       .sizes = kPipeline,
       .best = {165.38, 570.43},
       .slack = {},
       .rule = kStaged,
       .hint = "a stage goes ahead by one forward pass for each stage behind it, and no more",
       .has_layers_for_each = true,
       .most_micro_batches_for_each = 2},
      {.folder = "p8_least_bubble",
       .title = "The least bubble: you choose the layers",
       .sizes = kPipeline,
       .best = {142.46, 620.76},
       .slack = {.time = 3, .memory = 20},
       .rule = kStaged,
       .hint = "the bubble is as long as the first micro-batch needs to the last GPU and back",
       .has_layers_for_each = true,
       .most_micro_batches_for_each = 2},
  };
  std::vector<Lab> labs;
  for (const Puzzle& puzzle : all) labs.push_back(lab_of(puzzle));
  return labs;
}

}  // namespace lab
