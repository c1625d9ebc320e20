#include "tools/prediction/known_gpus.h"

#include <fmt/format.h>

#include <array>
#include <cctype>

#include "tools/prediction/name_words.h"

namespace lockstep::tools {
namespace {

constexpr std::string_view kMaxwell = "titanx-maxwell-dual-root-8";
constexpr std::string_view kPascal = "titanx-pascal-dual-root-8";

constexpr std::array<KnownGpu, 34> kKnown = {{
    {"k80", "k80-p2-16x", "", 0, 3},
    {"titan x", kMaxwell, "", 0, 3},
    {"titan x maxwell", kMaxwell, "", 0, 3},
    {"titan x pascal", kPascal, "", 0, 3},
    {"gtx 1080 ti", "gtx1080ti-pcie3-8", "", 0, 3},
    {"1080 ti", "gtx1080ti-pcie3-8", "", 0, 3},
    {"p100", "", "dgx1-p100", 1, 3},
    {"v100", "", "dgx1-v100", 2, 3},
    {"a100", "", "dgx-a100", 3, 4},
    {"h100", "", "hgx-h100-8", 4, 5},
    {"h200", "", "hgx-h200-8", 4, 5},
    {"4090", "rtx4090-pcie4-8", "", 0, 4},
    {"5090", "rtx5090-pcie5-8", "", 0, 5},
    {"m40", "", "", 0, 3, "Tesla M40", 6.8, 288, 12},
    {"gtx 980", "", "", 0, 3, "GTX 980", 4.6, 224, 4},
    {"gtx 1070", "", "", 0, 3, "GTX 1070", 6.5, 256, 8},
    {"gtx 1080", "", "", 0, 3, "GTX 1080", 8.9, 320, 8},
    {"titan xp", "", "", 0, 3, "TITAN Xp", 12.1, 547.6, 12},
    {"titan v", "", "", 0, 3, "TITAN V", 14.9, 653, 12},
    {"p40", "", "", 0, 3, "Tesla P40", 11.8, 346, 24},
    {"t4", "", "", 0, 3, "T4", 8.1, 320, 16},
    {"2080", "", "", 0, 3, "RTX 2080", 10.1, 448, 8},
    {"2080 ti", "", "", 0, 3, "RTX 2080 Ti", 13.4, 616, 11},
    {"titan rtx", "", "", 0, 3, "TITAN RTX", 16.3, 672, 24},
    {"3080", "", "", 0, 4, "RTX 3080", 29.8, 760, 10},
    {"3090", "", "", 0, 4, "RTX 3090", 35.6, 936, 24},
    {"a10", "", "", 0, 4, "A10", 31.2, 600, 24},
    {"a10g", "", "", 0, 4, "A10G", 35, 600, 24},
    {"a40", "", "", 0, 4, "A40", 37.4, 696, 48},
    {"a6000", "", "", 0, 4, "RTX A6000", 38.7, 768, 48},
    {"rtx 6000 ada", "", "", 0, 4, "RTX 6000 Ada", 91.1, 960, 48},
    {"l4", "", "", 0, 4, "L4", 30.3, 300, 24},
    {"l40", "", "", 0, 4, "L40", 90.5, 864, 48},
    {"l40s", "", "", 0, 4, "L40S", 91.6, 864, 48},
}};

}  // namespace

predict::DeviceProfile KnownGpu::device() const {
  if (tflops == 0) {
    return predict::find_topology(std::string(preset.empty() ? nvlink_preset : preset)).device;
  }
  predict::DeviceProfile device;
  device.name = name;
  device.flops_per_second = tflops * 1e12;
  device.memory_bytes_per_second = memory_gb_per_s * 1e9;
  device.memory_bytes = memory_gb * 1e9;
  return device;
}

std::span<const KnownGpu> known_gpus() {
  return kKnown;
}

const KnownGpu* find_gpu(std::string_view words) {
  const KnownGpu* best = nullptr;
  for (const KnownGpu& gpu : kKnown) {
    const bool is_longer = !best || gpu.words.size() > best->words.size();
    // A "980 Ti" or a "2080 Super" is another GPU.
    const bool is_other = has_words(words, fmt::format("{} ti", gpu.words)) ||
                          has_words(words, fmt::format("{} super", gpu.words));
    if (is_longer && !is_other && has_words(words, gpu.words)) best = &gpu;
  }
  return best;
}

std::string known_gpu_names() {
  std::string names;
  for (const KnownGpu& gpu : kKnown) {
    if (gpu.words == "1080 ti") continue;  // the GTX again
    names += names.empty() ? "" : ", ";
    for (const char c : gpu.words) {
      names += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return names;
}

}  // namespace lockstep::tools
