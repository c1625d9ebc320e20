// For the tests of what only a GPU does.
#pragma once

#include "tests/kernels/reference.h"

namespace lockstep::kernels {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "set LOCKSTEP_TEST_DEVICE=cuda";
  }
};

// c = a * b of random float matrices, or a^T * b.
class SomeProduct {
 public:
  SomeProduct(std::size_t rows, std::size_t cols, std::size_t depth,
              Transpose transpose_a = Transpose::no)
      : transpose_a_(transpose_a),
        left_(transpose_a == Transpose::yes ? random_grid<float>(depth, rows, 0, 1)
                                            : random_grid<float>(rows, depth, 0, 1)),
        right_(random_grid<float>(depth, cols, 0, 2)),
        c_(rows, cols) {}
  void run(Write write = Write::overwrite) const {
    tested().matmul(stream(),
                    {a_.view(), transpose_a_, b_.view(), Transpose::no, c_.view(), write});
  }
  std::vector<float> result() const { return c_.content(); }
  // |result - expected| / |expected|, as vectors.
  double error() const {
    double difference = 0, norm = 0;
    const Grid<float> c = c_.grid();
    for (std::size_t i = 0; i < c.rows; ++i) {
      for (std::size_t j = 0; j < c.cols; ++j) {
        double expected = 0;
        for (std::size_t k = 0; k < right_.rows; ++k) {
          const float a = transpose_a_ == Transpose::yes ? left_(k, i) : left_(i, k);
          expected += double(a) * double(right_(k, j));
        }
        difference += std::pow(double(c(i, j)) - expected, 2);
        norm += expected * expected;
      }
    }
    return std::sqrt(difference / norm);
  }

 private:
  Transpose transpose_a_;
  Grid<float> left_, right_;
  GridOnDevice<float> a_{left_}, b_{right_}, c_;
};

}  // namespace lockstep::kernels
