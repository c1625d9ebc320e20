"""Recorded the traces in this folder, with PyTorch 2.15 and gloo on the CPU:

  record.py ddp 2 FOLDER         DistributedDataParallel on two ranks
  record.py ddp 4 FOLDER --slow  on four ranks, of which rank 2 computes more from step 3 on
  record.py fsdp 2 FOLDER        FullyShardedDataParallel on two ranks

Each rank writes FOLDER/rankN.json; `gzip -9 -n` made it small."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 5  # one is waited, one warms up, three are recorded


def wrapped(mode):
    layers = [torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 10))
    if mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({torch.nn.Linear})
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def train(rank, mode, world_size, folder, slow_rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = wrapped(mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.utils.data.TensorDataset(torch.randn(1024, 784), torch.randint(0, 10, (1024,)))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/rank{rank}.json"),
    ) as profiler:
        for step, (inputs, labels) in enumerate(torch.utils.data.DataLoader(rows, batch_size=64)):
            if step == STEPS:
                break
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            for _ in range(40 if rank == slow_rank and step >= 3 else 0):
                inputs.T @ inputs
            loss.backward()
            optimizer.step()
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mode, num_ranks, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.makedirs(folder, exist_ok=True)
    mp.spawn(train, (mode, num_ranks, folder, 2 if "--slow" in sys.argv else -1), num_ranks)
