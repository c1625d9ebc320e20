#include "datasets/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "datasets/byte_source.h"
#include "engine/core/error.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kOperation = "idx";
constexpr std::uint8_t kUnsignedByte = 0x08;

void read_exactly(ByteSource& source, std::span<std::uint8_t> destination) {
  const std::size_t num_read = source.read(destination);
  require(num_read == destination.size(), ErrorCode::Io, kOperation,
          "'{}' is truncated: {} bytes expected, {} found", source.name(), destination.size(),
          num_read);
}

std::size_t read_num_dims(ByteSource& source) {
  std::array<std::uint8_t, 4> magic{};
  read_exactly(source, magic);
  require(magic[0] == 0 && magic[1] == 0, ErrorCode::Io, kOperation,
          "'{}' is no IDX file: it begins with {:02x} {:02x} {:02x} {:02x} instead of 00 00 08",
          source.name(), magic[0], magic[1], magic[2], magic[3]);
  require(magic[2] == kUnsignedByte, ErrorCode::Io, kOperation,
          "'{}' holds elements of IDX type 0x{:02x}; only unsigned bytes (0x08) can be read",
          source.name(), magic[2]);
  require(magic[3] >= 1 && magic[3] <= Shape::kMaxDims, ErrorCode::Io, kOperation,
          "'{}' has {} dimensions; 1 to {} can be read", source.name(), magic[3], Shape::kMaxDims);
  return magic[3];
}

Shape read_sizes(ByteSource& source, std::size_t num_dims) {
  std::vector<std::size_t> sizes;
  std::uint64_t num_elements = 1;
  bool overflow = false;
  for (std::size_t dim = 0; dim < num_dims; ++dim) {
    std::array<std::uint8_t, 4> bytes{};
    read_exactly(source, bytes);
    sizes.push_back(std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
                    std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]});
    overflow |= __builtin_mul_overflow(num_elements, sizes.back(), &num_elements);
  }
  require(!overflow && num_elements <= source.max_content_bytes(), ErrorCode::Io, kOperation,
          "'{}' is truncated: its header promises [{}] elements, more than the file can hold",
          source.name(), fmt::join(sizes, ", "));
  return Shape(sizes);
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  ByteSource source(path);
  IdxArray array;
  array.shape = read_sizes(source, read_num_dims(source));
  array.elements.resize(array.shape.num_elements());
  read_exactly(source, array.elements);
  std::uint8_t extra = 0;
  require(source.read({&extra, 1}) == 0, ErrorCode::Io, kOperation,
          "'{}' goes on after its {} elements: it is corrupt, or not the file that was meant",
          source.name(), to_string(array.shape));
  return array;
}

data::LabelledRows read_labelled_idx(const std::filesystem::path& images,
                                     const std::filesystem::path& labels, std::size_t num_classes,
                                     std::string name) {
  IdxArray pixels = read_idx(images);
  require(pixels.shape.num_dims() >= 2 && pixels.shape.num_elements() > 0, ErrorCode::Io,
          kOperation, "'{}' has shape {}; expected images: [rows, height, width]", images.string(),
          to_string(pixels.shape));
  const IdxArray classes = read_idx(labels);
  require(classes.shape.num_dims() == 1, ErrorCode::Io, kOperation,
          "'{}' has shape {}; expected labels: [rows]", labels.string(), to_string(classes.shape));
  const std::size_t num_rows = pixels.shape[0];
  require(classes.elements.size() == num_rows, ErrorCode::Io, kOperation,
          "'{}' has {} images but '{}' has {} labels", images.string(), num_rows, labels.string(),
          classes.elements.size());
  const auto outside = std::ranges::find_if(
      classes.elements, [&](std::uint8_t label) { return label >= num_classes; });
  require(outside == classes.elements.end(), ErrorCode::Io, kOperation,
          "'{}': the label of row {} is {}; expected 0 to {}", labels.string(),
          outside - classes.elements.begin(), outside == classes.elements.end() ? 0 : *outside,
          num_classes - 1);

  data::LabelledRows rows;
  rows.name = std::move(name);
  rows.num_features = pixels.shape.row_elements();
  rows.features = std::move(pixels.elements);
  rows.labels.assign(classes.elements.begin(), classes.elements.end());
  rows.num_classes = num_classes;
  rows.scale = 1.0f / 255.0f;
  rows.row_shape = Shape(pixels.shape.sizes().subspan(1));
  return rows;
}

}  // namespace lockstep::datasets
