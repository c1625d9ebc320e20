"""PyTorch's time for the training step that `lockstep bench step --device cuda` measures.

usage: torch_cuda_step.py highest|high BATCH SIZE SIZE...
prints "eager MICROSECONDS" and "graph MICROSECONDS": medians of a step, launched op by op and as one
CUDA graph.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

precision, batch, *sizes = sys.argv[1:]
batch, sizes = int(batch), list(map(int, sizes))
torch.set_float32_matmul_precision(precision)
torch.manual_seed(0)
layers = []
for i in range(len(sizes) - 1):
    layers.append(nn.Linear(sizes[i], sizes[i + 1]))
    if i < len(sizes) - 2:
        layers.append(nn.ReLU())
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
x = torch.randn(batch, sizes[0], device="cuda")
y = (torch.arange(batch) % sizes[-1]).cuda()


def step():
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


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
    return sorted(times)[len(times) // 2] * 1e6


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
