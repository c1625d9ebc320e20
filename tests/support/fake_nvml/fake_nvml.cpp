// A library that says what NVML would say on a machine described in a file: so that everything
// built on NVML is tested without a GPU.
//
// The JSON file is named by LOCKSTEP_FAKE_NVML and is read anew for every call; a test that
// replaces it changes the machine under a running program. What a GPU of the file does not have is
// "Not Supported". See fake_machine.h, which writes such files.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/nvml/nvml_api.h"

namespace {

using namespace lockstep::nvml;
using nlohmann::json;

constexpr Result kUnknownError = static_cast<Result>(999);
constexpr Result kNotFound = static_cast<Result>(6);

json machine() {
  const char* path = std::getenv("LOCKSTEP_FAKE_NVML");
  std::ifstream file(path != nullptr ? path : "");
  return json::parse(file, nullptr, false);
}

// A handle is the GPU's number plus one, in the shape of a pointer; a slice's is 1000 times its own
// number plus one more.
DeviceHandle handle_of(std::size_t index) {
  return reinterpret_cast<DeviceHandle>(index + 1);
}
std::size_t index_of(DeviceHandle gpu) {
  return (reinterpret_cast<std::size_t>(gpu) - 1) % 1000;
}

// The member `key` of a GPU; null when the file does not tell.
json value(DeviceHandle gpu, const char* key) {
  return machine()["gpus"][index_of(gpu)].value(key, json());
}

Result copy_text(const json& text, char* buffer, unsigned length) {
  if (!text.is_string()) return kNotSupported;
  std::snprintf(buffer, length, "%s", text.get<std::string>().c_str());
  return kSuccess;
}

template <typename Number>
Result copy_number(const json& number, Number* result) {
  if (!number.is_number()) return kNotSupported;
  *result = number.get<Number>();
  return kSuccess;
}

Result copy_processes(DeviceHandle gpu, unsigned* count, ProcessInfo* infos) {
  const json processes = value(gpu, "processes");
  if (!processes.is_array()) return kNotSupported;
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (room < *count) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i) {
    infos[i] = ProcessInfo{processes[i]["pid"], processes[i].value("memory", kValueNotAvailable),
                           ~0u, ~0u};
  }
  return kSuccess;
}

}  // namespace

extern "C" {

Result nvmlInit_v2() {
  const json description = machine();
  if (description.is_discarded()) return kUnknownError;
  return static_cast<Result>(description.value("init", 0));
}

Result nvmlShutdown() {
  return kSuccess;
}

const char* nvmlErrorString(Result result) {
  return result == 9 ? "Driver Not Loaded" : "Unknown Error";
}

Result nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return copy_text(machine().value("driver", json()), version, length);
}

Result nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return copy_text(machine().value("nvml", json()), version, length);
}

Result nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine()["gpus"].size());
  return kSuccess;
}

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle* gpu) {
  if (index >= machine()["gpus"].size()) return kInvalidArgument;
  *gpu = handle_of(index);
  return kSuccess;
}

Result nvmlDeviceGetHandleByUUID(const char* uuid, DeviceHandle* gpu) {
  const json gpus = machine()["gpus"];
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i]["uuid"] != uuid) continue;
    *gpu = handle_of(i);
    return kSuccess;
  }
  return kNotFound;
}

Result nvmlDeviceGetName(DeviceHandle gpu, char* name, unsigned length) {
  return copy_text(value(gpu, "name"), name, length);
}

Result nvmlDeviceGetUUID(DeviceHandle gpu, char* uuid, unsigned length) {
  const std::size_t slice = reinterpret_cast<std::size_t>(gpu) / 1000;
  return copy_text(slice > 0 ? value(gpu, "slices")[slice - 1] : value(gpu, "uuid"), uuid, length);
}

Result nvmlDeviceGetMaxMigDeviceCount(DeviceHandle, unsigned* count) {
  *count = 7;
  return kSuccess;
}

Result nvmlDeviceGetMigDeviceHandleByIndex(DeviceHandle gpu, unsigned index, DeviceHandle* slice) {
  if (index >= value(gpu, "slices").size()) return kNotFound;
  *slice = reinterpret_cast<DeviceHandle>(reinterpret_cast<std::size_t>(gpu) + 1000 * (index + 1));
  return kSuccess;
}

Result nvmlDeviceGetPciInfo_v3(DeviceHandle gpu, PciInfo* pci) {
  *pci = {};
  return copy_text(value(gpu, "pci"), pci->bus_id, sizeof(pci->bus_id));
}

Result nvmlDeviceGetUtilizationRates(DeviceHandle gpu, Utilization* utilization) {
  utilization->memory = 0;
  return copy_number(value(gpu, "utilization"), &utilization->gpu);
}

Result nvmlDeviceGetTemperature(DeviceHandle gpu, TemperatureSensor, unsigned* celsius) {
  return copy_number(value(gpu, "temperature"), celsius);
}

Result nvmlDeviceGetPowerUsage(DeviceHandle gpu, unsigned* milliwatts) {
  return copy_number(value(gpu, "power_milliwatts"), milliwatts);
}

}  // extern "C"

namespace {

// The entry of a square matrix such as "p2p".
json between(const char* key, DeviceHandle a, DeviceHandle b) {
  const json matrix = machine().value(key, json());
  return matrix.is_array() ? matrix[index_of(a)][index_of(b)] : json();
}

// "nvlinks" of a GPU lists where each link ends: a PCI bus id, "switch", or "" for an inactive one.
json nvlink(DeviceHandle gpu, unsigned link) {
  const json links = value(gpu, "nvlinks");
  return links.is_array() && link < links.size() ? links[link] : json();
}

}  // namespace

extern "C" {

Result nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return copy_number(machine().value("cuda", json()), version);
}

Result nvmlDeviceGetCudaComputeCapability(DeviceHandle gpu, int* major, int* minor) {
  const json capability = value(gpu, "compute_capability");
  if (!capability.is_array()) return kNotSupported;
  *major = capability[0];
  *minor = capability[1];
  return kSuccess;
}

Result nvmlDeviceGetMemoryInfo_v2(DeviceHandle gpu, MemoryV2* memory) {
  if (memory->version != kMemoryV2) return kInvalidArgument;
  const json sizes = value(gpu, "memory");
  if (!sizes.is_object()) return kNotSupported;
  memory->total = sizes["total"];
  memory->used = sizes["used"];
  memory->reserved = sizes.value("reserved", 0ull);
  memory->free = memory->total - memory->used - memory->reserved;
  return kSuccess;
}

Result nvmlDeviceGetEnforcedPowerLimit(DeviceHandle gpu, unsigned* milliwatts) {
  return copy_number(value(gpu, "power_limit_milliwatts"), milliwatts);
}

Result nvmlDeviceGetComputeRunningProcesses_v3(DeviceHandle gpu, unsigned* count,
                                               ProcessInfo* infos) {
  return copy_processes(gpu, count, infos);
}

Result nvmlDeviceGetTopologyCommonAncestor(DeviceHandle a, DeviceHandle b, TopologyLevel* level) {
  int number = 0;
  const Result result = copy_number(between("topology", a, b), &number);
  *level = static_cast<TopologyLevel>(number);
  return result;
}

Result nvmlDeviceGetP2PStatus(DeviceHandle a, DeviceHandle b, P2PCapability, P2PStatus* status) {
  int number = 0;
  const Result result = copy_number(between("p2p", a, b), &number);
  *status = static_cast<P2PStatus>(number);
  return result;
}

Result nvmlDeviceGetNvLinkState(DeviceHandle gpu, unsigned link, EnableState* state) {
  const json end = nvlink(gpu, link);
  if (!end.is_string()) return kInvalidArgument;
  *state = end == "" ? kDisabled : kEnabled;
  return kSuccess;
}

Result nvmlDeviceGetNvLinkRemoteDeviceType(DeviceHandle gpu, unsigned link, NvLinkRemote* remote) {
  *remote = nvlink(gpu, link) == "switch" ? kRemoteSwitch : kRemoteGpu;
  return kSuccess;
}

Result nvmlDeviceGetNvLinkRemotePciInfo_v2(DeviceHandle gpu, unsigned link, PciInfo* pci) {
  *pci = {};
  return copy_text(nvlink(gpu, link), pci->bus_id, sizeof(pci->bus_id));
}

}  // extern "C"
