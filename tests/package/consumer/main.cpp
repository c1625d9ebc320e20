// Uses the installed library as any other project would: headers under engine/, one umbrella
// target.
#include <iostream>

#include "engine/core/device.h"
#include "engine/core/error.h"
#include "engine/core/rng.h"

int main() {
  const auto devices = lockstep::devices_of(lockstep::DeviceType::cpu, {0, 3});
  const auto order = lockstep::random_permutation(10, 7);
  std::cout << lockstep::to_string(devices.back()) << ' ' << order.size() << '\n';
  try {
    lockstep::parse_device("tpu:0");
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 1;
}
