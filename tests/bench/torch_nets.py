"""The nets that `lockstep bench step --model WORD` measures, in PyTorch: mlp:A-B-C, lenet, resnet18[:WIDTH], gpt2 and
gpt:LAYERS-HEADS-CHANNELS-CONTEXT, with the sizes of engine/nn/models.h."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_model import mlp


def lenet(channels, classes):
    """The LeNet of "Dive into Deep Learning" on several GPUs, for images of 28 x 28."""
    convolutions = [nn.Conv2d(channels, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, classes))


class Block(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18(channels, classes, width):
    """torchvision's, with a first convolution of 3 x 3, stride 1, and no pool after it."""
    layers = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        outputs = width << stage
        layers += [Block(inputs, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class GptBlock(nn.Module):
    def __init__(self, heads, channels):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.c_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU("tanh"), nn.Linear(4 * channels, channels))

    def forward(self, x):
        batch, tokens, channels = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, channels // self.heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(channels, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, tokens, channels))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """GPT-2, whose table of tokens is also the last layer, padded to a multiple of 64 rows."""

    def __init__(self, layers, heads, channels, context, vocabulary):
        super().__init__()
        self.wte = nn.Embedding((vocabulary + 63) // 64 * 64, channels)
        self.wpe = nn.Embedding(context, channels)
        self.h = nn.Sequential(*[GptBlock(heads, channels) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(channels)
        self.register_buffer("places", torch.arange(context), persistent=False)

    def forward(self, tokens):
        return F.linear(self.ln_f(self.h(self.wte(tokens) + self.wpe(self.places))), self.wte.weight)


def net_and_batch(word, row, classes, batch):
    """(the net of that word, x, y). row: the size of a row of images, as [height, width, channels]; [] for others.
    classes: outputs, or tokens of the vocabulary."""
    torch.manual_seed(0)
    kind, _, sizes = word.partition(":")
    if kind == "mlp":
        sizes = [int(size) for size in sizes.split("-")]
        return mlp(sizes), torch.randn(batch, sizes[0]), torch.arange(batch) % sizes[-1]
    if kind.startswith("gpt"):
        sizes = {"gpt2": "12-12-768-1024", "gpt2-medium": "24-16-1024-1024"}.get(word, sizes)
        layers, heads, channels, context = (int(size) for size in sizes.split("-"))
        tokens = torch.randint(classes, (batch, context + 1))
        return Gpt(layers, heads, channels, context, classes), tokens[:, :-1], tokens[:, 1:]
    height, width, channels = row
    x, y = torch.randn(batch, channels, height, width), torch.arange(batch) % classes
    return (lenet(channels, classes) if kind == "lenet" else resnet18(channels, classes, int(sizes or 64))), x, y
