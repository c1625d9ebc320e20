// The GPUs that published tables name: what each can do, and in which preset it is.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "simulate/predict/topology.h"

namespace lockstep::tools {

struct KnownGpu {
  std::string_view words;          // as name_words() writes it
  std::string_view preset;         // a machine of these; empty: none
  std::string_view nvlink_preset;  // with NVLinks between them; empty: none
  int nvlink = 0;                  // the generation of these
  int pcie = 3;                    // its own generation, and that of its preset
  // For a GPU without a preset (tflops 0: the preset's): peaks of float32 and of memory, and its
  // size. Source: NVIDIA's data sheets.
  std::string_view name = {};
  double tflops = 0;
  double memory_gb_per_s = 0;
  double memory_gb = 0;

  // Of the data sheet, or of its preset.
  predict::DeviceProfile device() const;
};

std::span<const KnownGpu> known_gpus();

// The GPU with the most words in a name's words; null: none.
const KnownGpu* find_gpu(std::string_view words);

// For errors: "K80, M40, ...".
std::string known_gpu_names();

}  // namespace lockstep::tools
