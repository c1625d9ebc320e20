#include "engine/runtime/logical_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/recorder.h"

namespace lockstep::runtime {
namespace {

TEST(LogicalDevices, SixtyFourCpuDevicesExist) {
  ASSERT_EQ(num_devices(DeviceType::cpu), 64);
  std::set<void*> parts;
  for (int i = 0; i < 64; ++i) {
    LogicalDevice& device = logical_device({DeviceType::cpu, i});
    EXPECT_EQ(device.device(), (Device{DeviceType::cpu, i}));
    EXPECT_EQ(&device, &logical_device({DeviceType::cpu, i}));
    for (void* part :
         {static_cast<void*>(&device.memory()), static_cast<void*>(&device.threads()),
          static_cast<void*>(&device.compute_stream()), static_cast<void*>(&device.comm_stream()),
          static_cast<void*>(&device.worker())}) {
      EXPECT_TRUE(parts.insert(part).second);
    }
  }
}

TEST(LogicalDevices, MemoryIsSampledWhenAPhaseEnds) {
  LogicalDevice& device = logical_device({DeviceType::cpu, 32});
  Stream& stream = device.compute_stream();
  const auto run_phases = [&stream] {
    const trace::TrackScope track(7);
    const WorkSpan forward(stream, trace::Lane::compute, trace::Category::forward, "forward");
    const WorkSpan copy(stream, trace::Lane::copy, trace::Category::copy, "to another device");
  };
  const auto block = device.memory().allocate(4096);
  run_phases();
  trace::start();
  run_phases();
  trace::stop();
  device.memory().release(block);
  const trace::Recording recording = trace::collect();
  ASSERT_EQ(recording.memory.size(), 1u);
  const trace::Sample& sample = recording.memory[0];
  EXPECT_EQ(sample.num_bytes, 4096u);
  EXPECT_EQ(sample.rank, 7);
  EXPECT_GE(sample.time_ns, recording.spans.at(0).begin_ns);
  EXPECT_LE(sample.time_ns, recording.spans[0].end_ns);
}

TEST(LogicalDevices, ANameBeyondTheLastSaysWhichExist) {
  for (const int index : {64, 1000, -1}) {
    try {
      logical_device({DeviceType::cpu, index});
      ADD_FAILURE() << index;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Device);
      EXPECT_THAT(error.what(), testing::HasSubstr("cpu:63"));
    }
  }
}

TEST(LogicalDevices, ThreadsPerDeviceReachesOldAndNewDevices) {
  LogicalDevice& old = logical_device({DeviceType::cpu, 0});
  const std::size_t before = threads_per_device();
  set_threads_per_device(3);
  EXPECT_EQ(threads_per_device(), 3u);
  EXPECT_EQ(old.threads().num_threads(), 3u);
  EXPECT_EQ(logical_device({DeviceType::cpu, 32}).threads().num_threads(), 3u);
  set_threads_per_device(before);
  EXPECT_EQ(old.threads().num_threads(), before);
  EXPECT_THROW(set_threads_per_device(0), Error);
  EXPECT_GE(num_cores(), 1u);
}

TEST(LogicalDevices, ManyThreadsMayNameTheSameDeviceFirst) {
  std::vector<std::thread> threads;
  std::array<LogicalDevice*, 8> found{};
  for (std::size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] { found[i] = &logical_device({DeviceType::cpu, 33}); });
  }
  for (auto& thread : threads) thread.join();
  for (const LogicalDevice* device : found) EXPECT_EQ(device, found[0]);
}

}  // namespace
}  // namespace lockstep::runtime
