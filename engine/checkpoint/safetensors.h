// Reads and writes arrays in the safetensors format.
//
//   8 bytes   N, the header's length, little-endian
//   N bytes   JSON: {"name": {"dtype": "F32", "shape": [10, 3], "data_offsets": [0, 120]}, ...,
//             "__metadata__": {"key": "text", ...}}
//   the rest  the arrays' bytes, little-endian, row-major, one after another without a gap
//
// Large models are several such files and an index, JSON text that says which file holds which
// array ("weight_map"), such as Hugging Face's model.safetensors.index.json: reading the index
// reads all of them.
//
// Offsets count from the first byte after the header. Python reads and writes the same files with
// the package `safetensors`.
// Source: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/shape.h"

namespace lockstep::checkpoint {

// An array that owns its bytes: bytes.size() = shape.num_elements() * size_of(dtype).
struct NamedArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::byte> bytes;
};

// The same, for writing: it does not own the bytes.
struct NamedArrayView {
  std::string_view name;
  DType dtype = DType::float32;
  Shape shape;
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

struct ArrayFile {
  std::vector<NamedArray> arrays;  // ordered as their bytes in the file
  Metadata metadata;

  // The array of that name, or nullptr.
  const NamedArray* find(std::string_view name) const;
};

// Writes the arrays, widest elements first so that all are aligned, else in the given order.
// Files:  atomic (core/files.h): path holds the old content or the new, whatever happens.
// Throws: Error{Io} if path cannot be written; Error{Usage} for a name that appears twice, is
//         "__metadata__" or is not UTF-8; Error{Shape} if bytes and shape do not fit.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedArrayView> arrays,
                       const Metadata& metadata = {});

// Reads all arrays except those of types that DType lacks (BOOL, I8, F8_E4M3, ...): these are left
// out, with a warning for each. The whole header is checked against the file's size before memory
// is taken.
// Throws: Error{Io} that names the file and the problem: missing, truncated, no valid header, an
//         unknown element type, sizes and offsets that do not fit each other or the file, a file of
//         an index that is not there or holds other arrays. A file of torch.save is recognised, and
//         the error says how to convert it.
ArrayFile read_safetensors(const std::filesystem::path& path);

// Reads only its header, or those of an index's files. Throws the same errors.
Metadata read_metadata(const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
