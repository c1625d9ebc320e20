"""PyTorch's time for the training step that `lockstep bench step` measures.

usage: torch_step.py THREADS BATCH SIZE SIZE...     prints the median step in microseconds
"""
import sys
import time

import torch
from torch_model import median, mlp, random_batch, sgd, train_step

threads, batch, *sizes = map(int, sys.argv[1:])
torch.set_num_threads(threads)
model = mlp(sizes)
optimizer = sgd(model)
x, y = random_batch(batch, sizes)

for _ in range(5):
    train_step(model, optimizer, x, y)
times = []
begin = time.perf_counter()
while len(times) < 11 or time.perf_counter() - begin < 0.8:
    start = time.perf_counter()
    train_step(model, optimizer, x, y)
    times.append(time.perf_counter() - start)
print(f"{median(times) * 1e6:.1f}")
