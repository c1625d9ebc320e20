// Linked into test programs that are about devices of the CPU: they, and the programs that they
// start, see no GPU, also on a machine that has one and would prefer it (--device auto).
#include <cstdlib>

namespace {

[[maybe_unused]] const bool kHidesGpus =
    setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0 && setenv("LOCKSTEP_EMULATED_GPUS", "0", 1) == 0;

}  // namespace
