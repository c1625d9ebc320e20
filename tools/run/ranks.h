// Runs the loop for every rank of a run, wherever they are, and brings together what they measured.
#pragma once

#include "engine/trace/recorder.h"
#include "tools/run/loop.h"
#include "tools/run/rank_job.h"

namespace lockstep::tools {

// A run, as rank 0 knows it. The other processes of a job only know their own part of the result.
struct Run {
  TrainingResult result;
  DevicePlacement placement;        // of all ranks
  trace::Recording recording;       // all ranks', where recording was on
  double cpu_seconds_of_peers = 0;  // other processes of the job on rank 0's host, while training
};

// Trains. Without a job all devices belong to this process: ranks are its threads, or one thread
// drives them all where a step is one graph. With a job this process is one rank of many, and all
// of them call it. Deterministic in everything but the times. Recording (engine/trace) may be on;
// this stops it, and the result has a breakdown and busy fractions.
// Throws as run_loop(). A signal ends it early if it is watched for, by all processes or by none
// (run/interruption.h).
Run train(const TrainingTask& task, const DevicePlacement& placement,
          const TrainingObserver& observer = {}, RankJob* job = nullptr);

// The devices of a run that are this process's.
std::vector<Device> own_devices(const DevicePlacement& placement, const RankJob* job);

// The first steps load kernels, find memory and the fastest products, and wake threads and cores;
// what is measured should not hold that. Trains a few steps, and goes on for so long. The ranks of
// a job pass 0 seconds: they must all train as often.
void warm_up(const TrainingTask& task, const DevicePlacement& placement, double seconds,
             RankJob* job = nullptr);

}  // namespace lockstep::tools
