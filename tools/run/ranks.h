// Runs the loop for every rank of a run, wherever they are, and brings together what they measured.
#pragma once

#include "engine/trace/recorder.h"
#include "tools/run/loop.h"
#include "tools/run/rank_job.h"

namespace lockstep::tools {

// For a recording of a run: all of its steps, or of a long run so many, evenly spread, that their
// spans fit.
trace::RecordOptions record_options(const TrainingTask& task, std::size_t num_devices);

// Trains on devices of this process: ranks of DDP are threads, or one thread drives them all where
// a step is one graph. Deterministic in everything but the times. Recording (engine/trace) may be
// on; if it is, the result has a breakdown and busy fractions.
// Throws as run_loop().
TrainingResult train(const TrainingTask& task, const DevicePlacement& placement,
                     const TrainingObserver& observer = {});

// The result of a job on rank 0. The other ranks only learn what stopped it.
struct JobResult {
  TrainingResult result;
  trace::Recording recording;            // all ranks', where recording was on
  std::vector<Device> devices;           // indexed by rank
  std::size_t num_physical_devices = 0;  // GPUs, or hosts
  double cpu_seconds_of_peers = 0;       // other ranks on rank 0's host, while training
};

// Trains this rank's share where ranks are processes, with the job's communicator. Recording may be
// on; this stops it. Throws as run_loop(). A signal ends it early if it is watched for, by all
// ranks or by none (run/interruption.h), and train() too.
JobResult train_in_job(const TrainingTask& task, RankJob& job, TrainingObserver observer = {});

// The first steps load kernels, find memory and the fastest products, and wake threads and cores;
// what is measured should not hold that. Trains a few steps, and goes on for so long.
void warm_up(const TrainingTask& task, const DevicePlacement& placement, double seconds);
void warm_up(const TrainingTask& task, RankJob& job);

}  // namespace lockstep::tools
