#include "datasets/cifar.h"

#include <array>
#include <cstdint>
#include <vector>

#include "datasets/byte_source.h"
#include "engine/core/error.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kCifarOperation = "dataset";
constexpr std::size_t kNumPixels = 32 * 32;
constexpr std::size_t kNumChannels = 3;
constexpr std::size_t kRowBytes = 1 + kNumPixels * kNumChannels;
constexpr std::uint8_t kPickle = 0x80;  // the first byte of Python's pickle files

// Converts one image from one plane per colour to pixels of three colours.
void add_row(const std::array<std::uint8_t, kRowBytes>& row, data::LabelledRows& rows) {
  rows.labels.push_back(row[0]);
  for (std::size_t pixel = 0; pixel < kNumPixels; ++pixel) {
    for (std::size_t channel = 0; channel < kNumChannels; ++channel) {
      rows.features.push_back(row[1 + channel * kNumPixels + pixel]);
    }
  }
}

void read_file(const std::filesystem::path& path, data::LabelledRows& rows) {
  ByteSource source(path);
  std::array<std::uint8_t, kRowBytes> row;
  for (std::size_t number = 0;; ++number) {
    const std::size_t num_bytes = source.read(row);
    if (num_bytes == 0 && number > 0) return;
    require(number > 0 || num_bytes == 0 || row[0] != kPickle, ErrorCode::Io, kCifarOperation,
            "'{}' is of CIFAR-10's Python version; fetch the binary version, "
            "cifar-10-binary.tar.gz, with: datasets/fetch.sh cifar10",
            source.name());
    require(num_bytes == kRowBytes, ErrorCode::Io, kCifarOperation,
            "'{}' is truncated: image {} has {} of {} bytes; fetch cifar-10-binary.tar.gz again "
            "with: datasets/fetch.sh cifar10",
            source.name(), number, num_bytes, kRowBytes);
    require(row[0] < kNumCifarClasses, ErrorCode::Io, kCifarOperation,
            "'{}': the label of image {} is {}; cifar10 has the classes 0 to {}, so this is "
            "another file",
            source.name(), number, row[0], kNumCifarClasses - 1);
    add_row(row, rows);
  }
}

}  // namespace

data::LabelledRows read_cifar(std::span<const std::filesystem::path> files) {
  data::LabelledRows rows;
  rows.name = "cifar10";
  rows.num_features = kCifarShape.num_elements();
  rows.num_classes = kNumCifarClasses;
  rows.scale = 1.0 / 255;
  rows.row_shape = kCifarShape;
  for (const std::filesystem::path& file : files) read_file(file, rows);
  return rows;
}

std::filesystem::path find_cifar(const std::filesystem::path& data_dir) {
  std::error_code ignored;
  bool is_pythons = false;
  for (const char* folder :
       {"cifar10/cifar-10-batches-bin", "cifar10", "cifar-10-batches-bin", ""}) {
    const std::filesystem::path path = data_dir / folder;
    if (std::filesystem::exists(path / "data_batch_1.bin", ignored)) return path;
    is_pythons = is_pythons || std::filesystem::exists(path / "data_batch_1", ignored) ||
                 std::filesystem::exists(path / "cifar-10-batches-py", ignored);
  }
  fail(
      ErrorCode::Io, kCifarOperation, "no data_batch_1.bin in '{}' or '{}'{}; fetch it with: {} {}",
      (data_dir / "cifar10" / "cifar-10-batches-bin").string(), data_dir.string(),
      is_pythons ? " (what lies there is CIFAR-10's Python version; the binary one is needed)" : "",
      "datasets/fetch.sh cifar10", data_dir.string());
}

}  // namespace lockstep::datasets
