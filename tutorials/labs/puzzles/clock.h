// How long a schedule takes on a DGX A100: a discrete-event simulation of the GPUs' streams, at the
// prices that the predictor and slow motion use. So a time is the same on every machine.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "engine/plan/collective_plan.h"
#include "simulate/predict/network.h"
#include "tutorials/labs/puzzles/verbs.h"

namespace lab {

enum class Stream { compute, comm, copy };

// Work on one stream of one GPU; a collective occupies that of several.
struct Piece {
  std::vector<int> gpus;
  Stream stream = Stream::compute;
  double seconds = 0;                   // alone
  std::vector<std::size_t> after = {};  // indices of earlier pieces
};

struct Interval {
  double begin = 0;
  double end = 0;
};

// A stream does one piece at a time, in the order of the list; a piece begins when those that it
// waits for are done. While a GPU computes and communicates, both are slower
// (predict::kOverlapInterference); copies over NVLink cost the others nothing.
std::vector<Interval> run_pieces(const std::vector<Piece>& pieces, int num_gpus);

// The steps of a collective: the ring's.
lockstep::plan::CollectivePlan steps_of(Op op, std::size_t num_gpus, std::size_t num_elements);

// In seconds.
class Prices {
 public:
  explicit Prices(const PuzzleSizes& sizes);

  double forward() const;
  // Layer 0 needs no gradient of its input, and so one product less.
  double backward(int layer) const;
  double update(double parameter_bytes) const;
  double collective(Op op, std::size_t num_gpus);  // by steps_of()
  double message();                                // of one activation

 private:
  const PuzzleSizes sizes_;
  const lockstep::predict::Topology topology_;
  lockstep::predict::Network network_;
  std::map<std::pair<Op, std::size_t>, double> known_;  // collectives
};

}  // namespace lab
