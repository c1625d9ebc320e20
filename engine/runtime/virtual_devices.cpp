// Logical devices of GPUs: which physical GPU is behind each (physical_gpus.h), what it is made of,
// and which of them reach each other's memory.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <regex>
#include <string>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::runtime {

namespace {

struct Declaration {
  std::mutex mutex;
  bool is_read = false;  // LOCKSTEP_VIRTUAL_DEVICES has been looked at
  std::string text;      // empty: nothing is declared
  std::vector<int> gpus;
};

Declaration& declaration() {
  static Declaration& instance = *new Declaration;
  return instance;
}

// REQUIRES: the mutex is held.
void read_once(Declaration& declared) {
  if (declared.is_read) return;
  const int num_gpus = static_cast<int>(physical_gpus().size());
  const char* text = std::getenv("LOCKSTEP_VIRTUAL_DEVICES");
  if (text != nullptr && *text != '\0' && num_gpus > 0) {
    declared.gpus = parse_virtual_devices(text, num_gpus);
    declared.text = text;
  } else {
    declared.gpus.resize(static_cast<std::size_t>(num_gpus));
    std::iota(declared.gpus.begin(), declared.gpus.end(), 0);
  }
  declared.is_read = true;
}

}  // namespace

std::vector<int> parse_virtual_devices(std::string_view text, int num_gpus) {
  constexpr const char* kOperation = "virtual devices";
  static const std::regex item_words(R"(cuda:(\d{1,9})(?:\*([1-9]\d{0,8}))?)");
  std::vector<int> gpus;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item(text.substr(begin, end - begin));
    begin = end + 1;
    std::smatch parts;
    if (!std::regex_match(item, parts, item_words)) {
      fail(ErrorCode::Usage, kOperation,
           "'{}' in '{}' is not understood; write a GPU and how many logical devices it is, as in "
           "cuda:0*4 or cuda:0*2,cuda:1*2",
           item, text);
    }
    const int gpu = std::stoi(parts[1]);
    const int count = parts[2].matched ? std::stoi(parts[2]) : 1;
    if (gpu >= num_gpus) {
      fail(ErrorCode::Usage, kOperation, "'{}' names GPU {}, and this machine has {}", item, gpu,
           num_gpus == 0   ? std::string("none")
           : num_gpus == 1 ? std::string("only cuda:0")
                           : fmt::format("cuda:0 to cuda:{}", num_gpus - 1));
    }
    require(count <= kMaxCudaDevices - static_cast<int>(gpus.size()), ErrorCode::Usage, kOperation,
            "'{}' makes more than {} logical devices", text, kMaxCudaDevices);
    gpus.insert(gpus.end(), static_cast<std::size_t>(count), gpu);
  }
  return gpus;
}

void set_virtual_devices(std::string_view text) {
  require(!physical_gpus().empty(), ErrorCode::Device, "virtual devices", "'{}' needs a GPU: {}",
          text, no_gpu_reason());
  Declaration& declared = declaration();
  const std::lock_guard lock(declared.mutex);
  if (declared.is_read && !text.empty() && declared.text == text) return;
  require(!has_cuda_devices_in_use(), ErrorCode::State, "virtual devices",
          "'{}' comes too late: a CUDA device is in use already", text);
  declared.gpus = parse_virtual_devices(text, static_cast<int>(physical_gpus().size()));
  declared.text = text;
  declared.is_read = true;
}

std::vector<int> logical_gpus() {
  Declaration& declared = declaration();
  const std::lock_guard lock(declared.mutex);
  read_once(declared);
  return declared.gpus;
}

bool has_virtual_devices() {
  Declaration& declared = declaration();
  const std::lock_guard lock(declared.mutex);
  read_once(declared);
  return !declared.text.empty();
}

LogicalDevice::LogicalDevice(Device device, OnGpu on)
    : device_(device),
      gpu_(on.gpu),
      current_memory_(nullptr),
      threads_(std::make_unique<ThreadPool>(1)),
      worker_(to_string(device)) {
  DeviceParts parts = make_cuda_parts(*this, on.gpu);
  memory_ = std::move(parts.memory);
  copy_pool_ = std::move(parts.copy_pool);
  current_memory_ = memory_.get();
  compute_stream_ = std::move(parts.compute_stream);
  comm_stream_ = std::move(parts.comm_stream);
  copy_stream_ = std::move(parts.copy_stream);
}

int gpu_behind(Device device) {
  const std::vector<int> gpus = logical_gpus();
  const int count = static_cast<int>(gpus.size());
  require(count > 0, ErrorCode::Device, "device", "{} does not exist: {}", to_string(device),
          no_gpu_reason());
  require(device.index >= 0 && device.index < count, ErrorCode::Device, "device",
          "{} does not exist; {} (several logical devices on one GPU: "
          "LOCKSTEP_VIRTUAL_DEVICES=cuda:0*{})",
          to_string(device),
          count == 1 ? std::string("cuda:0 does") : fmt::format("cuda:0 to cuda:{} do", count - 1),
          std::clamp(device.index + 1, 2, kMaxCudaDevices));
  return gpus[static_cast<std::size_t>(device.index)];
}

int num_devices(DeviceType type) {
  return type == DeviceType::cpu ? kMaxCpuDevices : static_cast<int>(logical_gpus().size());
}

bool reaches(const LogicalDevice& reader, const LogicalDevice& owner) {
  return has_peer_access(reader.gpu(), owner.gpu());
}

}  // namespace lockstep::runtime
