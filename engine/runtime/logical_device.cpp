#include "engine/runtime/logical_device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "engine/core/error.h"
#include "engine/runtime/cpu/cpu_stream.h"
#include "engine/runtime/cpu_cores.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::runtime {

namespace {

// The devices of one type, made when first named.
template <int max_devices>
struct DeviceTable {
  std::array<std::unique_ptr<LogicalDevice>, max_devices> devices;
  std::array<std::atomic<LogicalDevice*>, max_devices> lookup{};  // read without the lock

  LogicalDevice* find(int index) const {
    if (index < 0 || index >= max_devices) return nullptr;
    return lookup[static_cast<std::size_t>(index)].load(std::memory_order_acquire);
  }
  // REQUIRES: the registry's mutex is held, and 0 <= index < max_devices.
  template <typename Make>
  LogicalDevice& find_or(int index, Make make) {
    const auto i = static_cast<std::size_t>(index);
    if (!devices[i]) {
      devices[i] = make();
      lookup[i].store(devices[i].get(), std::memory_order_release);
    }
    return *devices[i];
  }
};

struct Registry {
  std::mutex mutex;
  std::size_t threads_per_device = 1;
  DeviceTable<kMaxCpuDevices> cpu;
  DeviceTable<kMaxCudaDevices> cuda;
};

Registry& registry() {
  // Never destroyed: tensors in static variables outlive everything that main() leaves behind.
  static Registry& instance = *new Registry;
  return instance;
}

LogicalDevice& cpu_device(Device device) {
  if (device.index < 0 || device.index >= kMaxCpuDevices) {
    fail(ErrorCode::Device, "device", "{} does not exist; cpu:0 to cpu:{} do", to_string(device),
         kMaxCpuDevices - 1);
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.cpu.find_or(device.index, [&] {
    return std::make_unique<LogicalDevice>(device, all.threads_per_device);
  });
}

LogicalDevice& cuda_device(Device device) {
  const std::vector<int> gpus = logical_gpus();
  const int count = static_cast<int>(gpus.size());
  require(count > 0, ErrorCode::Device, "device", "{} does not exist: {}", to_string(device),
          no_gpu_reason());
  if (device.index < 0 || device.index >= count) {
    fail(ErrorCode::Device, "device",
         "{} does not exist; {} (several logical devices on one GPU: --virtual-devices cuda:0*{})",
         to_string(device),
         count == 1 ? std::string("cuda:0 does") : fmt::format("cuda:0 to cuda:{} do", count - 1),
         std::clamp(device.index + 1, 2, kMaxCudaDevices));
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.cuda.find_or(device.index, [&] {
    const LogicalDevice::OnGpu on{gpus[static_cast<std::size_t>(device.index)]};
    return std::make_unique<LogicalDevice>(device, on);
  });
}

}  // namespace

LogicalDevice::LogicalDevice(Device device, std::size_t num_threads)
    : device_(device),
      memory_(make_host_memory_pool(to_string(device))),
      current_memory_(memory_.get()),
      threads_(std::make_unique<ThreadPool>(num_threads)),
      compute_stream_(std::make_unique<CallerStream>(*this)),
      comm_stream_(std::make_unique<WorkerStream>(*this, to_string(device) + " comm")),
      copy_stream_(std::make_unique<CallerStream>(*this)),
      worker_(to_string(device)) {}

LogicalDevice::LogicalDevice(Device device, OnGpu on)
    : device_(device),
      gpu_(on.gpu),
      current_memory_(nullptr),
      threads_(std::make_unique<ThreadPool>(1)),
      worker_(to_string(device)) {
  DeviceParts parts = make_cuda_parts(*this, on.gpu);
  memory_ = std::move(parts.memory);
  staging_memory_ = std::move(parts.staging_memory);
  current_memory_ = memory_.get();
  compute_stream_ = std::move(parts.compute_stream);
  comm_stream_ = std::move(parts.comm_stream);
  copy_stream_ = std::move(parts.copy_stream);
}

LogicalDevice::~LogicalDevice() = default;

void LogicalDevice::set_num_threads(std::size_t num_threads) {
  if (threads_->num_threads() != num_threads) threads_ = std::make_unique<ThreadPool>(num_threads);
}

LogicalDevice& logical_device(Device device) {
  Registry& all = registry();
  const bool is_cpu = device.type == DeviceType::cpu;
  LogicalDevice* found = is_cpu ? all.cpu.find(device.index) : all.cuda.find(device.index);
  if (found != nullptr) return *found;
  return is_cpu ? cpu_device(device) : cuda_device(device);
}

bool has_cuda_devices_in_use() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return std::any_of(all.cuda.devices.begin(), all.cuda.devices.end(),
                     [](const auto& device) { return device != nullptr; });
}

int num_devices(DeviceType type) {
  return type == DeviceType::cpu ? kMaxCpuDevices : static_cast<int>(logical_gpus().size());
}

void set_threads_per_device(std::size_t num_threads) {
  require(num_threads >= 1, ErrorCode::Usage, "threads per device", "must be at least 1");
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.threads_per_device = num_threads;
  for (auto& device : all.cpu.devices) {
    if (device) device->set_num_threads(num_threads);
  }
}

std::size_t threads_per_device() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return all.threads_per_device;
}

std::size_t num_cores() {
  return std::max<std::size_t>(1, allowed_cores().size());
}

namespace {

struct Declaration {
  std::mutex mutex;
  bool is_read = false;  // LOCKSTEP_VIRTUAL_DEVICES has been looked at
  std::string text;      // empty: none was made
  std::vector<int> gpus;
};

Declaration& declaration() {
  static Declaration& instance = *new Declaration;
  return instance;
}

// A whole number at the beginning of the text, which it is taken off from; -1 if there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
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
  std::vector<int> gpus;
  for (std::string_view rest = text; !rest.empty() || gpus.empty();) {
    const std::size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    const std::string word(item);
    const bool has_more = comma != std::string_view::npos;
    rest = has_more ? rest.substr(comma + 1) : std::string_view();
    int gpu = -1;
    int count = 1;
    if (item.starts_with("cuda:")) {
      item.remove_prefix(5);
      gpu = take_number(item);
      if (item.starts_with('*')) {
        item.remove_prefix(1);
        count = take_number(item);
      }
    }
    if (gpu < 0 || count < 1 || !item.empty() || (has_more && rest.empty())) {
      fail(ErrorCode::Usage, kOperation,
           "'{}' in '{}' is not understood; write a GPU and how many logical devices it is, as in "
           "cuda:0*4 or cuda:0*2,cuda:1*2",
           word, text);
    }
    if (gpu >= num_gpus) {
      fail(ErrorCode::Usage, kOperation, "'{}' names GPU {}, and this machine has {}", word, gpu,
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

}  // namespace lockstep::runtime
