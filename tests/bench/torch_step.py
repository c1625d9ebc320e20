"""PyTorch's time for the training step that `lockstep bench step` measures.

usage: torch_step.py THREADS BATCH SIZE SIZE...     prints the median step in microseconds
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

threads, batch, *sizes = map(int, sys.argv[1:])
torch.set_num_threads(threads)
torch.manual_seed(0)
layers = []
for i in range(len(sizes) - 1):
    layers.append(nn.Linear(sizes[i], sizes[i + 1]))
    if i < len(sizes) - 2:
        layers.append(nn.ReLU())
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x = torch.randn(batch, sizes[0])
y = torch.arange(batch) % sizes[-1]


def step():
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


for _ in range(5):
    step()
times = []
begin = time.perf_counter()
while len(times) < 11 or time.perf_counter() - begin < 0.8:
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
print(f"{sorted(times)[len(times) // 2] * 1e6:.1f}")
