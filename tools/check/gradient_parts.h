// A cheap check of every step's gradients: what the ranks reduce to must be the mean of what they
// computed.
//
// Each rank looks at a few elements of every gradient as backward delivers it, before any wrapper
// gets it, and of the reduced gradient after the step; other elements in each step. Of these it
// keeps a projection, so a step costs three numbers per parameter. A zero, a factor, a bucket that
// was skipped or an element that was lost on the way differs.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/parallel/sharded/sharded.h"
#include "tools/run/findings.h"

namespace lockstep::tools {

// One rank's projections in a step, by parameter.
struct StepParts {
  std::vector<double> own;      // its own gradient
  std::vector<double> size;     // sum of the absolute values in it
  std::vector<double> reduced;  // the reduced one; under --shard this rank's share
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepParts, own, size, reduced)

class GradientParts {
 public:
  // Watches a rank's parameters. REQUIRES: nothing trains meanwhile.
  explicit GradientParts(const std::vector<nn::NamedParameter>& parameters);
  GradientParts(GradientParts&&) = delete;
  ~GradientParts();

  void begin(std::size_t step);
  // pieces: the parameters that the rank's optimizer has, or its pieces of them.
  StepParts end(const std::vector<parallel::ShardPiece>& pieces);

 private:
  std::vector<nn::NamedParameter> parameters_;
  std::vector<std::uint64_t> hooks_;
  std::size_t step_ = 0;
  StepParts parts_;
};

// A rank has a reduced gradient whole, or its own pieces of it.
enum class Shares { whole, pieces };
// Clipped gradients may have one factor up to 1 in common.
enum class Clipping { none, common_factor };
// Judges the projections of all ranks in a step. names: the parameters'. Returns the finding, if
// any.
std::optional<Finding> judge_parts(std::size_t step, const std::vector<StepParts>& of_ranks,
                                   const std::vector<std::string>& names, Shares shares,
                                   Clipping clipping, double limit);

}  // namespace lockstep::tools
