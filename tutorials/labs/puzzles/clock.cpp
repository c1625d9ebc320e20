#include "tutorials/labs/puzzles/clock.h"

#include <algorithm>
#include <limits>

#include "engine/plan/algorithms.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/predict/lanes.h"

namespace lab {
namespace {

namespace predict = lockstep::predict;
namespace plan = lockstep::plan;

constexpr std::size_t kNumStreams = 3;
constexpr double kNever = std::numeric_limits<double>::infinity();

class Simulation {
 public:
  Simulation(const std::vector<Piece>& pieces, int num_gpus)
      : pieces_(pieces),
        queues_(kNumStreams * std::size_t(num_gpus)),
        next_(queues_.size()),
        left_(pieces.size()),
        state_(pieces.size(), State::waits),
        times_(pieces.size()) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      left_[i] = pieces[i].seconds;
      for (const int gpu : pieces[i].gpus) queues_[place(gpu, pieces[i].stream)].push_back(i);
    }
  }

  std::vector<Interval> run() {
    while (start_what_can() || !busy_.empty()) advance();
    return times_;
  }

 private:
  enum class State { waits, runs, is_done };

  static std::size_t place(int gpu, Stream stream) {
    return kNumStreams * std::size_t(gpu) + std::size_t(stream);
  }

  bool can_start(std::size_t i) const {
    const Piece& piece = pieces_[i];
    const bool is_first = std::ranges::all_of(piece.gpus, [&](int gpu) {
      const std::size_t at = place(gpu, piece.stream);
      return queues_[at][next_[at]] == i;
    });
    return state_[i] == State::waits && is_first &&
           std::ranges::all_of(piece.after, [&](std::size_t j) { return is_done(j); });
  }

  bool start_what_can() {
    bool started = false;
    for (std::size_t at = 0; at < queues_.size(); ++at) {
      if (next_[at] == queues_[at].size() || !can_start(queues_[at][next_[at]])) continue;
      const std::size_t i = queues_[at][next_[at]];
      state_[i] = State::runs;
      times_[i].begin = now_;
      busy_.push_back(i);
      started = true;
    }
    return started;
  }

  bool is_done(std::size_t i) const { return state_[i] == State::is_done; }

  bool is_busy(int gpu, Stream stream) const {
    const std::size_t at = place(gpu, stream);
    return next_[at] < queues_[at].size() && state_[queues_[at][next_[at]]] == State::runs;
  }

  // A collective is as slow as on the GPU that slows it down.
  double speed(const Piece& piece) const {
    if (piece.stream == Stream::copy) return 1;
    const bool computes = piece.stream == Stream::compute;
    const Stream other = computes ? Stream::comm : Stream::compute;
    const bool both = std::ranges::any_of(piece.gpus, [&](int gpu) { return is_busy(gpu, other); });
    if (!both) return 1;
    return computes ? predict::kOverlapInterference.compute : predict::kOverlapInterference.comm;
  }

  // To the next end of a piece.
  void advance() {
    std::vector<double> speeds;
    double step = kNever;
    for (const std::size_t i : busy_) {
      speeds.push_back(speed(pieces_[i]));
      step = std::min(step, left_[i] / speeds.back());
    }
    now_ += step;
    std::vector<std::size_t> still_busy;
    for (std::size_t k = 0; k < busy_.size(); ++k) {
      const std::size_t i = busy_[k];
      const bool ends = left_[i] / speeds[k] <= step;
      left_[i] -= step * speeds[k];
      if (!ends) {
        still_busy.push_back(i);
        continue;
      }
      state_[i] = State::is_done;
      times_[i].end = now_;
      for (const int gpu : pieces_[i].gpus) ++next_[place(gpu, pieces_[i].stream)];
    }
    busy_ = std::move(still_busy);
  }

  const std::vector<Piece>& pieces_;
  std::vector<std::vector<std::size_t>> queues_;  // by GPU and stream
  std::vector<std::size_t> next_;                 // place in its queue
  std::vector<double> left_;                      // seconds alone
  std::vector<State> state_;
  std::vector<Interval> times_;
  std::vector<std::size_t> busy_;
  double now_ = 0;
};

predict::LayerShape shape_of(const PuzzleSizes& sizes) {
  const double width = sizes.width;
  return {.rows = double(sizes.rows), .inputs = width, .outputs = width};
}

}  // namespace

std::vector<Interval> run_pieces(const std::vector<Piece>& pieces, int num_gpus) {
  return Simulation(pieces, num_gpus).run();
}

plan::CollectivePlan steps_of(Op op, std::size_t num_gpus, std::size_t num_elements) {
  const auto make = op == Op::all_reduce       ? plan::ring_all_reduce
                    : op == Op::reduce_scatter ? plan::ring_reduce_scatter
                                               : plan::ring_all_gather;
  return make(int(num_gpus), num_elements);
}

Prices::Prices(const PuzzleSizes& sizes)
    : sizes_(sizes), topology_(predict::find_topology("dgx-a100")), network_(topology_) {}

double Prices::forward() const {
  return predict::forward_seconds(topology_.device, shape_of(sizes_));
}

double Prices::backward(int layer) const {
  using predict::InputGradient;
  return predict::backward_seconds(topology_.device, shape_of(sizes_),
                                   layer == 0 ? InputGradient::not_needed : InputGradient::needed);
}

double Prices::update(double parameter_bytes) const {
  return predict::update_seconds(topology_.device, parameter_bytes);
}

double Prices::collective(Op op, std::size_t num_gpus) {
  if (num_gpus < 2) return 0;
  const auto [known, is_new] = known_.try_emplace({op, num_gpus}, 0);
  if (is_new) {
    const std::size_t num_elements = sizes_.parameter_bytes() / sizeof(float);
    known->second =
        predict::plan_seconds(network_, steps_of(op, num_gpus, num_elements), sizeof(float));
  }
  return known->second;
}

double Prices::message() {
  predict::Traffic traffic(network_);
  traffic.add(network_.gpu(0), network_.gpu(1), double(sizes_.activation_bytes()));
  return traffic.seconds();
}

}  // namespace lab
