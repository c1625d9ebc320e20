// Shared by the bug programs: two ranks, digits, a network.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/autograd/variable.h"
#include "engine/comm/communicator.h"
#include "engine/nn/layers.h"
#include "tutorials/rows.h"

namespace lockstep::bugs {

inline constexpr int kRanks = 2;
inline constexpr int kBatch = 64;  // rows of a step, over all ranks

// The whole of a main(). Returns the exit code: 2 for a flag, since there is none; 1 for an error,
// which is one line on stderr.
int run_bug(int argc, char** argv, const std::function<void()>& body);

// A rank, which is a thread here, with a device of its own.
struct Place {
  comm::Communicator& group;
  int rank;
  Device device;
};
void on_ranks(const std::function<void(const Place&)>& work);

// Linear(64, 32), ReLU, Linear(32, 10) on a device.
std::shared_ptr<nn::Sequential> make_net(Device device, std::uint64_t seed = 0);

// The 1,500 digits that train.
tutorial::Rows load_rows();
// The mean loss over these rows.
Variable mean_loss(nn::Module& net, const tutorial::Rows& rows);

// Averages the gradients of all parameters over the ranks.
void average_gradients(const nn::Module& net, comm::Communicator& group);

// Rank 0 prints how many of the 297 test digits the network recognises.
void report(nn::Module& net, const Place& place);

}  // namespace lockstep::bugs
