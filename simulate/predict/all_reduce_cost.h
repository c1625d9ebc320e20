// The cost of an all-reduce over the first devices of a topology: by NCCL's model, or by charging
// the plan that the engine would run.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "engine/plan/all_reduce_plan.h"
#include "simulate/predict/network.h"

namespace lockstep::predict {

// NCCL's time for an all-reduce, by the model with which NCCL itself chooses among its algorithms
// (ring, tree, NVLS) and protocols (LL, LL128, Simple), so it is piecewise in the size. The
// predictor takes the fastest, as NCCL does.
//
//   ring:  base + (2(n-1) - 2(h-1)) * step_intra + 2(h-1) * step_network + bytes / bandwidth
//   tree:  base + 2 * ((n/h-1) * step_intra + log2(h) * step_network) + bytes / bandwidth
//   NVLS:  25 us + bytes / bandwidth
//   n ranks on h hosts. If links' files give a longer latency than usual, the excess is added to a
//   step
// bandwidth: ring n/(2(n-1)) * bus; tree bus / 2; of LL a quarter (tree 1/3.8), of LL128 92 % (tree
// 7/9 on one host), trees 90 %; trees of middle sizes times NCCL's correction factors.
//
// Source: ncclTopoTuneModel and ncclTopoGetAlgoTime in NCCL's src/graph/tuning.cc (2.8 for the
// factors, 2.30 for the latencies).
enum class NcclAlgorithm { automatic, ring, nvls };

// The ranks of a communicator, as NCCL sees them.
struct NcclGroup {
  std::size_t num_ranks = 1;
  std::size_t num_hosts = 1;
  bool over_nvlink = false;
  bool has_ll128 = false;             // NVLink from Volta on
  double bus_bytes_per_second = 0;    // the ring's rate
  double chain_bytes_per_second = 0;  // the same without the way from the last rank to the first
  double nvls_bytes_per_second = 0;   // algorithm bandwidth; 0: no NVLS
  // Added to NCCL's constants for links' latencies: per step within a host, and between hosts.
  double extra_step_seconds = 0;
  double extra_network_seconds = 0;
};

// The first num_devices devices. Within a host: NVLink through a switch, or as many rings as the
// NVLinks allow (nvlink_ring_bytes_per_second), or else the ring over PCIe in the order of the
// devices, with its shared links. Between hosts: at most their network ports. NVLS: on one host
// with an NVSwitch of Hopper, for 5 ranks and more; 2 to 4 follow the ring (published H200 tables:
// 4 ranks 363, without NVLS 366 GB/s).
NcclGroup nccl_group(Network& network, std::size_t num_devices);

// 0 for one rank or no bytes.
double nccl_all_reduce_seconds(const NcclGroup& group, double num_bytes,
                               NcclAlgorithm algorithm = NcclAlgorithm::automatic);

// A reduce-scatter, or an all-gather, of so many bytes over all ranks together. NCCL has only rings
// for them (tuning.cc passes over trees), which take n-1 steps, h-1 of them between hosts. NVLS is
// left out: sums in the switch halve an all-reduce's bytes, but a device has to receive all of an
// all-gather's.
double nccl_half_seconds(const NcclGroup& group, double num_bytes);

// A broadcast, or a reduction to one rank: along the ring, which is then a chain, all bytes once,
// in n steps. Source: ncclTopoTuneModel.
double nccl_rooted_seconds(const NcclGroup& group, double num_bytes);

// NCCL 1, which ignored the topology: one ring in the order of the devices, with a hop over NVLink
// if two neighbours have one. On a DGX-1 the ring of eight leaves NVLink between 3 and 4, and
// between 7 and 0. Latency: a step of NCCL's Simple protocol.
double nccl1_ring_bytes_per_second(Network& network, std::size_t num_devices);
double nccl1_all_reduce_seconds(double ring_bytes_per_second, std::size_t num_ranks,
                                double num_bytes);

// The bandwidth of a ring all-reduce over NVLinks between GPUs without a switch. A cycle through
// all GPUs takes two links of each and makes two rings, one for each direction, so there are as
// many cycles as the GPU with the fewest links allows: for any first GPUs of a DGX-1 that is what a
// search finds (NCCL's src/graph/search.cc), such as four rings of 18 GB/s (P100) or six of 20
// (V100) for all eight.
// links[i][j]: bytes per second from GPU i to GPU j over their own links, 0 without one; symmetric.
// Returns the bytes that each GPU sends per second, over all rings together; 0 if a GPU has links
// to fewer than two others, or none lead from one to another.
double nvlink_ring_bytes_per_second(const std::vector<std::vector<double>>& links);

class AllReduceCost {
 public:
  // plan: the engine's own; empty: NCCL. network must outlive the object.
  AllReduceCost(Network& network, std::size_t num_devices, std::optional<plan::AllReducePlan> plan);

  // For float32 elements. An engine's plan is charged once per size.
  double seconds(std::size_t num_bytes);

 private:
  Network& network_;
  std::size_t num_devices_;
  std::optional<plan::AllReducePlan> plan_;
  NcclGroup group_;
  std::map<std::size_t, double> known_;  // keyed by bytes
};

// The links' charge for the engine's own plan; automatic: for the plan that it would choose.
double own_plan_seconds(Network& network, std::size_t num_devices, plan::AllReducePlan plan,
                        std::size_t num_bytes);

}  // namespace lockstep::predict
