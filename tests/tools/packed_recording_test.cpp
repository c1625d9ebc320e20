// Recordings of several processes as one.
#include "tools/report/trace_file.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/expect_error.h"

namespace lockstep::tools {
namespace {

trace::Span span(const char* name, std::int64_t begin_ns, std::int64_t end_ns, int rank) {
  trace::Span result;
  result.name = name;
  result.begin_ns = begin_ns;
  result.end_ns = end_ns;
  result.rank = rank;
  return result;
}

trace::Recording recording_of(int rank) {
  trace::Recording recording;
  recording.spans = {span("step", 10 + rank, 90, rank), span("linear", 20, 30, rank),
                     span("step", 95, 99, rank)};
  recording.memory = {{40 - rank, 4096, rank}, {50, 512, rank}};
  recording.num_dropped = 4;
  return recording;
}

TEST(PackedRecording, ComesBackAsItWas) {
  const trace::Recording before = recording_of(1);
  const trace::Recording after = unpack_recording(pack_recording(before));
  ASSERT_EQ(after.spans.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_STREQ(after.spans[i].name, before.spans[i].name);
    EXPECT_EQ(after.spans[i].begin_ns, before.spans[i].begin_ns);
    EXPECT_EQ(after.spans[i].end_ns, before.spans[i].end_ns);
    EXPECT_EQ(after.spans[i].rank, 1);
  }
  ASSERT_EQ(after.memory.size(), 2u);
  EXPECT_EQ(after.memory[0].time_ns, 39);
  EXPECT_EQ(after.memory[0].num_bytes, 4096u);
  EXPECT_EQ(after.memory[1].rank, 1);
  EXPECT_EQ(after.num_dropped, 4u);
}

TEST(PackedRecording, EveryCutIsFound) {
  const std::string bytes = pack_recording(recording_of(0));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    lockstep::testing::expect_error(ErrorCode::Io, "recording of a rank", [&] {
      unpack_recording(std::string_view(bytes).substr(0, size));
    });
  }
}

// A step's breakdown is made of one thread's spans, so threads of two processes must not share a
// number.
TEST(MergedRecording, NumbersThreadsAnew) {
  trace::Recording first = recording_of(0);
  first.spans[1].thread = 1;
  first.spans[2].thread = trace::kDeviceThread;
  trace::Recording second = recording_of(1);
  const trace::Recording all = merge_recordings({first, second});
  std::set<std::pair<int, std::uint32_t>> threads;
  for (const trace::Span& span : all.spans) threads.insert({span.rank, span.thread});
  EXPECT_EQ(threads, (std::set<std::pair<int, std::uint32_t>>{
                         {0, 0}, {0, 1}, {0, trace::kDeviceThread}, {1, 2}}));
}

TEST(MergedRecording, IsInTheOrderOfARecording) {
  const trace::Recording all = merge_recordings({recording_of(0), recording_of(1)});
  ASSERT_EQ(all.spans.size(), 6u);
  EXPECT_EQ(all.num_dropped, 8u);
  for (std::size_t i = 1; i < 6; ++i) {
    EXPECT_LE(all.spans[i - 1].begin_ns, all.spans[i].begin_ns);
  }
  std::vector<int> ranks_of_samples;
  for (const trace::Sample& sample : all.memory) ranks_of_samples.push_back(sample.rank);
  EXPECT_EQ(ranks_of_samples, (std::vector<int>{1, 0, 0, 1})) << "by time";
}

}  // namespace
}  // namespace lockstep::tools
