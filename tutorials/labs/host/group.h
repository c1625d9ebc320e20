// Runs a submission's function as every rank of a group, each on a thread of its own, and keeps a
// list of the messages.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "tutorials/labs/rank.h"

namespace lab {

using RankFunction = std::function<void(Rank&, std::span<double>)>;

// inputs: {"buffers": [[...], ...]}, one per rank.
// The answer: {"buffers": what they hold afterwards, "messages": [[from, to, num_elements, step],
// ...]}. Steps count from 1: a message's step is one more than the latest step that its sender had
// received from. Sorted by sender, in the order in which it sent them.
// Throws the exception of the first rank that failed; if all ranks wait for each other, a
// std::runtime_error that says for whom.
nlohmann::json run_group(const nlohmann::json& inputs, const RankFunction& function);

}  // namespace lab
