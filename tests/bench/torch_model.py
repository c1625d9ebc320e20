"""The model, optimizer and step that all PyTorch scripts here measure: the MLP of `--model mlp:A-B-C`."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(sizes):
    """Linear layers of these sizes with ReLU between them, the same for every call."""
    torch.manual_seed(0)
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **options)


def random_batch(rows, sizes):
    return torch.randn(rows, sizes[0]), torch.arange(rows) % sizes[-1]


def train_step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def median(times):
    return sorted(times)[len(times) // 2]
