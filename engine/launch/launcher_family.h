// The variables by which each launcher tells a process who it is, and which launcher's count.
#pragma once

#include <array>

#include "engine/launch/environment.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {

// Names of one variable in a launcher's versions; the first that is set counts.
using VariableNames = std::array<const char*, 2>;

// The variables of one launcher. nullptr: it has none for this.
struct LauncherFamily {
  Launcher launcher;
  VariableNames rank;
  VariableNames size;
  VariableNames local_rank;
  VariableNames local_size;
  VariableNames node_rank;
};

// The first of names that is set, or nullptr.
const char* first_set(const Environment& environment, const VariableNames& names);

// The family that rank_environment.h describes; when none is complete, the first that has begun, so
// that what it lacks can be named. nullptr: alone. Throws Error{Usage}.
const LauncherFamily* choose_family(const Environment& environment);

}  // namespace lockstep::launch
