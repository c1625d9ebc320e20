#include "datasets/cifar.h"

#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "datasets/byte_source.h"
#include "engine/core/error.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kCifarOperation = "dataset";
constexpr std::size_t kNumPixels = 32 * 32;
constexpr std::size_t kNumChannels = 3;
constexpr std::size_t kRowBytes = 1 + kNumPixels * kNumChannels;
constexpr std::size_t kCifar100RowBytes = kRowBytes + 1;  // which has two labels
constexpr std::uint8_t kPickle = 0x80;                    // the first byte of Python's pickle files

// Converts one image from one plane per colour to pixels of three colours.
void add_row(const std::array<std::uint8_t, kRowBytes>& row, data::LabelledRows& rows) {
  rows.labels.push_back(row[0]);
  for (std::size_t pixel = 0; pixel < kNumPixels; ++pixel) {
    for (std::size_t channel = 0; channel < kNumChannels; ++channel) {
      rows.features.push_back(row[1 + channel * kNumPixels + pixel]);
    }
  }
}

// CIFAR-100's files under names of CIFAR-10's.
std::string_view likely_set(const ByteSource& source) {
  const std::uint64_t size = source.max_content_bytes();
  if (size == 0 || size % kCifar100RowBytes != 0 || size % kRowBytes == 0) return "";
  return " (its size is that of CIFAR-100's images)";
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
            "'{}' is truncated: image {} has {} of {} bytes{}; fetch cifar-10-binary.tar.gz again "
            "with: datasets/fetch.sh cifar10",
            source.name(), number, num_bytes, kRowBytes, likely_set(source));
    require(row[0] < kNumCifarClasses, ErrorCode::Io, kCifarOperation,
            "'{}': the label of image {} is {}; cifar10 has the classes 0 to {}, so this is "
            "another file{}; fetch cifar-10-binary.tar.gz with: datasets/fetch.sh cifar10",
            source.name(), number, row[0], kNumCifarClasses - 1, likely_set(source));
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

namespace {

// A file that tells which data set lies in a folder; `beside` it lies another one.
struct OtherVersion {
  const char* file;
  const char* beside;
  const char* is;
};
constexpr OtherVersion kOtherVersions[] = {
    {"data_batch_1", "", "CIFAR-10's Python version; the binary one is needed"},
    {"data_batch_1.mat", "", "CIFAR-10's Matlab version; the binary one is needed"},
    {"train.bin", "test.bin", "CIFAR-100, and --dataset cifar10 reads only CIFAR-10"},
    {"meta", "train", "CIFAR-100's Python version, and CIFAR-10's binary one is needed"},
    {"cifar-10-python.tar.gz", "", "CIFAR-10's Python version; the binary one is needed"},
    {"cifar-100-binary.tar.gz", "", "CIFAR-100, and --dataset cifar10 reads only CIFAR-10"},
    {"cifar-100-python.tar.gz", "", "CIFAR-100, and --dataset cifar10 reads only CIFAR-10"}};

// Says where it is, or what lies there instead.
std::string describe_missing_cifar(const std::filesystem::path& data_dir) {
  const std::string fetch =
      fmt::format("; fetch it with: datasets/fetch.sh cifar10 {}", data_dir.string());
  if (const auto folder = folder_below(data_dir, "data_batch_1.bin")) {
    return fmt::format("; it lies in '{0}': use --data-dir {0}", folder->string());
  }
  if (const auto folder = folder_below(data_dir, "cifar-10-binary.tar.gz")) {
    return fmt::format("; unpack the archive in '{0}': tar -xzf {0}/cifar-10-binary.tar.gz -C {0}",
                       folder->string());
  }
  std::error_code ignored;
  for (const auto& [file, beside, is] : kOtherVersions) {
    const auto folder = folder_below(data_dir, file);
    if (folder && std::filesystem::exists(*folder / beside, ignored)) {
      return fmt::format(" (what lies in '{}' is {}){}", folder->string(), is, fetch);
    }
  }
  return fetch;
}

}  // namespace

std::filesystem::path find_cifar(const std::filesystem::path& data_dir) {
  std::error_code ignored;
  for (const char* folder :
       {"cifar10/cifar-10-batches-bin", "cifar10", "cifar-10-batches-bin", ""}) {
    const std::filesystem::path path = data_dir / folder;
    if (!std::filesystem::exists(path / "data_batch_1.bin", ignored)) continue;
    for (const char* file : {"data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                             "data_batch_5.bin", "test_batch.bin"}) {
      require(std::filesystem::exists(path / file, ignored), ErrorCode::Io, kCifarOperation,
              "'{}' has data_batch_1.bin, but no {}; fetch CIFAR-10 again with: datasets/fetch.sh "
              "cifar10",
              path.string(), file);
    }
    return path;
  }
  fail(ErrorCode::Io, kCifarOperation, "no data_batch_1.bin in '{}' or '{}'{}",
       (data_dir / "cifar10" / "cifar-10-batches-bin").string(), data_dir.string(),
       describe_missing_cifar(data_dir));
}

}  // namespace lockstep::datasets
