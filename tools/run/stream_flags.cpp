#include "tools/run/stream_flags.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "tools/cli/numbers.h"

namespace lockstep::tools {
namespace {

using launch::Streams;

Streams parse_stream(const char* flag, std::string_view text) {
  require(text.size() == 1 && text[0] >= '0' && text[0] <= '3', ErrorCode::Usage, flag,
          "expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list as in 0:3,1:2 (local "
          "rank:streams), found '{}'",
          text);
  return static_cast<Streams>(text[0] - '0');
}

// "3" for all ranks, or "0:3,1:2" for some.
std::vector<Streams> parse_streams(const char* flag, const std::string& text, int num_ranks) {
  if (text.find(':') == std::string::npos) {
    const Streams streams = text.empty() ? Streams::none : parse_stream(flag, text);
    return std::vector<Streams>(static_cast<std::size_t>(num_ranks), streams);
  }
  std::vector<Streams> result(static_cast<std::size_t>(num_ranks), Streams::none);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const std::vector<std::size_t> ranks = parse_list(flag, entry.substr(0, colon));
    require(ranks.size() == 1 && ranks[0] < result.size(), ErrorCode::Usage, flag,
            "expected local ranks below {}, found '{}'", num_ranks, entry);
    result[ranks[0]] =
        parse_stream(flag, std::string_view(entry).substr(std::min(colon + 1, entry.size())));
    begin = end + 1;
  }
  return result;
}

}  // namespace

void set_streams(launch::LaunchOptions& options, const RunFlags& flags) {
  const int num_ranks = options.num_ranks;
  options.redirects = parse_streams("--redirects", flags.redirects, num_ranks);
  options.tee = parse_streams("--tee", flags.tee, num_ranks);
  // A folder for logs, and nothing said about what goes there: all of it, and the console too.
  if (!flags.log_dir.empty() && flags.redirects.empty() && flags.tee.empty()) {
    options.tee = parse_streams("--tee", "3", num_ranks);
  }
  if (!flags.local_ranks_filter.empty()) {
    for (const std::size_t rank : parse_list("--local-ranks-filter", flags.local_ranks_filter)) {
      require(rank < static_cast<std::size_t>(num_ranks), ErrorCode::Usage, "--local-ranks-filter",
              "expected local ranks below {}, found {}", num_ranks, rank);
      options.console_filter.push_back(static_cast<int>(rank));
    }
  }
}

bool has_logs(const launch::LaunchOptions& options) {
  const auto is_any = [](Streams streams) { return streams != Streams::none; };
  return std::ranges::any_of(options.redirects, is_any) || std::ranges::any_of(options.tee, is_any);
}

std::string make_log_folder(const RunFlags& flags) {
  const std::string base = flags.log_dir.empty() ? "/tmp" : flags.log_dir;
  std::error_code problem;
  std::filesystem::create_directories(base, problem);
  std::string folder =
      fmt::format("{}/{}_XXXXXX", base, flags.log_dir.empty() ? "lockstep" : flags.rdzv_id);
  const bool is_made = !problem && ::mkdtemp(folder.data()) != nullptr;
  require(is_made, ErrorCode::Io, "--log-dir", "cannot make a folder in {}: {}", base,
          problem ? problem.message() : std::generic_category().message(errno));
  return folder;
}

}  // namespace lockstep::tools
