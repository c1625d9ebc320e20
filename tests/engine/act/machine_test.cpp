#include "engine/act/machine.h"

#include <gtest/gtest.h>

namespace lockstep::act {
namespace {

TEST(Machine, Placeholder) {}

}  // namespace
}  // namespace lockstep::act
