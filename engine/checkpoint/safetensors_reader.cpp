#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/core/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kOperation = "safetensors";

// An open file that knows its size and reads exactly what is asked for.
class ExactReader {
 public:
  explicit ExactReader(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code error;
    num_bytes_ = std::filesystem::file_size(path, error);
    require(!error, ErrorCode::Io, kOperation, "cannot read '{}': {}", name_, error.message());
    stream_.open(path, std::ios::binary);
    require(stream_.is_open(), ErrorCode::Io, kOperation, "cannot open '{}': {}", name_,
            std::generic_category().message(errno));
  }

  std::uint64_t num_bytes() const { return num_bytes_; }
  const std::string& name() const { return name_; }

  void read(void* destination, std::size_t num_bytes) {
    stream_.read(static_cast<char*>(destination), static_cast<std::streamsize>(num_bytes));
    require(static_cast<std::size_t>(stream_.gcount()) == num_bytes, ErrorCode::Io, kOperation,
            "'{}' ends before its data does", name_);
  }

 private:
  std::string name_;
  std::ifstream stream_;
  std::uint64_t num_bytes_ = 0;
};

// The commonest other file of weights: say how it becomes one of these.
void require_no_torch_file(const std::filesystem::path& path) {
  std::array<std::byte, kTorchFileBytes> start{};
  std::ifstream stream(path, std::ios::binary);
  stream.read(reinterpret_cast<char*>(start.data()), start.size());
  const auto found = std::span(start).first(static_cast<std::size_t>(stream.gcount()));
  require(!is_torch_file(found), ErrorCode::Io, kOperation,
          "'{}' was written by PyTorch's torch.save, whose files only Python can read; convert it "
          "once: {}",
          path.string(), torch_file_conversion(path));
}

std::string read_header(ExactReader& reader) {
  require(reader.num_bytes() >= 8, ErrorCode::Io, kOperation,
          "'{}' has {} bytes: too short for a safetensors file", reader.name(), reader.num_bytes());
  unsigned char length_bytes[8];
  reader.read(length_bytes, sizeof length_bytes);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | length_bytes[i];
  require(
      length <= kMaxHeaderBytes && length <= reader.num_bytes() - 8, ErrorCode::Io, kOperation,
      "'{}' claims a header of {} bytes in a file of {}: it is truncated or no safetensors file",
      reader.name(), length, reader.num_bytes());
  std::string json(length, '\0');
  reader.read(json.data(), json.size());
  return json;
}

}  // namespace

const NamedArray* ArrayFile::find(std::string_view name) const {
  for (const NamedArray& array : arrays) {
    if (array.name == name) return &array;
  }
  return nullptr;
}

ArrayFile read_safetensors(const std::filesystem::path& path) {
  ExactReader reader(path);
  require_no_torch_file(path);
  const std::string json = read_header(reader);
  Header header = parse_header(json, reader.num_bytes() - 8 - json.size(), reader.name());
  ArrayFile result{{}, std::move(header.metadata)};
  for (HeaderEntry& entry : header.entries) {
    std::vector<std::byte> bytes(entry.end - entry.begin);
    reader.read(bytes.data(), bytes.size());
    result.arrays.push_back({std::move(entry.name), entry.dtype, entry.shape, std::move(bytes)});
  }
  return result;
}

}  // namespace lockstep::checkpoint
