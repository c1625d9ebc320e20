// Files that PyTorch's torch.save wrote: Python objects, which only Python can read.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace lockstep::checkpoint {

// How many bytes is_torch_file() wants to see.
inline constexpr std::size_t kTorchFileBytes = 128;

// By the first bytes of a file: a zip archive that begins with "NAME/data.pkl", as torch.save
// writes since PyTorch 1.6, or the pickle that it wrote before.
bool is_torch_file(std::span<const std::byte> start);

// The shell command that converts such a file: "python3 -c '...' model.pt model.safetensors".
std::string torch_file_conversion(const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
