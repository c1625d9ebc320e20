"""PyTorch's time for an epoch from host memory: rows of bytes gathered there, sent, converted and trained on.

usage: torch_cuda_epoch.py ROWS BATCH SIZE SIZE...     prints the median epoch in microseconds
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

rows, batch, *sizes = map(int, sys.argv[1:])
torch.manual_seed(0)
layers = []
for i in range(len(sizes) - 1):
    layers.append(nn.Linear(sizes[i], sizes[i + 1]))
    if i < len(sizes) - 2:
        layers.append(nn.ReLU())
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
features = torch.randint(0, 256, (rows, sizes[0]), dtype=torch.uint8)
labels = torch.arange(rows) % sizes[-1]


def epoch():
    order = torch.randperm(rows)
    for begin in range(0, rows, batch):
        index = order[begin : begin + batch]
        x = features[index].cuda(non_blocking=True).float() / 255
        y = labels[index].cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.cuda.synchronize()


epoch()
times = []
for _ in range(7):
    start = time.perf_counter()
    epoch()
    times.append(time.perf_counter() - start)
print(f"{sorted(times)[len(times) // 2] * 1e6:.1f}")
