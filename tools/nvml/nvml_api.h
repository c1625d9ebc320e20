// The part of NVML's binary interface that Lockstep calls. NVML is NVIDIA's management library,
// which comes with the driver and provides nvidia-smi's facts.
//
// It is declared here, so that no build needs NVIDIA's header; the library itself is loaded at run
// time (nvml.h). Names, layouts and numbers follow the NVML API Reference,
// docs.nvidia.com/deploy/nvml-api; functions and structs keep their version suffix, because it
// fixes their layout.
#pragma once

namespace lockstep::nvml {

// nvmlReturn_t. nvmlErrorString describes all other values.
enum Result : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kInsufficientSize = 7,
  kFunctionNotFound = 13,
};

using DeviceHandle = struct OpaqueDevice*;  // nvmlDevice_t

inline constexpr unsigned kTextBytes = 96;   // NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest text
inline constexpr unsigned kMaxNvLinks = 36;  // NVML_NVLINK_MAX_LINKS
inline constexpr unsigned long long kValueNotAvailable = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

struct MemoryV2 {  // nvmlMemory_v2_t, in bytes
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;  // what the driver keeps for itself
  unsigned long long free;
  unsigned long long used;
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2u << 24;  // nvmlMemory_v2

struct Utilization {  // nvmlUtilization_t, in percent of the last sample period
  unsigned gpu;
  unsigned memory;
};

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];  // "00000000:3B:00.0"
};

struct ProcessInfo {  // nvmlProcessInfo_v2_t, which the function _v3 fills
  unsigned pid;
  unsigned long long used_memory;  // bytes, or kValueNotAvailable
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

static_assert(sizeof(MemoryV2) == 40 && sizeof(PciInfo) == 68 && sizeof(ProcessInfo) == 24);

// nvmlGpuTopologyLevel_t: the closest thing that the PCIe paths of two GPUs have in common.
enum TopologyLevel : int {
  kTopologyInternal = 0,     // one board
  kTopologySingle = 10,      // one PCIe switch
  kTopologyMultiple = 20,    // several PCIe switches, no host bridge
  kTopologyHostBridge = 30,  // a host bridge
  kTopologyNode = 40,        // a NUMA node
  kTopologySystem = 50,      // only the interconnect of the CPU sockets
};

enum TemperatureSensor : int { kTemperatureGpu = 0 };           // nvmlTemperatureSensors_t
enum P2PCapability : int { kP2PRead = 0 };                      // nvmlGpuP2PCapsIndex_t
enum P2PStatus : int { kP2POk = 0 };                            // nvmlGpuP2PStatus_t
enum EnableState : int { kDisabled = 0, kEnabled = 1 };         // nvmlEnableState_t
enum NvLinkRemote : int { kRemoteGpu = 0, kRemoteSwitch = 2 };  // nvmlIntNvLinkDeviceType_t

}  // namespace lockstep::nvml
