// What an audit says of a replica's plain members: those that forward() writes are lost with it.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/nn/module.h"

namespace lockstep::parallel {

// Keeps a replica's bytes as they are, of it and of all modules in it. Parameters, buffers and
// children stand outside of the object, so what differs afterwards is a member.
class LostMembers {
 public:
  LostMembers(const nn::Module& replica, Device device);
  // Records each module that was written to meanwhile.
  void note() const;

 private:
  struct Kept {
    const nn::Module* module = nullptr;
    std::vector<std::byte> bytes;
  };
  void keep(const nn::Module& module);

  Device device_;
  std::vector<Kept> kept_;
};

}  // namespace lockstep::parallel
