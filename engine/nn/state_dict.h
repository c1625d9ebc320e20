// A model's state by name: what is saved, sent and loaded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

// Parameters and buffers, each module's own before its children's, as in PyTorch. The tensors share
// memory with the module's. One of four dimensions is a convolution's weight, [out, height, width,
// in] in memory; files, and sizes in errors, have PyTorch's order [out, in, height, width]. So they
// have [in, out] for the weights of GPT-2's linear layers (c_attn, c_proj, c_fc).
using StateDict = std::vector<std::pair<std::string, Tensor>>;

StateDict state_dict(const Module& module, std::string_view prefix = {});

// Strict: missing or unexpected names are errors. Sizes that differ always are.
enum class Strict { no, yes };

struct LoadResult {
  std::vector<std::string> missing_keys;     // of the module, not in the state
  std::vector<std::string> unexpected_keys;  // of the state, not in the module
};

// Copies the state's values into the module's tensors, which stay where they are; other dtypes and
// devices are converted.
// Throws Error{State} with PyTorch's words: "Error(s) in loading state_dict for Linear: Missing
// key(s) in state_dict: ...". If the names differ by a prefix, as that of a wrapper, it goes on to
// say what to do. Error{Shape} if nothing but sizes is wrong. Nothing is changed then.
LoadResult load_state_dict(Module& module, const StateDict& state, Strict strict = Strict::yes);

// The same state with `prefix` taken off the names that have it.
StateDict strip_prefix(const StateDict& state, std::string_view prefix);

// The prefix of every name of the state that must go, so that most of them are names of the
// module: "module." (DataParallel, Ddp), "_orig_mod." (torch.compile), "net." (a member of the
// module that was saved), "_orig_mod.module."; "" where that makes no more of them fit.
std::string find_prefix(const StateDict& state, const Module& module);

// A model's weights in a safetensors file, which Python reads and writes too.

// Writes state_dict(module), from whatever device; see checkpoint/safetensors.h for errors. The
// file's metadata says {"format": "pt"}, which loaders such as Hugging Face's ask for, and more.
void save_weights(const std::filesystem::path& path, const Module& module);
void save_weights(const std::filesystem::path& path, const StateDict& state,
                  checkpoint::Metadata metadata = {});

// The file's arrays as tensors on cpu:0, in the order of the file.
// Throws Error{Io} for a file that is missing, truncated or corrupt, or torch.save's.
StateDict load_weights(const std::filesystem::path& path);

}  // namespace lockstep::nn
