"""PyTorch's times over gloo on the CPU, for ranks that are processes with one thread each.

usage, under `python -m torch.distributed.run --standalone --nproc-per-node 2`:
  torch_ddp.py step BATCH SIZE SIZE...    the median training step of DistributedDataParallel in
                                          microseconds; BATCH rows over all ranks
  torch_ddp.py all-reduce BYTES...        for each size "BYTES MICROSECONDS", the mean all-reduce
Rank 0 prints; what it prints is the slowest rank's time.
"""
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch_model import mlp, random_batch, sgd, train_step

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


def slowest(seconds):
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def measure_step(batch, sizes):
    model = nn.parallel.DistributedDataParallel(mlp(sizes))
    optimizer = sgd(model)
    x, y = random_batch(batch // world_size, sizes)
    times = []
    for _ in range(29):
        start = time.perf_counter()
        train_step(model, optimizer, x, y)
        times.append(time.perf_counter() - start)
    return slowest(sorted(times[5:])[12])


def measure_all_reduce(num_bytes):
    buffer = torch.zeros(num_bytes // 4)
    for _ in range(5):
        dist.all_reduce(buffer)
    dist.barrier()
    rounds = 20
    start = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(buffer)
    return slowest((time.perf_counter() - start) / rounds)


numbers = [int(word) for word in sys.argv[2:]]
if sys.argv[1] == "step":
    lines = [f"{measure_step(numbers[0], numbers[1:]) * 1e6:.1f}"]
else:
    lines = [f"{size} {measure_all_reduce(size) * 1e6:.2f}" for size in numbers]
if rank == 0:
    print("\n".join(lines))
dist.barrier()  # a rank that leaves while others still talk may abort them
dist.destroy_process_group()
