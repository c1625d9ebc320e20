#include <algorithm>
#include <bit>
#include <set>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/core/atomic_file.h"
#include "engine/core/error.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::string_view kOperation = "safetensors";

void check_arrays(std::span<const NamedArrayView> arrays) {
  std::set<std::string_view> names;
  for (const NamedArrayView& array : arrays) {
    require(array.name != kMetadataKey, ErrorCode::Usage, kOperation,
            "an array cannot be called {}: the format keeps that name", kMetadataKey);
    require(names.insert(array.name).second, ErrorCode::Usage, kOperation,
            "two arrays are called '{}'", array.name);
    const std::size_t num_bytes = array.shape.num_elements() * size_of(array.dtype);
    require(array.bytes.size() == num_bytes, ErrorCode::Shape, kOperation,
            "'{}' {} of {} needs {} bytes, found {}", array.name, to_string(array.shape),
            to_string(array.dtype), num_bytes, array.bytes.size());
  }
}

// The header with its length before it, padded with spaces so that the data is aligned.
std::string encode_header(std::span<const NamedArrayView> arrays, const Metadata& metadata) {
  Header header{{}, metadata};
  std::uint64_t offset = 0;
  for (const NamedArrayView& array : arrays) {
    const std::uint64_t end = offset + array.bytes.size();
    header.entries.push_back({std::string(array.name), array.dtype, array.shape, offset, end});
    offset = end;
  }
  std::string json = header_to_json(header);
  json.append((8 - json.size() % 8) % 8, ' ');
  require(json.size() <= kMaxHeaderBytes, ErrorCode::Usage, kOperation,
          "the header would take {} bytes; the format allows {}", json.size(), kMaxHeaderBytes);
  std::string encoded(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    encoded[i] = static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i) & 0xff);
  }
  return encoded + json;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArrayView> arrays,
                       const Metadata& metadata) {
  check_arrays(arrays);
  std::vector<NamedArrayView> ordered(arrays.begin(), arrays.end());
  std::ranges::stable_sort(ordered, std::greater{},
                           [](const NamedArrayView& array) { return size_of(array.dtype); });
  const std::string header = encode_header(ordered, metadata);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(header)));
  for (const NamedArrayView& array : ordered) file.write(array.bytes);
  file.commit();
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> arrays,
                       const Metadata& metadata) {
  std::vector<NamedArrayView> views;
  for (const NamedArray& array : arrays) {
    views.push_back({array.name, array.dtype, array.shape, array.bytes});
  }
  write_safetensors(path, views, metadata);
}

}  // namespace lockstep::checkpoint
