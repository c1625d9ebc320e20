// Spans of a GPU's streams.
#include "engine/runtime/device_span.h"

#include <map>
#include <utility>

#include "engine/trace/recorder.h"
#include "kernels/calls.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

using trace::Category;
using trace::Lane;

class DeviceSpans : public CudaTest {
 protected:
  void TearDown() override {
    trace::stop();
    trace::start();  // forgets what this test recorded
    trace::stop();
  }
  static std::vector<trace::Span> recorded() {
    record_device_spans();
    trace::stop();
    return trace::collect().spans;
  }
  static void work(Device device = kFirst) { Tensor::full({100}, 1, DType::float32, device); }
};

TEST_F(DeviceSpans, TimeTheWorkAndNotItsSubmission) {
  trace::start();
  Gate gate;
  {
    DeviceSpan span(compute(), Lane::compute, Category::forward, "held up");
    gate.block(compute());
  }
  const auto other = compute(kSibling).record_timed();
  other->wait();
  gate.open();
  const auto spans = recorded();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_GE(spans[0].end_ns, other->passed_at_ns()) << "it ended when the gate was opened";
}

TEST_F(DeviceSpans, OfManyStepsAndDevicesAreAllRecorded) {
  constexpr std::size_t kNumSteps = 150;  // more than wait at any time
  trace::start();
  for (std::size_t step = 0; step < kNumSteps; ++step) {
    for (const Device device : {kFirst, kSibling, kOther}) {
      const trace::TrackScope track(device.index);
      const DeviceSpan span(compute(device), Lane::compute, Category::step, "step");
      work(device);
    }
  }
  std::map<int, std::pair<std::size_t, std::int64_t>> seen;  // device -> spans, the last one's end
  for (const trace::Span& span : recorded()) {
    auto& [count, last_end] = seen[span.rank];
    ++count;
    EXPECT_GE(span.begin_ns, last_end);
    last_end = span.end_ns;
  }
  for (const Device device : {kFirst, kSibling, kOther}) {
    EXPECT_EQ(seen[device.index].first, kNumSteps) << to_string(device);
  }
}

TEST_F(DeviceSpans, AKernelsFaultLosesNoneAfterIt) {
  const Tensor source = Tensor::zeros({4, 2}, DType::float32, kFirst);
  const Tensor rows = Tensor::from(std::vector<std::int64_t>{4}, {1}, kFirst);
  const Tensor to = Tensor::empty({1, 2}, DType::float32, kFirst);
  trace::start();
  {
    DeviceSpan span(compute(), Lane::compute, Category::op, "gather");
    source.backend().gather_rows(compute(), {source.matrix(), rows.view(), to.matrix(), 1});
  }
  expect_error(ErrorCode::Shape, "row 4", [] { record_device_spans(); });
  EXPECT_EQ(recorded().size(), 1u);
}

}  // namespace
}  // namespace lockstep::runtime
