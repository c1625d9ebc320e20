#include "tools/report/weights_check.h"

#include <fmt/ranges.h>

#include <string>

#include "engine/core/error.h"

namespace lockstep::tools {

void require_equal_weights(const std::vector<RunRow>& rows) {
  std::vector<std::string> differing;
  for (const RunRow& row : rows) {
    if (row.weights_match()) continue;
    differing.push_back(fmt::format("{} on {} devices by {:.3g}", to_string(row.placement.mode),
                                    row.placement.devices.size(), row.max_abs_weight_diff));
  }
  require(differing.empty(), ErrorCode::Numeric, "compare",
          "weights differ from the single-device run by more than {:.3g}: {}",
          rows.empty() ? 0 : rows[0].weight_tolerance, fmt::join(differing, ", "));
}

}  // namespace lockstep::tools
