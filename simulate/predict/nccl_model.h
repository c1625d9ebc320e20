// How long NCCL takes for an all-reduce: the model by which NCCL itself chooses among its
// algorithms (ring, tree, NVLS) and protocols (LL, LL128, Simple), which makes it piecewise in the
// size. The predictor takes the fastest, as NCCL does.
//
//   ring:  base + (2(n-1) - 2(h-1)) * step_intra + 2(h-1) * step_network + bytes / bandwidth
//   tree:  base + 2 * ((n/h-1) * step_intra + log2(h) * step_network) + bytes / bandwidth
//   NVLS:  25 us + bytes / bandwidth
//   n ranks on h hosts; to a step over links whose files say a longer latency than usual, what it
//   is longer is added
// bandwidth: ring n/(2(n-1)) * bus; tree bus / 2; of LL a quarter (tree 1/3.8), of LL128 92 %
// (tree 7/9 on one host), trees 90 %; trees of middle sizes times NCCL's correction factors.
//
// Source: ncclTopoTuneModel and ncclTopoGetAlgoTime in NCCL's src/graph/tuning.cc (2.8 for the
// factors, 2.30 for the latencies).
#pragma once

#include <cstddef>

#include "simulate/predict/network.h"

namespace lockstep::predict {

enum class NcclAlgorithm { automatic, ring, nvls };

// The ranks of a communicator, as NCCL sees them.
struct NcclGroup {
  std::size_t num_ranks = 1;
  std::size_t num_hosts = 1;
  bool over_nvlink = false;
  bool has_ll128 = false;            // NVLink from Volta on
  double bus_bytes_per_second = 0;   // of the ring
  double nvls_bytes_per_second = 0;  // algorithm bandwidth; 0: no NVLS
  // Beyond NCCL's constants, of the links' latencies: of a step within a host, between hosts.
  double extra_step_seconds = 0;
  double extra_network_seconds = 0;
};

// The first num_devices devices. Within a host: NVLink through a switch, or as many rings as the
// NVLinks allow (nvlink_rings.h), or else the ring over PCIe in the order of the devices, with what
// it shares. Between hosts: not more than their network ports.
// NVLS: on one host with an NVSwitch of Hopper, for 5 ranks and more; 2 to 4 follow the ring
// (published H200 tables: 4 ranks 363, without NVLS 366 GB/s).
NcclGroup nccl_group(Network& network, std::size_t num_devices);

// 0 for one rank or no bytes.
double nccl_all_reduce_seconds(const NcclGroup& group, double num_bytes,
                               NcclAlgorithm algorithm = NcclAlgorithm::automatic);

// NCCL 1, before it looked at the topology: one ring in the order of the devices, a hop over NVLink
// where two neighbours have one. On a DGX-1 the ring of eight leaves NVLink between 3 and 4, and
// between 7 and 0. Latency: a step of NCCL's Simple protocol.
double nccl1_ring_bytes_per_second(Network& network, std::size_t num_devices);
double nccl1_all_reduce_seconds(double ring_bytes_per_second, std::size_t num_ranks,
                                double num_bytes);

}  // namespace lockstep::predict
