#include "kernels/cuda/checks.h"

#include "engine/core/error.h"

namespace lockstep::kernels::cuda {

void fail_sources(std::size_t found, std::size_t most) {
  fail(ErrorCode::Shape, "ordered_sum", "takes at most {} sources, found {}; sum groups of them",
       most, found);
}

}  // namespace lockstep::kernels::cuda
