// The parts from which a story is told; for tools/watch alone.
#pragma once

#include <string>
#include <vector>

#include "tools/watch/moments.h"

namespace lockstep::watch {

// In the order of the first rank's calls.
std::vector<Collective> collectives_of(const StepRecording& recording);

// Writes the moment's sentence and reason. place: of the moment in the story.
void put_in_words(const StepRecording& recording, Story& story, std::size_t place);

// The last moment's: how the ranks' weights compare. Sets the story's fault.
void put_end_in_words(const StepRecording& recording, Story& story);

}  // namespace lockstep::watch
