// A model's weights in a safetensors file, which Python reads and writes too.
#pragma once

#include <filesystem>

#include "engine/nn/state_dict.h"

namespace lockstep::nn {

// Writes state_dict(module), from whatever device; see checkpoint/safetensors.h for errors. The
// file's metadata says {"format": "pt"}, which loaders such as Hugging Face's ask for.
void save_weights(const std::filesystem::path& path, const Module& module);
void save_weights(const std::filesystem::path& path, const StateDict& state);

// The file's arrays as tensors on cpu:0, in the order of the file.
// Throws Error{Io} for a file that is missing, truncated or corrupt, or torch.save's.
StateDict load_weights(const std::filesystem::path& path);

}  // namespace lockstep::nn
