#include "datasets/digits.h"

#include "datasets/digits_rows.h"

namespace lockstep::datasets {
namespace {

constexpr std::size_t kRowLength = 1 + kNumDigitPixels;  // without the end of the line

std::uint8_t pixel_value(char text) {
  return static_cast<std::uint8_t>(text <= '9' ? text - '0' : text - 'a' + 10);
}

}  // namespace

data::LabelledRows load_digits(std::size_t begin, std::size_t end) {
  data::LabelledRows rows;
  rows.name = "digits";
  rows.num_features = kNumDigitPixels;
  rows.num_classes = kNumDigitClasses;
  rows.scale = 1.0 / 16;
  rows.row_shape = {8, 8};
  for (std::size_t i = begin; i < end; ++i) {
    const std::string_view text = kDigitRows.substr(i * (kRowLength + 1), kRowLength);
    rows.labels.push_back(text[0] - '0');
    for (const char pixel : text.substr(1)) rows.features.push_back(pixel_value(pixel));
  }
  return rows;
}

Digits load_digits() {
  return {data::to_tensors(load_digits(0, kNumTrainDigits)),
          data::to_tensors(load_digits(kNumTrainDigits, kNumDigits))};
}

}  // namespace lockstep::datasets
