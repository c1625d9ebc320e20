// The JSON header of a safetensors file, as text and as values. Used by the reader and the writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

// The reference implementation's limit: a longer header is taken for a corrupt file.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

inline constexpr std::string_view kMetadataKey = "__metadata__";

// One array's entry: its bytes are [begin, end) of the data section.
struct HeaderEntry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // by begin, so in the order of the bytes
  Metadata metadata;
};

// "F32", "I64", ...: the format's names of element types.
std::string_view safetensors_dtype(DType dtype);

// Parses and checks a header for a data section of num_data_bytes: entries must cover it without a
// gap or an overlap, and each must be as long as its shape says.
// Throws Error{Io}; file is named in the message.
Header parse_header(std::string_view json, std::uint64_t num_data_bytes, const std::string& file);

// Throws Error{Usage} for names that are not UTF-8.
std::string header_to_json(const Header& header);

}  // namespace lockstep::checkpoint
