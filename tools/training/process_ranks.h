// DDP where this process is one of the ranks.
#pragma once

#include "engine/trace/recorder.h"
#include "tools/ranks/rank_job.h"
#include "tools/training/trainer.h"

namespace lockstep::tools {

// What rank 0 knows of a job at the end. The other ranks have nothing.
struct JobResult {
  TrainingResult result;
  trace::Recording recording;            // of all ranks, where recording was on
  std::vector<Device> devices;           // by rank
  std::size_t num_physical_devices = 0;  // GPUs, or hosts
  double cpu_seconds_of_peers = 0;       // of the other ranks on rank 0's host, while training
};

// Trains this rank's share with the job's communicator, and brings together on rank 0 what the
// ranks measured. Recording may be on; this stops it. The clock of another host is set to rank 0's
// by a common moment, so times of different hosts agree to about a millisecond.
// Throws: see train().
JobResult train_in_job(const TrainingTask& task, RankJob& job,
                       const TrainingObserver& observer = {});

}  // namespace lockstep::tools
