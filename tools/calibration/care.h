// How carefully a machine is measured.
#pragma once

namespace lockstep::tools {

// fast: few sizes, none of them large, once: for a look.
enum class Care { usual, fast };

}  // namespace lockstep::tools
