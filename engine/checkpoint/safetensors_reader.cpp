#include <array>
#include <bit>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/core/error.h"
#include "engine/core/input_file.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kOperation = "safetensors";

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

// The commonest other file of weights: say how it becomes one of these.
void require_no_torch_file(InputFile& file, const std::filesystem::path& path) {
  std::array<std::byte, kTorchFileBytes> start{};
  const std::size_t num_read = file.read(start);
  file.rewind();
  require(!is_torch_file(std::span(start).first(num_read)), ErrorCode::Io, kOperation,
          "'{}' was written by PyTorch's torch.save, whose files only Python can read; convert it "
          "once: {}",
          file.name(), torch_file_conversion(path));
}

std::string read_header(InputFile& file) {
  require(file.num_bytes() >= 8, ErrorCode::Io, kOperation,
          "'{}' has {} bytes: too short for a safetensors file", file.name(), file.num_bytes());
  std::array<std::byte, 8> length_bytes{};
  file.read_exactly(length_bytes);
  const auto length = std::bit_cast<std::uint64_t>(length_bytes);
  require(
      length <= kMaxHeaderBytes && length <= file.num_bytes() - 8, ErrorCode::Io, kOperation,
      "'{}' claims a header of {} bytes in a file of {}: it is truncated or no safetensors file",
      file.name(), length, file.num_bytes());
  std::string json(length, '\0');
  file.read_exactly(std::as_writable_bytes(std::span(json)));
  return json;
}

// The header's text is let go before the data is read.
Header parse_header_of(InputFile& file) {
  const std::string json = read_header(file);
  return parse_header(json, file.num_bytes() - 8 - json.size(), file.name());
}

}  // namespace

const NamedArray* ArrayFile::find(std::string_view name) const {
  for (const NamedArray& array : arrays) {
    if (array.name == name) return &array;
  }
  return nullptr;
}

ArrayFile read_safetensors(const std::filesystem::path& path) {
  InputFile file(path, kOperation);
  require_no_torch_file(file, path);
  Header header = parse_header_of(file);
  ArrayFile result{{}, std::move(header.metadata)};
  result.arrays.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    std::vector<std::byte> bytes(entry.end - entry.begin);
    file.read_exactly(bytes);
    result.arrays.push_back({std::move(entry.name), entry.dtype, entry.shape, std::move(bytes)});
  }
  return result;
}

}  // namespace lockstep::checkpoint
