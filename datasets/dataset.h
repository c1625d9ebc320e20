// The data sets of --dataset, in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "datasets/synthetic.h"
#include "engine/data/labelled_rows.h"

namespace lockstep::datasets {

enum class DatasetKind {
  digits,
  mnist,
  fashion_mnist,
  cifar10,
  synthetic,
  tiny_shakespeare,
  embedded_text,
  text,
  tokens
};

struct DatasetSpec {
  DatasetKind kind = DatasetKind::digits;
  SyntheticSize synthetic;  // synthetic only: its size; num_rows counts the training rows
  std::string path = {};    // text and tokens only

  bool operator==(const DatasetSpec&) const = default;
  bool is_text() const { return kind >= DatasetKind::tiny_shakespeare; }
};

// Parses "digits", "mnist", "fashion-mnist", "cifar10", "synthetic:ROWSxFEATURESxCLASSES" or, for
// images, "synthetic:ROWSxHEIGHTxWIDTHxCHANNELSxCLASSES"; texts: "tinyshakespeare",
// "embedded-text", "text:FILE" and "tokens:FILE" (text.h).
// Throws Error{Usage} that says what is allowed.
DatasetSpec parse_dataset(std::string_view text);

// The numbers in a row, and its possible labels. A file in mnist's format may have other sizes; a
// text has a vocabulary of its own.
struct RowSize {
  std::size_t num_features = 0;
  std::size_t num_classes = 0;
  Shape image;  // [height, width, channels]; no dimensions if rows are not images
};
RowSize usual_row_size(const DatasetSpec& spec);

// The reverse of parse_dataset().
std::string to_string(const DatasetSpec& spec);

struct Dataset {
  data::LabelledRows train;
  data::LabelledRows test;
  std::string characters = {};  // a text's characters, in the order of their tokens
  // For other texts: how many tokens there are and, if a file says which, a checksum of them.
  std::string vocabulary = {};
};

// Loads the training and the test rows, in their files' order.
// Files:  mnist and fashion-mnist: train-images-idx3-ubyte, train-labels-idx1-ubyte and the same
//         with t10k, each plain or with .gz, in data_dir/mnist (data_dir/fashion-mnist), or in
//         data_dir itself. cifar10: see cifar.h. tinyshakespeare: input.txt, likewise. digits,
//         synthetic and embedded-text need none.
// Text:   for texts only: how many tokens a row has, and which tokens.
// Seed:   for synthetic only; its test set has a fifth as many rows (at least one) of the same
//         kind.
// Throws: Error{Io} if a file is missing (says how to fetch it) or broken (see idx.h).
struct TextOptions {
  std::size_t window = 64;
  std::filesystem::path vocab = {};  // the folder of GPT-2's tokens (bpe.h); empty: characters
};
Dataset load_dataset(const DatasetSpec& spec, const std::filesystem::path& data_dir,
                     std::uint64_t seed, const TextOptions& text = {});

}  // namespace lockstep::datasets
