// A model's state by name, to be saved, sent and loaded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

// Parameters and buffers, each module's own before its children's, as in PyTorch. The tensors share
// memory with the module's. A tensor of four dimensions is a convolution's weight, [out, height,
// width, in] in memory; files, and sizes in errors, have PyTorch's order [out, in, height, width].
// In the same way the weights of GPT-2's linear layers (attn.c_attn, attn.c_proj, mlp.c_fc,
// mlp.c_proj) are [in, out] there; files that have them as [out, in] (nanoGPT's) are read as well.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

StateDict state_dict(const Module& module, std::string_view prefix = {});

// Strict::yes: missing or unexpected names are errors. Different sizes always are.
enum class Strict { no, yes };

struct LoadResult {
  std::vector<std::string> missing_keys;     // in the module, not in the state
  std::vector<std::string> unexpected_keys;  // in the state, not in the module
};

// Copies the state's values into the module's tensors, which stay where they are; other dtypes and
// devices are converted.
// Throws Error{State} with PyTorch's words: "Error(s) in loading state_dict for Linear: Missing
// key(s) in state_dict: ...". If the names only differ by a prefix, such as a wrapper's, it adds
// what to do. Throws Error{Shape} if only sizes are wrong. After an error the module is unchanged.
LoadResult load_state_dict(Module& module, const StateDict& state, Strict strict = Strict::yes);

// The state with `prefix` removed from the names that have it.
StateDict strip_prefix(const StateDict& state, std::string_view prefix);

// The prefix that must be removed from the state's names to make most of them names of the module:
// "module." (DataParallel, Ddp), "_orig_mod." (torch.compile), "net." (a member of the module that
// was saved), "_orig_mod.module."; "" if that makes no more of them fit.
std::string find_prefix(const StateDict& state, const Module& module);

// A model's weights in a safetensors file, which Python reads and writes too.

// Writes state_dict(module), from any device; checkpoint/safetensors.h lists the errors. The file's
// metadata says {"format": "pt"}, which loaders such as Hugging Face's ask for, and more.
void save_weights(const std::filesystem::path& path, const Module& module);
void save_weights(const std::filesystem::path& path, const StateDict& state,
                  checkpoint::Metadata metadata = {});

// The file's arrays as tensors on cpu:0, in the order of the file; those of all files that an index
// such as model.safetensors.index.json names.
// Throws Error{Io} for a file that is missing, truncated or corrupt, or torch.save's.
StateDict load_weights(const std::filesystem::path& path);

}  // namespace lockstep::nn
