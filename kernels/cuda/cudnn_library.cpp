// Decides whether a process convolves by cuDNN.
#include "kernels/cuda/cudnn_library.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "kernels/image_calls.h"

namespace lockstep::kernels::cuda {
namespace {

// Returns why a library that was loaded does not fit the headers; empty if it does.
std::string misfit(const CudnnLibrary& library, int major, const std::string& version) {
  if (major != CUDNN_MAJOR) {
    return fmt::format("it is cuDNN {}, and this build needs cuDNN {}", version, CUDNN_MAJOR);
  }
#define LOCKSTEP_REQUIRE(name) \
  if (library.name == nullptr) return fmt::format("cuDNN {} has no " #name, version);
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_REQUIRE)
#undef LOCKSTEP_REQUIRE
  return {};
}

CudnnChoice choose_library() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string_view(text ? text : "");
  };
  const std::string_view word = variable("LOCKSTEP_CUDNN");
  require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, "LOCKSTEP_CUDNN",
          "is '{}'; use on or off", word);
  CudnnChoice choice;
  if (word == "off") {
    choice.problem = "LOCKSTEP_CUDNN=off";
    return choice;
  }
  choice.library = load_cudnn();
  choice.problem = choice.library.problem;
  const bool was_asked_for = word == "on" || !variable("LOCKSTEP_CUDNN_LIBRARY").empty();
  const bool is_loaded = choice.problem.empty();
  if (is_loaded) {
    std::array<int, 3> numbers{};
    choice.library.cudnnGetProperty(MAJOR_VERSION, &numbers[0]);
    choice.library.cudnnGetProperty(MINOR_VERSION, &numbers[1]);
    choice.library.cudnnGetProperty(PATCH_LEVEL, &numbers[2]);
    choice.version = fmt::format("{}.{}.{}", numbers[0], numbers[1], numbers[2]);
    choice.problem = misfit(choice.library, numbers[0], choice.version);
  }
  const LogLevel level = is_loaded || was_asked_for ? LogLevel::warning : LogLevel::debug;
  if (!choice.problem.empty() && log_level() <= level) {
    log_line(level, fmt::format("convolutions go without cuDNN: {}", choice.problem));
  }
  return choice;
}

// Never destroyed: tensors in static variables may be used until the very end.
std::atomic<const CudnnChoice*> chosen{nullptr};

}  // namespace

const CudnnChoice& cudnn_choice() {
  if (const CudnnChoice* known = chosen.load(std::memory_order_acquire)) return *known;
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  if (chosen.load() == nullptr) chosen = new CudnnChoice(choose_library());
  return *chosen;
}

void choose_cudnn_anew() {
  chosen = nullptr;  // the library stays loaded
}

void give_up_cudnn(std::string why) {
  log_warning("convolutions go without cuDNN: {}", why);
  auto* const without = new CudnnChoice(cudnn_choice());
  without->problem = std::move(why);
  chosen = without;
}

void check_cudnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(ErrorCode::Cuda, call,
       "failed: {} (cuDNN {}, status {}); LOCKSTEP_CUDNN=off convolves without cuDNN",
       cudnn().cudnnGetErrorString(status), cudnn_choice().version, static_cast<int>(status));
}

}  // namespace lockstep::kernels::cuda

namespace lockstep::kernels {

std::string cuda_convolutions() {
  const cuda::CudnnChoice& choice = cuda::cudnn_choice();
  if (choice.problem.empty()) return "cuDNN " + choice.version;
  return fmt::format("products of patches, without cuDNN: {}", choice.problem);
}

}  // namespace lockstep::kernels
