#include "tools/report/row_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace lockstep::tools {
namespace {

TrainingTask task_of(std::size_t num_rows, std::size_t batch, std::size_t num_steps) {
  auto data = std::make_shared<datasets::Dataset>();
  data->train = datasets::make_synthetic_rows({num_rows, 2, 2}, 0, 0);
  TrainingTask task;
  task.data = std::move(data);
  task.batch = batch;
  task.num_steps = num_steps;
  return task;
}

TEST(WorkLine, CountsOneInTheSingular) {
  EXPECT_EQ(count_text(0, "step"), "0 steps");
  EXPECT_EQ(count_text(1, "epoch"), "1 epoch");
  EXPECT_EQ(count_text(24, "step"), "24 steps");
}

TEST(WorkLine, NamesTheStepsAndTheirRows) {
  EXPECT_EQ(steps_text(task_of(150, 64, 24)), "24 steps of 64 rows");
  EXPECT_EQ(steps_text(task_of(150, 150, 1)), "1 step of 150 rows");
  EXPECT_EQ(steps_text(task_of(3, 1, 2)), "2 steps of 1 row");
  EXPECT_EQ(batch_text(task_of(150, 64, 24)), "batch 64");
}

TEST(WorkLine, ABatchBeyondTheDataIsTheRowsThereAre) {
  EXPECT_EQ(steps_text(task_of(150, 100000, 1)), "1 step of 150 rows (batch 100000 asked)");
  EXPECT_EQ(batch_text(task_of(150, 100000, 1)), "batch 150 (100000 asked)");
}

}  // namespace
}  // namespace lockstep::tools
