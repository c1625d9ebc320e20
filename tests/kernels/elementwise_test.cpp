#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, Floating);

// Compares run(stream, a, b, y) with expected(a, b) for all sizes and thread counts.
template <typename T, typename Run, typename Expected>
void expect_elementwise(const Run& run, const Expected& expected) {
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(::testing::Message() << size << " elements");
    auto a = random_array<T>(size, 1);
    auto b = random_array<T>(size, 2);
    std::vector<double> reference;
    for (std::size_t i = 0; i < size; ++i)
      reference.push_back(expected(double(a[i]), double(b[i])));
    for_thread_counts([&](Stream& stream) {
      Array<T> y = b;
      run(stream, a, b, y);
      expect_close(y.values, reference);
    });
  }
}

TYPED_TEST(Elementwise, Add) {
  expect_elementwise<TypeParam>(
      [](Stream& s, auto& a, auto& b, auto& y) { cpu().add(s, a.view(), b.view(), y.view()); },
      [](double a, double b) { return a + b; });
}

TYPED_TEST(Elementwise, Multiply) {
  expect_elementwise<TypeParam>(
      [](Stream& s, auto& a, auto& b, auto& y) { cpu().multiply(s, a.view(), b.view(), y.view()); },
      [](double a, double b) { return a * b; });
}

TYPED_TEST(Elementwise, Scale) {
  expect_elementwise<TypeParam>(
      [](Stream& s, auto& a, auto&, auto& y) { cpu().scale(s, a.view(), 0.75, y.view()); },
      [](double a, double) { return 0.75 * a; });
}

TYPED_TEST(Elementwise, AxpyAddsToItsOutput) {
  expect_elementwise<TypeParam>(
      [](Stream& s, auto& a, auto&, auto& y) { cpu().axpy(s, -1.5, a.view(), y.view()); },
      [](double a, double b) { return b - 1.5 * a; });
}

TYPED_TEST(Elementwise, OutputsMayAliasInputs) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    const auto start = random_array<T>(size, 1);
    auto y = start;
    cpu().add(stream_with(2), y.view(), y.view(), y.view());
    cpu().multiply(stream_with(2), y.view(), y.view(), y.view());
    cpu().scale(stream_with(2), y.view(), 0.5, y.view());
    std::vector<double> expected;
    for (const T value : start.values) expected.push_back(2 * double(value) * double(value));
    expect_close(y.values, expected);
  }
}

TYPED_TEST(Elementwise, NaNAndInfinityPassThrough) {
  using T = TypeParam;
  Array<T> a(std::vector<T>{T(kNaN), T(kInfinity), T(-kInfinity)});
  Array<T> b(std::vector<T>{1, 1, T(kInfinity)});
  Array<T> y(3);
  cpu().add(stream_with(1), a.view(), b.view(), y.view());
  expect_close(y.values, {kNaN, kInfinity, kNaN});
}

}  // namespace
}  // namespace lockstep::kernels
