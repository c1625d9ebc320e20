// Which physical GPU stands behind each logical CUDA device.
//
// Without a word from anybody, cuda:i is GPU i. LOCKSTEP_VIRTUAL_DEVICES, or --virtual-devices,
// declares otherwise: "cuda:0*4" makes four logical devices of GPU 0, "cuda:0*2,cuda:1*2" two of
// each.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::runtime {

inline constexpr int kMaxCudaDevices = 64;

// "cuda:0*2,cuda:1" as {0, 0, 1}: the physical GPU of each logical device.
// Throws Error{Usage} for words that mean nothing or GPUs beyond num_gpus; says what exists.
std::vector<int> parse_virtual_devices(std::string_view text, int num_gpus);

// Declares the logical devices of this process; the same text again changes nothing.
// Throws Error{Device} where there is no GPU, Error{State} once a CUDA device is in use.
void set_virtual_devices(std::string_view text);

// The physical GPU (CUDA ordinal) of cuda:0, cuda:1, ...; empty without a GPU.
std::vector<int> logical_gpus();

// Whether the logical devices were declared by the user.
bool has_virtual_devices();

}  // namespace lockstep::runtime
