#include "datasets/dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "datasets/bpe.h"
#include "datasets/byte_source.h"
#include "datasets/cifar.h"
#include "datasets/digits.h"
#include "datasets/idx.h"
#include "datasets/text.h"
#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kDatasetOperation = "dataset";
constexpr std::string_view kSyntheticPrefix = "synthetic:";
constexpr std::string_view kAllowed =
    "digits, mnist, fashion-mnist, cifar10 or synthetic:ROWSxFEATURESxCLASSES, such as "
    "synthetic:60000x784x10, for images synthetic:60000x28x28x1x10; or a text: tinyshakespeare, "
    "embedded-text, text:FILE or tokens:FILE.bin";
constexpr std::size_t kNumMnistPixels = std::size_t{28} * 28;
constexpr std::size_t kNumMnistClasses = 10;
constexpr std::size_t kMaxSyntheticNumber = std::size_t{1} << 31;
constexpr std::size_t kMaxSyntheticBytes = std::size_t{1} << 34;

constexpr std::array<std::pair<std::string_view, DatasetKind>, 6> kNames = {{
    {"digits", DatasetKind::digits},
    {"mnist", DatasetKind::mnist},
    {"fashion-mnist", DatasetKind::fashion_mnist},
    {"cifar10", DatasetKind::cifar10},
    {"tinyshakespeare", DatasetKind::tiny_shakespeare},
    {"embedded-text", DatasetKind::embedded_text},
}};

constexpr std::array<std::pair<std::string_view, DatasetKind>, 2> kFilePrefixes = {{
    {"text:", DatasetKind::text},
    {"tokens:", DatasetKind::tokens},
}};

std::string_view name_of(DatasetKind kind) {
  for (const auto& [name, candidate] : kNames) {
    if (candidate == kind) return name;
  }
  return "synthetic";
}

// "60000x784x10", or "60000x28x28x1x10" for images. Returns 0 rows if it cannot be parsed.
SyntheticSize parse_size(std::string_view text) {
  std::vector<std::size_t> numbers;
  const char* position = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    std::size_t number = 0;
    const auto result = std::from_chars(position, end, number);
    if (result.ec != std::errc()) return {};
    numbers.push_back(number);
    position = result.ptr;
    if (position == end) break;
    if (*position++ != 'x') return {};
  }
  if (numbers.size() == 3) return {numbers[0], numbers[1], numbers[2]};
  constexpr std::size_t kLargestSide = std::size_t{1} << 20;
  if (numbers.size() != 5 || *std::max_element(&numbers[1], &numbers[4]) > kLargestSide) return {};
  return {numbers[0],
          numbers[1] * numbers[2] * numbers[3],
          numbers[4],
          {numbers[1], numbers[2], numbers[3]}};
}

void check_size(const SyntheticSize& size, std::string_view text) {
  require(size.num_rows >= 1 && size.num_features >= 1 && size.num_classes >= 2, ErrorCode::Usage,
          kDatasetOperation,
          "expected synthetic:ROWSxFEATURESxCLASSES with at least 1 row, 1 feature and 2 classes, "
          "such as synthetic:60000x784x10; found '{}'",
          text);
  const std::size_t largest = std::max({size.num_rows, size.num_features, size.num_classes});
  require(largest <= kMaxSyntheticNumber &&
              size.num_rows * (size.num_features + sizeof(std::int64_t)) <= kMaxSyntheticBytes &&
              size.num_classes * size.num_features <= kMaxSyntheticBytes,
          ErrorCode::Usage, kDatasetOperation, "'{}' would take more than {} GiB of memory", text,
          kMaxSyntheticBytes >> 30);
}

Dataset make_synthetic(const SyntheticSize& size, std::uint64_t seed) {
  SyntheticSize test_size = size;
  test_size.num_rows = std::max<std::size_t>(1, size.num_rows / 5);
  return {make_synthetic_rows(size, 0, seed), make_synthetic_rows(test_size, size.num_rows, seed)};
}

Dataset load_cifar(const std::filesystem::path& data_dir) {
  const std::filesystem::path folder = find_cifar(data_dir);
  std::vector<std::filesystem::path> files;
  for (int i = 1; i <= 5; ++i) files.push_back(folder / fmt::format("data_batch_{}.bin", i));
  const std::array<std::filesystem::path, 1> test = {folder / "test_batch.bin"};
  return {read_cifar(files), read_cifar(test)};
}

Dataset load_text(std::string_view text, const std::string& name, const TextOptions& options) {
  text = without_mark(text, name);
  if (options.vocab.empty()) return characters_of(text, name, options.window);
  return tokens_of(text, BytePairs(options.vocab), name, options.window);
}

Dataset load_tiny_shakespeare(const std::filesystem::path& data_dir, const TextOptions& options) {
  std::error_code ignored;
  for (const auto& path : {data_dir / "tinyshakespeare" / "input.txt", data_dir / "input.txt"}) {
    if (!std::filesystem::exists(path, ignored)) continue;
    return load_text(read_text_file(path, kDatasetOperation), "tinyshakespeare", options);
  }
  fail(ErrorCode::Io, kDatasetOperation,
       "no input.txt in '{0}/tinyshakespeare' or '{0}'; fetch it with: datasets/fetch.sh "
       "tinyshakespeare {0}",
       data_dir.string());
}

// One of MNIST's files, or of its replacement Fashion-MNIST: by the official name, or with a point
// instead of the last dash; plain or gzipped; in a folder of that name or not, because people get
// these files from several places.
std::filesystem::path find_mnist(std::string_view name, const std::filesystem::path& data_dir,
                                 std::string_view part, std::string_view type) {
  std::error_code ignored;
  const std::string official = fmt::format("{}-{}", part, type);
  const std::string dotted = fmt::format("{}.{}", part, type);
  for (const auto& folder : {data_dir / name, data_dir}) {
    for (const std::string& file : {official, official + ".gz", dotted, dotted + ".gz"}) {
      std::filesystem::path path = folder / file;
      if (std::filesystem::is_directory(path, ignored)) path /= file;
      if (std::filesystem::exists(path, ignored)) return path;
    }
  }
  for (const std::string& file : {official, official + ".gz"}) {
    const std::optional<std::filesystem::path> found = folder_below(data_dir, file);
    if (!found) continue;
    // The two data sets have files of the same names.
    const bool is_fashion = found->string().find("ashion") != std::string::npos;
    if (is_fashion != (name == "fashion-mnist")) continue;
    fail(ErrorCode::Io, kDatasetOperation,
         "no {0} in '{1}' or '{2}'; it lies in '{3}': use --data-dir {3}", file,
         (data_dir / name).string(), data_dir.string(), found->string());
  }
  fail(ErrorCode::Io, kDatasetOperation,
       "no {0} or {0}.gz in '{1}' or '{2}'; fetch it with: datasets/fetch.sh {3} {2}", official,
       (data_dir / name).string(), data_dir.string(), name);
}

Dataset load_mnist(std::string_view name, const std::filesystem::path& data_dir) {
  const auto find = [&](std::string_view part, std::string_view type) {
    return find_mnist(name, data_dir, part, type);
  };
  const auto train_images = find("train-images", "idx3-ubyte");
  const auto train_labels = find("train-labels", "idx1-ubyte");
  const auto test_images = find("t10k-images", "idx3-ubyte");
  const auto test_labels = find("t10k-labels", "idx1-ubyte");
  const std::string text(name);
  Dataset dataset{read_labelled_idx(train_images, train_labels, kNumMnistClasses, text),
                  read_labelled_idx(test_images, test_labels, kNumMnistClasses, text)};
  require(dataset.train.row_shape == dataset.test.row_shape, ErrorCode::Io, kDatasetOperation,
          "a row of '{}' has shape {}, but one of '{}' has {}; both must be of one data set",
          train_images.string(), lockstep::to_string(dataset.train.row_shape), test_images.string(),
          lockstep::to_string(dataset.test.row_shape));
  return dataset;
}

}  // namespace

DatasetSpec parse_dataset(std::string_view text) {
  for (const auto& [name, kind] : kNames) {
    if (text == name) return {kind, {}};
  }
  for (const auto& [prefix, kind] : kFilePrefixes) {
    if (!text.starts_with(prefix)) continue;
    require(text.size() > prefix.size(), ErrorCode::Usage, kDatasetOperation,
            "expected {}FILE, found no file", prefix);
    return {kind, {}, std::string(text.substr(prefix.size()))};
  }
  if (!text.starts_with(kSyntheticPrefix)) {
    const std::array<std::string, 9> words = {"digits",
                                              "mnist",
                                              "fashion-mnist",
                                              "cifar10",
                                              std::string(kSyntheticPrefix),
                                              "tinyshakespeare",
                                              "embedded-text",
                                              "text:",
                                              "tokens:"};
    const std::size_t colon = text.find(':');
    const std::string_view word = text.substr(0, colon == text.npos ? colon : colon + 1);
    fail(ErrorCode::Usage, kDatasetOperation, "expected {}; found '{}'{}", kAllowed, text,
         did_you_mean(word, words));
  }
  const SyntheticSize size = parse_size(text.substr(kSyntheticPrefix.size()));
  check_size(size, text);
  return {DatasetKind::synthetic, size};
}

RowSize usual_row_size(const DatasetSpec& spec) {
  switch (spec.kind) {
    case DatasetKind::digits:
      return {kNumDigitPixels, kNumDigitClasses, {8, 8, 1}};
    case DatasetKind::synthetic:
      return {spec.synthetic.num_features, spec.synthetic.num_classes, spec.synthetic.image};
    case DatasetKind::cifar10:
      return {kCifarShape.num_elements(), kNumCifarClasses, kCifarShape};
    case DatasetKind::tokens:
      return {64, kGpt2Vocabulary, {}};
    case DatasetKind::tiny_shakespeare:
    case DatasetKind::embedded_text:
    case DatasetKind::text:
      return {64, 256, {}};
    case DatasetKind::mnist:
    case DatasetKind::fashion_mnist:
      break;
  }
  return {kNumMnistPixels, kNumMnistClasses, {28, 28, 1}};
}

std::string to_string(const DatasetSpec& spec) {
  for (const auto& [prefix, kind] : kFilePrefixes) {
    if (spec.kind == kind) return std::string(prefix) + spec.path;
  }
  if (spec.kind != DatasetKind::synthetic) return std::string(name_of(spec.kind));
  const Shape& image = spec.synthetic.image;
  const std::string row = image.num_dims() == 0
                              ? std::to_string(spec.synthetic.num_features)
                              : fmt::format("{}x{}x{}", image[0], image[1], image[2]);
  return fmt::format("{}{}x{}x{}", kSyntheticPrefix, spec.synthetic.num_rows, row,
                     spec.synthetic.num_classes);
}

Dataset load_dataset(const DatasetSpec& spec, const std::filesystem::path& data_dir,
                     std::uint64_t seed, const TextOptions& text) {
  switch (spec.kind) {
    case DatasetKind::digits:
      return {load_digits(0, kNumTrainDigits), load_digits(kNumTrainDigits, kNumDigits)};
    case DatasetKind::synthetic:
      return make_synthetic(spec.synthetic, seed);
    case DatasetKind::cifar10:
      return load_cifar(data_dir);
    case DatasetKind::tiny_shakespeare:
      return load_tiny_shakespeare(data_dir, text);
    case DatasetKind::embedded_text:
      return load_text(kEmbeddedText, "embedded-text", text);
    case DatasetKind::text:
      return load_text(read_text_file(spec.path, kDatasetOperation), spec.path, text);
    case DatasetKind::tokens:
      return read_tokens(spec.path, text.window);
    case DatasetKind::mnist:
    case DatasetKind::fashion_mnist:
      break;
  }
  return load_mnist(name_of(spec.kind), data_dir);
}

}  // namespace lockstep::datasets
