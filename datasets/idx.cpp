#include "datasets/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "datasets/byte_source.h"
#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kIdxOperation = "idx";
constexpr std::uint8_t kUnsignedByte = 0x08;

void read_exactly(ByteSource& source, std::span<std::uint8_t> destination) {
  const std::size_t num_read = source.read(destination);
  require(num_read == destination.size(), ErrorCode::Io, kIdxOperation,
          "'{}' is truncated: {} bytes expected, {} found", source.name(), destination.size(),
          num_read);
}

// Usual mistakes with downloaded files.
std::string_view likely_cause(const std::array<std::uint8_t, 4>& magic) {
  if (magic[0] == 0x1f && magic[1] == 0x8b) return "; it is gzip inside gzip: unpack it once";
  if (magic[0] == '<') return "; it is a web page: download the file itself";
  if (magic[0] == 'P' && magic[1] == 'K') return "; it is a zip archive: unpack it";
  if (magic[1] == kUnsignedByte && magic[3] == 0) return "; its numbers are little-endian";
  return "";
}

std::size_t read_num_dims(ByteSource& source) {
  std::array<std::uint8_t, 4> magic{};
  read_exactly(source, magic);
  require(magic[0] == 0 && magic[1] == 0, ErrorCode::Io, kIdxOperation,
          "'{}' is not an IDX file: it begins with {:02x} {:02x} {:02x} {:02x} instead of 00 00 "
          "08{}",
          source.name(), magic[0], magic[1], magic[2], magic[3], likely_cause(magic));
  require(magic[2] == kUnsignedByte, ErrorCode::Io, kIdxOperation,
          "'{}' holds elements of IDX type 0x{:02x}; only unsigned bytes (0x08) can be read",
          source.name(), magic[2]);
  require(magic[3] >= 1 && magic[3] <= Shape::kMaxDims, ErrorCode::Io, kIdxOperation,
          "'{}' has {} dimensions; 1 to {} can be read", source.name(), magic[3], Shape::kMaxDims);
  return magic[3];
}

bool fits(const std::vector<std::size_t>& sizes, const ByteSource& source) {
  const std::optional<std::size_t> num_elements = product_of_nonzero(sizes);
  return num_elements && *num_elements <= source.max_content_bytes();
}

Shape read_sizes(ByteSource& source, std::size_t num_dims) {
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> reversed;
  for (std::size_t dim = 0; dim < num_dims; ++dim) {
    std::array<std::uint8_t, 4> bytes{};
    read_exactly(source, bytes);
    sizes.push_back(std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
                    std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]});
    reversed.push_back(std::uint32_t{bytes[3]} << 24 | std::uint32_t{bytes[2]} << 16 |
                       std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[0]});
  }
  require(fits(sizes, source), ErrorCode::Io, kIdxOperation,
          "'{}' is {}: its header promises [{}] elements, more than the file can hold",
          source.name(), fits(reversed, source) ? "little-endian or truncated" : "truncated",
          fmt::join(sizes, ", "));
  return Shape(sizes);
}

// At most so much memory is taken at first, before the header's claim has proved true.
constexpr std::size_t kFirstBytes = std::size_t{1} << 20;

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  ByteSource source(path);
  IdxArray array{read_sizes(source, read_num_dims(source)), {}};
  std::vector<std::uint8_t>& elements = array.elements;
  const std::size_t num_elements = array.shape.num_elements();
  while (elements.size() < num_elements) {
    const std::size_t begin = elements.size();
    const std::size_t end = std::min(num_elements, std::max(kFirstBytes, 2 * begin));
    elements.reserve(end);
    elements.resize(end);
    const std::size_t num_read = source.read(std::span(elements).subspan(begin));
    require(begin + num_read == end, ErrorCode::Io, kIdxOperation,
            "'{}' is truncated: {} bytes expected, {} found", source.name(), num_elements,
            begin + num_read);
  }
  std::uint8_t extra = 0;
  require(source.read({&extra, 1}) == 0, ErrorCode::Io, kIdxOperation,
          "'{}' continues after its {} elements: it is corrupt, or another file", source.name(),
          to_string(array.shape));
  return array;
}

data::LabelledRows read_labelled_idx(const std::filesystem::path& images_path,
                                     const std::filesystem::path& labels_path,
                                     std::size_t num_classes, std::string name) {
  IdxArray images = read_idx(images_path);
  const IdxArray labels = read_idx(labels_path);
  require(images.shape.num_dims() >= 2 && !images.elements.empty(), ErrorCode::Io, kIdxOperation,
          "'{}' has shape {}; expected images: [rows, height, width]", images_path.string(),
          to_string(images.shape));
  require(labels.shape.num_dims() == 1, ErrorCode::Io, kIdxOperation,
          "'{}' has shape {}; expected labels: [rows]", labels_path.string(),
          to_string(labels.shape));
  require(labels.shape[0] == images.shape[0], ErrorCode::Io, kIdxOperation,
          "'{}' has {} images but '{}' has {} labels", images_path.string(), images.shape[0],
          labels_path.string(), labels.shape[0]);
  const auto largest = std::ranges::max_element(labels.elements);
  require(*largest < num_classes, ErrorCode::Io, kIdxOperation,
          "'{}': the label of row {} is {}; {} has the classes 0 to {}, so this is another data "
          "set of {} classes or more",
          labels_path.string(), largest - labels.elements.begin(), *largest, name, num_classes - 1,
          *largest + 1);

  data::LabelledRows rows;
  rows.name = std::move(name);
  rows.num_features = images.shape.row_elements();
  rows.features = std::move(images.elements);
  rows.labels.assign(labels.elements.begin(), labels.elements.end());
  rows.num_classes = num_classes;
  rows.scale = 1.0 / 255;
  rows.row_shape = Shape(images.shape.sizes().subspan(1));
  return rows;
}

}  // namespace lockstep::datasets
