#include "tutorials/labs/host/subject.h"

#include <vector>

#include "engine/autograd/ops/ops.h"
#include "fold_patches.h"
#include "tutorials/labs/host/tensors.h"

// inputs: {"shape": [images, height, width, channels], "size", "stride", "padding": of the window,
// "x": the images' elements, "grads": for each time that patches are made of them, the gradient of
// the patches}. answer: {"patches": the first ones, "grad": the images'}.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const auto shape = inputs.at("shape").get<std::vector<std::size_t>>();
  const lockstep::Variable x =
      lab::leaf(lab::vector_of(inputs.at("x")).reshape({shape[0], shape[1], shape[2], shape[3]}));
  const lab::Window window{inputs.at("size"), inputs.at("stride"), inputs.at("padding")};
  for (const nlohmann::json& grad : inputs.at("grads")) {
    const lockstep::Variable matrix = lab::patches(x, window);
    if (!answer.contains("patches")) answer["patches"] = lab::numbers_of(matrix.value());
    matrix.backward(lab::vector_of(grad).reshape(matrix.shape()));
  }
  answer["grad"] = lab::numbers_of(x.grad());
}
