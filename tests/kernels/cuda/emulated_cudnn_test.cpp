// Convolutions by cuDNN beside the CPU's, on the emulated GPU, whose cuDNN can be absent, of
// another version, or refuse.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>

#include "engine/runtime/step_graph.h"
#include "gpu_test.h"
#include "kernels/cuda/cudnn_convolution.h"
#include "kernels/matmul_precision.h"
#include "tests/emulated_gpu/cudnn/control.h"
#include "tests/kernels/windows_cases.h"

namespace lockstep::kernels::cuda {
namespace {

using emulated_gpu::cudnn::num_run;
using emulated_gpu::cudnn::Pass;
using emulated_gpu::cudnn::Wishes;
using ::testing::HasSubstr;

constexpr std::size_t kFeatures = 7;
constexpr Windows kUsual{3, 8, 7, 5, 3, 3, 1, 1};

using Counts = std::array<std::size_t, 3>;
Counts counts() {
  return {num_run(Pass::forward), num_run(Pass::data), num_run(Pass::filter)};
}

// A convolution and its gradients on a device: the same values on each.
struct Layer {
  Windows windows = kUsual;
  Activation activation = Activation::gelu_tanh;
  DType dtype = DType::float32;  // of images
  Tensor x, weight, bias, grad_z, y, preactivation, grad_x, grad_weight, grad_bias, scratch;

  Layer(const Windows& w, Device device, DType images = DType::float32)
      : windows(w), dtype(images) {
    const auto random = [&](const Shape& shape, std::uint64_t seed, DType type) {
      const auto values = random_values<float>(shape.num_elements(), seed);
      // All devices get the same, rounded as bfloat16 images are.
      const Tensor made = Tensor::from(values, shape, Device{});
      return (type == DType::bfloat16 ? made.to(type) : made).to(type).to(device);
    };
    const auto result = [&](const Shape& shape, DType type) {
      return Tensor::full(shape, kNaN, type, device);
    };
    const Shape of_x{w.images, w.height, w.width, w.channels}, of_y{w.rows(), kFeatures};
    const Shape of_weight{kFeatures, w.cols()}, of_bias{kFeatures};
    x = random(of_x, 1, dtype);
    weight = random(of_weight, 2, DType::float32);
    bias = random(of_bias, 3, DType::float32);
    grad_z = random(of_y, 4, dtype);
    y = result(of_y, dtype);
    preactivation = result(of_y, dtype);
    grad_x = result(of_x, dtype);
    grad_weight = result(of_weight, DType::float32);
    grad_bias = result(of_bias, DType::float32);
    scratch = result({std::max<std::size_t>(1, x.backend().conv_scratch(w))}, dtype);
  }

  void run() {
    x.backend().conv_forward(
        x.stream(),
        {windows, x.view(), weight.matrix(), bias.view(), activation, y.matrix(),
         needs_preactivation(activation) ? preactivation.matrix() : MatrixView{}, scratch.view()});
    x.backend().conv_backward(x.stream(),
                              {windows, x.view(), weight.matrix(), grad_z.matrix(), grad_x.view(),
                               grad_weight.matrix(), grad_bias.view(), scratch.view()});
  }

  std::vector<std::vector<double>> results() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& one : {y, grad_x, grad_weight, grad_bias}) {
      all.push_back(one.to_vector<double>());
    }
    if (needs_preactivation(activation)) all.push_back(preactivation.to_vector<double>());
    return all;
  }
};

// The largest difference of the results, relative to the largest of each.
double largest_error(const Layer& layer, const Layer& reference) {
  const auto found = layer.results(), expected = reference.results();
  double worst = 0;
  for (std::size_t part = 0; part < found.size(); ++part) {
    double largest = 1e-3, difference = 0;
    for (std::size_t i = 0; i < found[part].size(); ++i) {
      largest = std::max(largest, std::fabs(expected[part][i]));
      const double one = std::fabs(found[part][i] - expected[part][i]);
      if (!(one <= difference)) difference = one;  // a NaN stays
    }
    worst = std::max(worst, difference / largest);
    EXPECT_FALSE(std::isnan(difference)) << "result " << part;
  }
  return worst;
}

class Cudnn : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    start_afresh({});
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_CUDNN");
    start_afresh({});
    set_matmul_precision(MatmulPrecision::highest);
  }
  static void start_afresh(const Wishes& wishes) {
    emulated_gpu::cudnn::wish(wishes);
    forget_cudnn();
  }

  // Runs a layer, and compares it with the CPU's. Returns the largest error.
  static double error_of(const Windows& w, DType images = DType::float32,
                         Activation activation = Activation::gelu_tanh) {
    Layer layer(w, test_device(), images), reference(w, Device{}, images);
    layer.activation = reference.activation = activation;
    layer.run();
    reference.run();
    return largest_error(layer, reference);
  }
  static void expect_patches(const std::string& why) {
    const Counts before = counts();
    EXPECT_LE(error_of(kUsual), 1e-5);
    EXPECT_EQ(counts(), before);
    EXPECT_THAT(cuda_convolutions(), HasSubstr(why));
  }
};

template <typename Body>
void for_windows_of_cudnn(const Body& body) {
  for (const Windows& w : kWindows) {
    if (w.images == 0 || w.are_pixels()) continue;  // products
    SCOPED_TRACE(::testing::Message()
                 << w.images << " x " << w.height << " x " << w.width << " x " << w.channels
                 << ", kernel " << w.kernel_height << " x " << w.kernel_width << ", stride "
                 << w.stride << ", padding " << w.padding);
    const Counts before = counts();
    body(w);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(counts()[i], before[i] + 1) << i;
  }
}

TEST_F(Cudnn, GivesTheCpusResultsInFloat32) {
  EXPECT_THAT(cuda_convolutions(), HasSubstr("cuDNN 9"));
  for (const auto activation : {Activation::none, Activation::relu, Activation::gelu_tanh}) {
    for_windows_of_cudnn(
        [&](const Windows& w) { EXPECT_LE(error_of(w, DType::float32, activation), 3e-6); });
  }
}

TEST_F(Cudnn, RoundsFactorsToTf32WhereThePrecisionAllowsIt) {
  for (const auto precision : {MatmulPrecision::high, MatmulPrecision::medium}) {
    set_matmul_precision(precision);
    for_windows_of_cudnn([](const Windows& w) {
      const double error = error_of(w);
      EXPECT_LE(error, 2e-3);
      EXPECT_GE(error, 1e-5) << "not rounded";
    });
  }
}

TEST_F(Cudnn, ConvolvesBfloat16Images) {
  set_matmul_precision(MatmulPrecision::bf16);
  for_windows_of_cudnn(
      [](const Windows& w) { EXPECT_LE(error_of(w, DType::bfloat16), 4 * 0x1p-8); });
}

// The emulated library's other algorithms add in another order every time.
TEST_F(Cudnn, GivesTheSameBitsInEveryRun) {
  std::vector<std::vector<std::vector<double>>> runs;
  for (int i = 0; i < 3; ++i) {
    if (i == 2) start_afresh({});
    Layer layer({4, 12, 12, 6, 3, 3, 2, 1}, test_device());
    layer.run();
    runs.push_back(layer.results());
  }
  EXPECT_EQ(runs[1], runs[0]);
  EXPECT_EQ(runs[2], runs[0]);
}

TEST_F(Cudnn, IsNotUsedWhereItIsAbsentOrUnwanted) {
  start_afresh({.is_absent = true});
  expect_patches("without cuDNN: libcudnn.so.9: a test wishes it away");
  setenv("LOCKSTEP_CUDNN", "off", 1);
  start_afresh({});
  expect_patches("without cuDNN: LOCKSTEP_CUDNN=off");
  setenv("LOCKSTEP_CUDNN", "of", 1);
  start_afresh({});
  expect_error(ErrorCode::Usage, "is 'of'; use on or off", [] { error_of(kUsual); });
}

TEST_F(Cudnn, OfAnotherMajorVersionIsNamedAndNotUsed) {
  for (const int major : {8, 10}) {
    start_afresh({.major = major});
    ::testing::internal::CaptureStderr();
    expect_patches("this build needs cuDNN 9");
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("warning: convolutions go without cuDNN: it is cuDNN " +
                               std::to_string(major)));
    EXPECT_EQ(log.find("without cuDNN"), log.rfind("without cuDNN")) << "said twice";
  }
}

TEST_F(Cudnn, ThatDoesNotStartIsNotUsed) {
  // A stream keeps its handle, so this takes another device's.
  emulated_gpu::cudnn::wish({.creating = CUDNN_STATUS_NOT_INITIALIZED});
  const Device device = test_device(1);
  Layer layer(kUsual, device), reference(kUsual, Device{});
  const Counts before = counts();
  layer.run();
  reference.run();
  EXPECT_LE(largest_error(layer, reference), 1e-5);
  EXPECT_EQ(counts(), before);
  EXPECT_THAT(cuda_convolutions(), HasSubstr("does not start"));
}

TEST_F(Cudnn, LeavesWhatItRefusesToPatchesWhateverTheStatus) {
  for (const auto status : {CUDNN_STATUS_NOT_SUPPORTED_SHAPE, CUDNN_STATUS_BAD_PARAM,
                            CUDNN_STATUS_INTERNAL_ERROR, CUDNN_STATUS_NOT_INITIALIZED}) {
    SCOPED_TRACE(static_cast<int>(status));
    for (const Wishes& wishes :
         {Wishes{.describing = status}, Wishes{.finding = status}, Wishes{.running = status}}) {
      start_afresh(wishes);
      expect_patches("");
    }
  }
  start_afresh({.finding = CUDNN_STATUS_EXECUTION_FAILED});
  expect_patches("");
  start_afresh({.has_deterministic = {false, false, false}});
  expect_patches("");
  set_matmul_precision(MatmulPrecision::bf16);
  const Counts before = counts();
  EXPECT_LE(error_of(kUsual, DType::bfloat16), 4 * 0x1p-8);
  EXPECT_EQ(counts(), before);
}

TEST_F(Cudnn, NamesARefusalInTheLogAtLevelDebug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("LOCKSTEP_LOG", "debug", 1);  // which the other process reads
  const auto convolve = [] {
    start_afresh({.finding = CUDNN_STATUS_BAD_PARAM});
    error_of(kUsual);
    std::exit(0);
  };
  EXPECT_EXIT(convolve(), ::testing::ExitedWithCode(0),
              "debug: cuDNN [0-9.]+ has no cudnnConvolutionForward for .*, so its patches are "
              "multiplied: .the algorithms of cudnnConvolutionForward. failed: .*status 2000");
  unsetenv("LOCKSTEP_LOG");
}

TEST_F(Cudnn, SharesAGradientWithPatches) {
  for (std::size_t missing = 0; missing < 3; ++missing) {
    Wishes wishes;
    wishes.has_deterministic[missing] = false;
    start_afresh(wishes);
    Counts expected = counts();
    for (std::size_t pass = 0; pass < 3; ++pass) expected[pass] += pass != missing;
    EXPECT_LE(error_of(kUsual), 1e-5);
    EXPECT_EQ(counts(), expected);
  }
}

TEST_F(Cudnn, ThatFailsIsAnErrorWhichNamesTheCall) {
  const auto convolve = [] { error_of(kUsual); };
  start_afresh({.running = CUDNN_STATUS_EXECUTION_FAILED});
  expect_error(ErrorCode::Cuda, "[cudnnConvolutionForward] failed", convolve);
  expect_error(ErrorCode::Cuda, "LOCKSTEP_CUDNN=off convolves without cuDNN", convolve);
}

// As gradients in DDP's buckets and slices of images may lie.
TEST_F(Cudnn, TakesUnalignedWeightsAndLeavesUnalignedImagesToPatches) {
  Layer layer(kUsual, test_device()), reference(kUsual, Device{});
  reference.run();
  const auto move = [](Tensor& tensor) {
    const Tensor memory = Tensor::empty({tensor.num_elements() + 1}, DType::float32, test_device());
    Tensor to = memory.rows(1, tensor.num_elements() + 1).reshape(tensor.shape());
    to.copy_from(tensor);
    tensor = to;
  };
  move(layer.weight);
  move(layer.grad_weight);
  Counts before = counts();
  layer.run();
  EXPECT_LE(largest_error(layer, reference), 3e-6);
  EXPECT_NE(counts(), before);
  move(layer.x);
  before = counts();
  layer.run();
  EXPECT_LE(largest_error(layer, reference), 1e-5);
  EXPECT_EQ(counts(), before);
}

TEST_F(Cudnn, IsCapturedInAGraph) {
  for (const DType images : {DType::float32, DType::bfloat16}) {
    set_matmul_precision(images == DType::bfloat16 ? MatmulPrecision::bf16
                                                   : MatmulPrecision::highest);
    Layer layer(kUsual, test_device(), images), reference(kUsual, Device{}, images);
    reference.run();
    runtime::StepGraph graph({test_device()});
    const Counts before = counts();
    for (std::size_t i = 0; i < runtime::StepGraph::kNumWarmUps + 3; ++i) {
      for (Tensor* one : {&layer.y, &layer.grad_x, &layer.grad_weight}) one->fill(kNaN);
      graph.run([&] { layer.run(); });
      EXPECT_LE(largest_error(layer, reference), images == DType::bfloat16 ? 4 * 0x1p-8 : 3e-6);
    }
    EXPECT_TRUE(graph.is_captured());
    EXPECT_EQ(counts()[0], before[0] + runtime::StepGraph::kNumWarmUps + 1);
  }
}

TEST_F(Cudnn, CannotCaptureANewShape) {
  Layer known(kUsual, test_device()), unknown({2, 9, 9, 4, 3, 3, 1, 1}, test_device());
  runtime::StepGraph graph({test_device()});
  for (std::size_t i = 0; i < runtime::StepGraph::kNumWarmUps; ++i) graph.run([&] { known.run(); });
  const auto capture = [&] { graph.run([&] { unknown.run(); }); };
  expect_error(ErrorCode::State, "[2, 9, 9, 4] * [7, 3, 3], stride 1, padding 1, float32 is new",
               capture);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
