#include "engine/runtime/nvml/nvml_library.h"

#include <fmt/format.h>

namespace lockstep::nvml {

namespace {

void find_all(const runtime::SharedLibrary& library, Api& api) {
  library.find("nvmlInit_v2", api.Init_v2);
  library.find("nvmlShutdown", api.Shutdown);
  library.find("nvmlErrorString", api.ErrorString);
  library.find("nvmlSystemGetDriverVersion", api.SystemGetDriverVersion);
  library.find("nvmlSystemGetNVMLVersion", api.SystemGetNVMLVersion);
  library.find("nvmlSystemGetCudaDriverVersion_v2", api.SystemGetCudaDriverVersion_v2);
  library.find("nvmlDeviceGetCount_v2", api.DeviceGetCount_v2);
  library.find("nvmlDeviceGetHandleByIndex_v2", api.DeviceGetHandleByIndex_v2);
  library.find("nvmlDeviceGetHandleByUUID", api.DeviceGetHandleByUUID);
  library.find("nvmlDeviceGetName", api.DeviceGetName);
  library.find("nvmlDeviceGetUUID", api.DeviceGetUUID);
  library.find("nvmlDeviceGetPciInfo_v3", api.DeviceGetPciInfo_v3);
  library.find("nvmlDeviceGetCudaComputeCapability", api.DeviceGetCudaComputeCapability);
  library.find("nvmlDeviceGetMemoryInfo", api.DeviceGetMemoryInfo);
  library.find("nvmlDeviceGetMemoryInfo_v2", api.DeviceGetMemoryInfo_v2);
  library.find("nvmlDeviceGetUtilizationRates", api.DeviceGetUtilizationRates);
  library.find("nvmlDeviceGetTemperature", api.DeviceGetTemperature);
  library.find("nvmlDeviceGetPowerUsage", api.DeviceGetPowerUsage);
  library.find("nvmlDeviceGetEnforcedPowerLimit", api.DeviceGetEnforcedPowerLimit);
  library.find("nvmlDeviceGetComputeRunningProcesses_v2", api.DeviceGetComputeRunningProcesses_v2);
  library.find("nvmlDeviceGetComputeRunningProcesses_v3", api.DeviceGetComputeRunningProcesses_v3);
  library.find("nvmlDeviceGetTopologyCommonAncestor", api.DeviceGetTopologyCommonAncestor);
  library.find("nvmlDeviceGetP2PStatus", api.DeviceGetP2PStatus);
  library.find("nvmlDeviceGetNvLinkState", api.DeviceGetNvLinkState);
  library.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", api.DeviceGetNvLinkRemotePciInfo_v2);
  library.find("nvmlDeviceGetNvLinkRemoteDeviceType", api.DeviceGetNvLinkRemoteDeviceType);
}

}  // namespace

Library::Library() : file_(runtime::library_path("LOCKSTEP_NVML_LIBRARY", "libnvidia-ml.so.1")) {
  if (!file_.is_loaded()) {
    problem_ = fmt::format("no NVML: {} (it comes with NVIDIA's driver)", file_.problem());
    return;
  }
  find_all(file_, api_);
  // Without these there is no GPU to ask anything else about. Every library since 2013 has them.
  if (!api_.Init_v2 || !api_.Shutdown || !api_.DeviceGetCount_v2 ||
      !api_.DeviceGetHandleByIndex_v2) {
    problem_ =
        fmt::format("no NVML: {} lacks nvmlInit_v2 or the functions that list GPUs", file_.path());
    return;
  }
  const Result result = api_.Init_v2();
  is_initialised_ = result == kSuccess;
  if (!is_initialised_) {
    problem_ = fmt::format("no NVML: nvmlInit_v2 says '{}'", describe(result));
  }
}

Library::~Library() {
  if (is_initialised_) api_.Shutdown();
}

std::string Library::describe(Result result) const {
  if (api_.ErrorString != nullptr) return api_.ErrorString(result);
  return fmt::format("error {}", static_cast<int>(result));
}

}  // namespace lockstep::nvml
