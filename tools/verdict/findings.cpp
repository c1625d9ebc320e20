#include "tools/verdict/findings.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/core/error.h"

namespace lockstep::tools {

std::string Finding::text() const {
  return fmt::format("{}: step {}, rank {}, parameter {}: {}", check, step, rank, parameter, what);
}

void throw_failure(const RunFindings& findings, double loss) {
  if (std::isfinite(loss) || !findings.failure) return;
  fail(ErrorCode::Numeric, "compare", "{}; then the loss was no longer finite",
       findings.failure->text());
}

}  // namespace lockstep::tools
