"""PyTorch's time for the training step that `lockstep bench step --device cuda` measures.

usage: torch_cuda_step.py highest|high BATCH SIZE SIZE...
prints "eager MICROSECONDS" and "graph MICROSECONDS": medians of a step, launched op by op and as one
CUDA graph.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch_model import median, mlp, random_batch, sgd, train_step

precision, batch, *sizes = sys.argv[1:]
batch, sizes = int(batch), list(map(int, sizes))
torch.set_float32_matmul_precision(precision)
model = mlp(sizes).cuda()
optimizer = sgd(model, foreach=True)
x, y = (part.cuda() for part in random_batch(batch, sizes))


def step():
    train_step(model, optimizer, x, y)


def median_microseconds(run):
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    begin = time.perf_counter()
    while len(times) < 11 or time.perf_counter() - begin < 0.8:
        start = time.perf_counter()
        for _ in range(10):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 10)
    return median(times) * 1e6


print(f"eager {median_microseconds(step):.1f}")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
print(f"graph {median_microseconds(graph.replay):.1f}")
