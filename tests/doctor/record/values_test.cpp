#include "tools/doctor/record/event.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace lockstep::record {
namespace {

template <typename T>
ConstTensorView view_of(const std::vector<T>& values, DType dtype) {
  return {values.data(), dtype, values.size()};
}

std::vector<float> make_values(std::size_t count, std::size_t first) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>((first + i) % 17));
  return values;
}

TEST(Sketch, OfASumIsTheSumOfTheSketches) {
  const std::vector<float> a = make_values(5000, 1), b = make_values(5000, 8);
  std::vector<float> sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + 3 * b[i]);
  const Sketch of_a = sketch_of(view_of(a, DType::float32));
  const Sketch of_b = sketch_of(view_of(b, DType::float32));
  const Sketch of_sum = sketch_of(view_of(sum, DType::float32));
  for (std::size_t i = 0; i < kSketchSize; ++i) {
    EXPECT_DOUBLE_EQ(of_sum[i], of_a[i] + 3 * of_b[i]) << i;
  }
}

TEST(Sketch, TellsTwoGradientsApartThatDifferInASampledElement) {
  std::vector<float> values = make_values(200, 1);  // so few that all are sampled
  const Sketch before = sketch_of(view_of(values, DType::float32));
  values[150] += 1;
  EXPECT_NE(sketch_of(view_of(values, DType::float32)), before);
}

TEST(Sketch, OfDoublesIsThatOfTheSameFloats) {
  const std::vector<float> values = make_values(300, 1);
  const std::vector<double> doubles(values.begin(), values.end());
  EXPECT_EQ(sketch_of(view_of(values, DType::float32)),
            sketch_of(view_of(doubles, DType::float64)));
}

TEST(Sketch, OfNothingIsZero) {
  EXPECT_TRUE(is_zero(sketch_of({})));
  EXPECT_FALSE(is_zero(sketch_of(view_of(make_values(3, 1), DType::float32))));
}

TEST(Hash, ChangesWithEachElementOfASmallTensor) {
  std::vector<float> values = make_values(1000, 1);
  const std::uint64_t before = hash_of(view_of(values, DType::float32));
  EXPECT_EQ(hash_of(view_of(values, DType::float32)), before);
  for (const std::size_t i : {0, 1, 500, 999}) {
    std::vector<float> other = values;
    other[i] += 1;
    EXPECT_NE(hash_of(view_of(other, DType::float32)), before) << i;
  }
}

TEST(Hash, SeesTheEndOfALargeTensor) {
  std::vector<float> values = make_values(1'000'001, 1);
  const std::uint64_t before = hash_of(view_of(values, DType::float32));
  values.back() += 1;
  EXPECT_NE(hash_of(view_of(values, DType::float32)), before);
}

TEST(Hash, OfRowsIsThatOfTheirValuesAlone) {
  std::vector<float> values = make_values(12, 1);
  for (std::size_t i = 0; i < 4; ++i) values[8 + i] = values[i];  // row 2 is row 0 again
  const std::vector<std::uint64_t> hashes = hash_rows(view_of(values, DType::float32), 3);
  ASSERT_EQ(hashes.size(), 3u);
  EXPECT_EQ(hashes[0], hashes[2]);
  EXPECT_NE(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace lockstep::record
