// 25: What is a convolution made of?
//
// A convolution looks at a small window of the image, multiplies it by a kernel's weights, and
// moves on. Write each window as a row of a matrix, and all of it is one matrix product, which is
// what hardware does fastest. The price is memory, because windows overlap and a pixel is written
// several times.
//
// You will see: an image cut into patches, one per row of a matrix; a convolution as the product of
// that matrix and the kernel's weights, number by number; the same for a batch of digits and many
// kernels, against conv2d(), which is PyTorch's, too; which pixels get how many gradients; and what
// it costs to store the patches, and when conv2d() does.
//
// Run:  25_cut_patches [--channels 16] [--kernel 3] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/25.txt

#include <lockstep.h>

#include <string>
#include <vector>

#include "tutorials/common.h"

namespace {

using namespace lockstep;

int num_channels = 16;  // --channels
int kernel_size = 3;    // --kernel

// An image of 4 x 4 pixels, one channel, with an edge between its second and third column, and a
// kernel that answers to such edges.
const std::vector<float> kImage = {1, 1, 0, 0,   //
                                   1, 1, 0, 0,   //
                                   1, 1, 0, 0,   //
                                   1, 1, 0, 0};  //
const std::vector<float> kKernel = {1, 0, -1,    //
                                    1, 0, -1,    //
                                    1, 0, -1};   //

// The definition: for each place of the kernel the sum of products, pixel by pixel.
std::vector<float> convolve_by_loops() {
  std::vector<float> result;
  for (int top = 0; top < 2; ++top) {
    for (int left = 0; left < 2; ++left) {
      float sum = 0;
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) sum += kImage[(top + i) * 4 + left + j] * kKernel[i * 3 + j];
      }
      result.push_back(sum);
    }
  }
  return result;
}

void show_one_image() {
  tutorial::step(1, "one image, one kernel");
  const Variable image(Tensor::from(kImage, {1, 4, 4, 1}));  // [images, height, width, channels]
  const Variable weight(Tensor::from(kKernel, {1, 9}));      // a Linear's: [out, in]
  const Variable rows = patches(image, 3, 3);                // [places, 9 pixels of a patch]
  const Variable y = linear(rows, weight, Variable());
  fmt::print("a 3 x 3 kernel fits into 4 x 4 pixels at 2 x 2 places, the rows of\n{}\n",
             describe(rows.value()));
  const std::vector<float> pixels = rows.value().to_vector<float>();
  for (int r = 0; r < 4; ++r) {
    fmt::print("  row {} ", r);
    for (int k = 0; k < 9; ++k) fmt::print("{}{:.0f} ", k % 3 == 0 ? "  " : "", pixels[r * 9 + k]);
    fmt::print(" -> {:>3.0f}\n", y.value().to_vector<float>()[r]);
  }
  fmt::print("  kernel ");
  for (int k = 0; k < 9; ++k) fmt::print("{}{:.0f} ", k % 3 == 0 ? "  " : "", kKernel[k]);
  fmt::print("\n");
  tutorial::check_close("the product against a loop over pixels", y.value(),
                        Tensor::from(convolve_by_loops(), {4, 1}), 0);
}

// The convolution's two steps, for a layer's weights.
Variable convolve_by_patches(const nn::Conv2d& layer, const Variable& x) {
  const Shape& w = layer.weight().shape();  // [out, height, width, in]
  const Variable rows = patches(x, w[1], w[2]);
  const Variable y =
      linear(rows, reshape(layer.weight(), {w[0], w[1] * w[2] * w[3]}), layer.bias());
  const std::size_t height = x.shape()[1] - w[1] + 1;
  const std::size_t width = x.shape()[2] - w[2] + 1;
  return reshape(y, {x.shape()[0], height, width, w[0]});
}

void show_batch(const nn::Conv2d& layer, const Variable& x) {
  tutorial::step(2, "a batch of digits, many kernels");
  const Variable y = conv2d(x, layer.weight(), layer.bias());
  fmt::print("{}\nimages {}\n    -> {}\n", layer.to_string(), describe(x.value()),
             describe(y.value()));
  tutorial::check_close("conv2d() against patches() and linear()", y.value(),
                        convolve_by_patches(layer, x).value(), 1e-5);
  const std::size_t in = x.shape()[1] * x.shape()[2];
  const std::size_t out = y.shape()[1] * y.shape()[2] * y.shape()[3];
  fmt::print("parameters: {}; a Linear between the same sizes: {} x {} + {} = {}\n",
             layer.num_parameters(), in, out, out, in * out + out);
  tutorial::check("a convolution has fewer parameters, each used at every place",
                  layer.num_parameters() < in * out);
}

// One gradient of 1 for every patch: what arrives at a pixel is the number of patches it is in.
void show_backward(const nn::Conv2d& layer, const Variable& x) {
  tutorial::step(3, "backward: each pixel adds up its patches' gradients");
  const Variable image(Tensor::from(kImage, {1, 4, 4, 1}), RequiresGrad::yes);
  sum(patches(image, 3, 3)).backward();
  const std::vector<float> counts = image.grad().to_vector<float>();
  fmt::print("how many patches each pixel is in:\n");
  for (int i = 0; i < 4; ++i) {
    fmt::print(" ");
    for (int j = 0; j < 4; ++j) fmt::print(" {:.0f}", counts[i * 4 + j]);
    fmt::print("\n");
  }
  tutorial::check("a corner is in one patch, the middle in four", counts[0] == 1 && counts[5] == 4);

  std::vector<std::vector<Tensor>> gradients;  // of x, weight and bias: by conv2d(), by patches
  for (const bool by_patches : {false, true}) {
    const Variable input(x.value(), RequiresGrad::yes);
    for (Variable parameter : layer.parameters()) parameter.clear_grad();
    const Variable y = by_patches ? convolve_by_patches(layer, input)
                                  : conv2d(input, layer.weight(), layer.bias());
    mean(multiply(y, y)).backward();
    gradients.push_back({input.grad(), layer.weight().grad(), layer.bias().grad()});
  }
  tutorial::check_close("every gradient, both ways",
                        tutorial::max_abs_difference(gradients[0], gradients[1]), 1e-5);
}

// Forward and backward of a batch.
double seconds_of_step(const nn::Conv2d& layer, const Variable& x, bool by_patches, int num_calls) {
  return tutorial::fastest_seconds(num_calls, [&] {
    const Variable input(x.value(), RequiresGrad::yes);
    const Variable y = by_patches ? convolve_by_patches(layer, input)
                                  : conv2d(input, layer.weight(), layer.bias());
    sum(y).backward();
    tutorial::synchronize(x.device());
  });
}

void run(const tutorial::Options& options) {
  const Device device = options.device();
  show_one_image();

  const Tensor digits = datasets::load_digits().train.x;  // rows of 64 pixels
  const std::size_t num_images = options.fast ? 256 : 1500;
  const Variable x(digits.rows(0, num_images).reshape({num_images, 8, 8, 1}).to(device));
  nn::Conv2d layer(1, num_channels, kernel_size, {.device = device});
  show_batch(layer, x);
  show_backward(layer, x);

  tutorial::step(4, "what the patches cost");
  const Variable rows = patches(x, kernel_size, kernel_size);
  const double factor =
      static_cast<double>(rows.value().num_bytes()) / static_cast<double>(x.value().num_bytes());
  fmt::print("images: {:.2f} MB; their patches: {:.2f} MB, {:.1f} times as much\n",
             x.value().num_bytes() / 1e6, rows.value().num_bytes() / 1e6, factor);
  const double by_patches = seconds_of_step(layer, x, true, options.fast ? 3 : 10);
  const double at_once = seconds_of_step(layer, x, false, options.fast ? 3 : 10);
  fmt::print("forward and backward: {:.2f} ms by patches() and linear(), {:.2f} ms by conv2d()\n",
             by_patches * 1e3, at_once * 1e3);
  tutorial::say(
      device.type == DeviceType::cuda
          ? "On a GPU conv2d() stores patches, too, of as many images at a time as its scratch "
            "memory holds. On a CPU it reads them from the images while it multiplies."
          : "On a CPU conv2d() reads the patches from the images while it multiplies, and in "
            "backward holds those of a few images at a time. On a GPU it stores them.");
  if (kernel_size > 1) {
    tutorial::check("stored patches take more memory than the images", factor > 1);
  }
  tutorial::answer(
      fmt::format(
          "A convolution cuts an image into patches and puts each through one Linear layer: "
          "{} weights serve all places, and a pixel's gradient is the sum over its patches. "
          "The matrix of patches would be {:.1f} times as large as the images.",
          layer.num_parameters(), factor),
      {{"--kernel 5", "Larger patches overlap more: how much memory do they take?"},
       {"--channels 64", "More to multiply for the same patches: what becomes of the two times?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--channels", num_channels, 1, 512,
                     "kernels, which are channels of the output");
    flags.add_number("--kernel", kernel_size, 1, 7, "the kernel's height and width");
  };
  return run_main(argc, argv, "What is a convolution made of?", run, {.add_flags = add_flags});
}
