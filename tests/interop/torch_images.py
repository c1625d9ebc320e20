#!/usr/bin/env python3
"""Trains the same convolutional nets on the digits in PyTorch and in Lockstep.

Run: torch_images.py PROGRAM DIGITS_ROWS

As torch_training.py, whose files these are too: PyTorch makes the first weights, and all weights
and running statistics are compared after the same steps. On two devices batch norm takes each
device's own rows, and the statistics that stay are those of the first: so PyTorch's
DataParallel does it, which is done by hand here, since it needs GPUs.
"""
import copy
import sys
from pathlib import Path

from torch_training import BATCH, compare, read_digits, run_cases, train_here

import torch
from torch import nn


def make_lenet(_):
    # Smaller images have margins of zeros, up to 28 x 28.
    return nn.Sequential(
        nn.Conv2d(1, 20, 3, padding=10), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def make_cnn(_):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's, with its names, but for the first convolution and the pool after it."""

    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage in range(4):
            outputs = width << stage
            blocks = [BasicBlock(inputs, outputs, 1 if stage == 0 else 2),
                      BasicBlock(outputs, outputs, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


# name, model, flags of lockstep, PyTorch's model, devices, steps, learning rate, tolerance
CASES = [
    ("LeNet", "lenet", "", make_lenet, 1, 20, 0.1, 1e-5),
    ("LeNet on 2 devices, dp", "lenet", "--parallel dp", make_lenet, 2, 20, 0.1, 1e-5),
    ("LeNet on 3 devices, ddp", "lenet", "--parallel ddp", make_lenet, 3, 20, 0.1, 1e-5),
    ("a net of one's own", "cnn:8c3-p2-16c5-32-10", "", make_cnn, 1, 20, 0.1, 1e-5),
    # In float32 a sum on the other side of ReLU's kink would show at a larger learning rate: at 0.001
    # PyTorch's own float32 weights of width 64 are 2e-3 from its float64 ones after five steps.
    ("ResNet-18 of width 16", "resnet18:16", "", ResNet18, 1, 5, 0.001, 1e-4),
    ("ResNet-18 of width 64", "resnet18", "", ResNet18, 1, 5, 3e-5, 1e-4),
    ("ResNet-18 of width 64, float64", "resnet18", "--dtype float64", ResNet18, 1, 5, 0.01, 1e-12),
    ("ResNet-18 in float64", "resnet18:16", "--dtype float64", ResNet18, 1, 5, 0.01, 1e-12),
    ("ResNet-18 on 2 devices, dp", "resnet18:16", "--parallel dp", ResNet18, 2, 5, 0.001, 1e-4),
    ("ResNet-18 on 2 devices, ddp", "resnet18:16", "--parallel ddp --dtype float64", ResNet18, 2, 5,
     0.01, 1e-12),
]


def forward(model, x, devices):
    """Each device's rows by themselves; the first one's statistics stay."""
    parts = x.chunk(devices)
    logits = [model(parts[0])]
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for part in parts[1:]:
        kept = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers()]
        for norm, name, buffer in kept:
            setattr(norm, name, buffer.clone())
        logits.append(model(part))
        for norm, name, buffer in kept:
            setattr(norm, name, buffer)
    return torch.cat(logits)


def run_case(program, digits, folder, model_text, flags, make_model, devices, steps, lr):
    torch.manual_seed(1)
    dtype = torch.float64 if "float64" in flags else torch.float32
    width = int(model_text.partition(":")[2] or 64) if "resnet" in model_text else 0
    model = make_model(width).to(dtype)
    first = copy.deepcopy(model.state_dict())
    ours = train_here(program, folder, first, "--batch", BATCH, "--model", model_text, "--steps", steps, "--lr", lr,
                      "--devices", devices, *flags.split())

    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    x, labels = read_digits(digits, dtype)
    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        logits = forward(model, x[rows].view(-1, 1, 8, 8), devices)
        nn.functional.cross_entropy(logits, labels[rows]).backward()
        optimizer.step()
    return compare(ours, model.state_dict(), first)


def main():
    program, digits = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    return run_cases([(name, tolerance, lambda folder, case=case: run_case(program, digits, folder, *case))
                      for name, *case, tolerance in CASES])


if __name__ == "__main__":
    sys.exit(main())
