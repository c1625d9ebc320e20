// Runs a schedule on the engine: each GPU is a thread with real tensors, collectives are those of
// engine/comm between the threads, and backward is autograd's, one layer at a time. The layers are
// small, so that a step takes milliseconds.
#pragma once

#include <string>

#include "tutorials/labs/puzzles/verbs.h"

namespace lab {

// Says what differs from the weights of one device that trains on the whole batch at once; empty if
// they are the same. REQUIRES: play() found nothing wrong.
std::string compare_with_one_device(const PuzzleSizes& sizes, const Programs& programs);

}  // namespace lab
