// How the ranks of an NCCL group find each other, before NCCL is called.
#pragma once

#include <nccl.h>

#include <string>

#include "engine/comm/nccl/nccl_group.h"

namespace lockstep::comm::nccl {

struct Meeting {
  ncclUniqueId id{};
  bool shares_gpus = false;  // at least two ranks are on one
};

// "nccl/<group>/<what>": where the group keeps something in the store.
std::string key_of(const NcclGroupOptions& options, std::string_view what);

// Shows this rank's card and returns what rank 0 made of all cards. Throws as
// make_nccl_communicator says.
Meeting meet(const NcclGroupOptions& options, const std::string& gpu_uuid);

// NCCL's id as a value of the store.
std::string to_text(const ncclUniqueId& id);
ncclUniqueId parse_unique_id(const std::string& text);

}  // namespace lockstep::comm::nccl
