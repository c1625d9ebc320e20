"""PyTorch's time for an epoch from host memory: rows of bytes gathered there, sent, converted and trained on.

usage: torch_cuda_epoch.py ROWS BATCH SIZE SIZE...     prints the median epoch in microseconds
"""
import sys
import time

import torch
from torch_model import median, mlp, sgd, train_step

rows, batch, *sizes = map(int, sys.argv[1:])
model = mlp(sizes).cuda()
optimizer = sgd(model, foreach=True)
features = torch.randint(0, 256, (rows, sizes[0]), dtype=torch.uint8)
labels = torch.arange(rows) % sizes[-1]


def epoch():
    order = torch.randperm(rows)
    for begin in range(0, rows, batch):
        index = order[begin : begin + batch]
        x = features[index].cuda(non_blocking=True).float() / 255
        y = labels[index].cuda(non_blocking=True)
        train_step(model, optimizer, x, y)
    torch.cuda.synchronize()


epoch()
times = []
for _ in range(7):
    start = time.perf_counter()
    epoch()
    times.append(time.perf_counter() - start)
print(f"{median(times) * 1e6:.1f}")
