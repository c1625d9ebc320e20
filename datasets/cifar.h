// CIFAR-10's binary version: colour photographs of 32 x 32 pixels in ten classes.
//
//   data_batch_1.bin ... data_batch_5.bin and test_batch.bin; each a row of 3,073 bytes per image:
//   1 byte    label, 0 to 9
//   1,024     red, row by row; then as many green and blue
//
// Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009,
//         https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "engine/core/shape.h"
#include "engine/data/labelled_rows.h"

namespace lockstep::datasets {

inline constexpr std::size_t kNumCifarClasses = 10;
inline const Shape kCifarShape{32, 32, 3};

// The images of these files, one after another, as rows [32, 32, 3] scaled by 1/255.
// Throws Error{Io} for a file that is missing, ends within an image, is empty or was pickled by
// Python, and for a label that is not a class; it says which file to fetch.
data::LabelledRows read_cifar(std::span<const std::filesystem::path> files);

// The folder of the binary files: data_dir/cifar10/cifar-10-batches-bin, data_dir/cifar10,
// data_dir/cifar-10-batches-bin or data_dir itself.
// Throws Error{Io} that says where below data_dir they are, or what is there instead (CIFAR-100,
// the Python version) and how to fetch them.
std::filesystem::path find_cifar(const std::filesystem::path& data_dir);

}  // namespace lockstep::datasets
