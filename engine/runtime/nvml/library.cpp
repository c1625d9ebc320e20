#include "engine/runtime/nvml/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace lockstep::nvml {
namespace {

std::string library_path() {
  const char* path = std::getenv("LOCKSTEP_NVML_LIBRARY");
  return path != nullptr && *path != '\0' ? path : "libnvidia-ml.so.1";
}

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

void look_up_all(void* library, Api& api) {
  look_up(library, "nvmlInit_v2", api.Init_v2);
  look_up(library, "nvmlShutdown", api.Shutdown);
  look_up(library, "nvmlErrorString", api.ErrorString);
  look_up(library, "nvmlSystemGetDriverVersion", api.SystemGetDriverVersion);
  look_up(library, "nvmlSystemGetNVMLVersion", api.SystemGetNVMLVersion);
  look_up(library, "nvmlSystemGetCudaDriverVersion_v2", api.SystemGetCudaDriverVersion_v2);
  look_up(library, "nvmlDeviceGetCount_v2", api.DeviceGetCount_v2);
  look_up(library, "nvmlDeviceGetHandleByIndex_v2", api.DeviceGetHandleByIndex_v2);
  look_up(library, "nvmlDeviceGetHandleByUUID", api.DeviceGetHandleByUUID);
  look_up(library, "nvmlDeviceGetName", api.DeviceGetName);
  look_up(library, "nvmlDeviceGetUUID", api.DeviceGetUUID);
  look_up(library, "nvmlDeviceGetPciInfo_v3", api.DeviceGetPciInfo_v3);
  look_up(library, "nvmlDeviceGetCudaComputeCapability", api.DeviceGetCudaComputeCapability);
  look_up(library, "nvmlDeviceGetMemoryInfo", api.DeviceGetMemoryInfo);
  look_up(library, "nvmlDeviceGetMemoryInfo_v2", api.DeviceGetMemoryInfo_v2);
  look_up(library, "nvmlDeviceGetUtilizationRates", api.DeviceGetUtilizationRates);
  look_up(library, "nvmlDeviceGetTemperature", api.DeviceGetTemperature);
  look_up(library, "nvmlDeviceGetPowerUsage", api.DeviceGetPowerUsage);
  look_up(library, "nvmlDeviceGetEnforcedPowerLimit", api.DeviceGetEnforcedPowerLimit);
  look_up(library, "nvmlDeviceGetComputeRunningProcesses_v2",
          api.DeviceGetComputeRunningProcesses_v2);
  look_up(library, "nvmlDeviceGetComputeRunningProcesses_v3",
          api.DeviceGetComputeRunningProcesses_v3);
  look_up(library, "nvmlDeviceGetTopologyCommonAncestor", api.DeviceGetTopologyCommonAncestor);
  look_up(library, "nvmlDeviceGetP2PStatus", api.DeviceGetP2PStatus);
  look_up(library, "nvmlDeviceGetNvLinkState", api.DeviceGetNvLinkState);
  look_up(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", api.DeviceGetNvLinkRemotePciInfo_v2);
  look_up(library, "nvmlDeviceGetNvLinkRemoteDeviceType", api.DeviceGetNvLinkRemoteDeviceType);
}

}  // namespace

Library::Library() {
  const std::string path = library_path();
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    problem_ = fmt::format("no NVML: {} (it comes with NVIDIA's driver)", dlerror());
    return;
  }
  look_up_all(handle_, api_);
  // Without these there is no GPU to ask anything else about. Every library since 2013 has them.
  if (!api_.Init_v2 || !api_.Shutdown || !api_.DeviceGetCount_v2 ||
      !api_.DeviceGetHandleByIndex_v2) {
    problem_ = fmt::format("no NVML: {} lacks nvmlInit_v2 or the functions that list GPUs", path);
    close();
    return;
  }
  const Result result = api_.Init_v2();
  if (result != kSuccess) {
    problem_ = fmt::format("no NVML: nvmlInit_v2 says '{}'", describe(result));
    close();
    return;
  }
  is_initialised_ = true;
}

Library::~Library() {
  close();
}

void Library::close() {
  if (is_initialised_) api_.Shutdown();
  if (handle_ != nullptr) dlclose(handle_);
  is_initialised_ = false;
  handle_ = nullptr;
}

std::string Library::describe(Result result) const {
  if (api_.ErrorString != nullptr) return api_.ErrorString(result);
  return fmt::format("error {}", static_cast<int>(result));
}

}  // namespace lockstep::nvml
