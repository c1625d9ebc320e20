// The parts from which a story is told; for tools/watch alone.
#pragma once

#include <vector>

#include "tools/watch/moments.h"

namespace lockstep::watch {

// True for the arrivals of DataParallel, which belong to no collective.
bool is_copy(const Event& event);

// In the order of the first rank's calls; then those that it has not made.
std::vector<Collective> collectives_of(const StepRecording& recording);

// Writes each moment's sentence and reason, and the story's fault.
void put_in_words(const StepRecording& recording, Story& story);

}  // namespace lockstep::watch
