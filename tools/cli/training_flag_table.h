// The table of the training flags: each is written there once. Parsing and --help, flags without an
// effect, the run file, what ranks must have alike, and the flags of a row of `compare` that other
// processes train are made of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/cli/training_flags.h"

namespace lockstep::tools {

struct FlagSetting;   // tools/cli/idle_flags.h
struct TrainingTask;  // tools/training/task.h

// Where a value is kept. Those of RankFlags are flags of bench all-reduce too.
using FlagMember =
    std::variant<std::string RankFlags::*, double RankFlags::*, bool RankFlags::*,
                 std::string TrainingFlags::*, double TrainingFlags::*, bool TrainingFlags::*,
                 int TrainingFlags::*, std::uint64_t TrainingFlags::*,
                 std::optional<int> TrainingFlags::*, std::optional<double> TrainingFlags::*>;

// Where a flag has no effect beside the others.
struct IdleRule {
  bool (*is_idle)(const FlagSetting& setting);
  std::string_view reason;  // why, and what to do
};

struct FlagRules {
  std::vector<std::string> one_of = {};  // no other value is taken
  // Flags that stand before it in the table.
  std::string excludes = {};
  std::string needs = {};
  enum class Commands { train_and_compare, train } commands = Commands::train_and_compare;
  enum class Ranks { alike, each_its_own } ranks = Ranks::alike;
  std::vector<IdleRule> idle = {};
  // In the run file; empty: not there. Absent: the key.
  std::optional<std::string> recorded_as = std::nullopt;
  // The value there; none: what was said, null where nothing was.
  nlohmann::json (*resolve)(const TrainingFlags& flags, const TrainingTask& task) = nullptr;
};

struct TrainingFlag {
  std::string name;  // "--per-device-batch"
  FlagMember member;
  std::string help;
  FlagRules rules = {};

  std::string key() const;  // "per_device_batch"
};

// In the order of --help and of the run file.
std::span<const TrainingFlag> training_flags();

}  // namespace lockstep::tools
