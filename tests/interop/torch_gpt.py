#!/usr/bin/env python3
"""Trains the same GPTs on the characters of a text in PyTorch and in Lockstep.

Run: torch_gpt.py PROGRAM TEXT

PyTorch makes the first weights, under Hugging Face's names and with its transposed layers; both
train with AdamW on windows that follow each other. All weights are compared after the same steps,
the loss of each step, and once what the weights write.
"""
import copy
import json
import subprocess
import sys
from pathlib import Path

from torch_training import compare, run_cases, train_here

import torch
from torch import nn
from torch.nn import functional

BATCH = 12


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs, deviation=0.02):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * deviation)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, heads, channels, deviation):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(channels, 3 * channels)
        self.c_proj = Conv1D(channels, channels, deviation)

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(channels, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, channels))


class Mlp(nn.Module):
    def __init__(self, channels, deviation):
        super().__init__()
        self.c_fc = Conv1D(channels, 4 * channels)
        self.c_proj = Conv1D(4 * channels, channels, deviation)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, heads, channels, deviation):
        super().__init__()
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = Attention(heads, channels, deviation)
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = Mlp(channels, deviation)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, heads, channels, context, vocabulary):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, channels), "wpe": nn.Embedding(context, channels),
            "h": nn.ModuleList(Block(heads, channels, 0.02 / (2 * layers) ** 0.5)
                               for _ in range(layers)),
            "ln_f": nn.LayerNorm(channels)})
        for name in ("wte", "wpe"):
            nn.init.normal_(self.transformer[name].weight, std=0.02)

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"].weight[:tokens.shape[1]]
        for block in t["h"]:
            x = block(x)
        return t["ln_f"](x) @ t["wte"].weight.T


# name, model, flags of lockstep, steps, tolerance of weights, of losses
CASES = [
    ("gpt:4-4-128-64", "4-4-128-64", "", 20, 1e-4, 1e-5),
    ("2 devices, dp", "2-2-64-32", "--parallel dp --devices 2", 20, 1e-4, 1e-5),
    ("3 devices, ddp", "2-2-64-32", "--parallel ddp --devices 3", 20, 1e-4, 1e-5),
    ("float64", "2-2-64-32", "--dtype float64", 20, 1e-11, 1e-11),
    ("float64, ddp, bitwise", "2-2-64-32", "--dtype float64 --parallel ddp --devices 4 --bitwise",
     20, 1e-11, 1e-11),
]


def check_sample(program, folder, model, vocabulary, context):
    """The likeliest text of the trained weights; it is longer than the context."""
    prompt, length = "First Citizen:\n", 100
    tokens = [vocabulary.index(character) for character in prompt]
    with torch.no_grad():
        for _ in range(length):
            tokens.append(model(torch.tensor([tokens[-context:]]))[0, -1].argmax().item())
    theirs = "".join(vocabulary[token] for token in tokens) + "\n"
    ours = subprocess.run([program, "sample", "--init", "trained.safetensors", "--prompt", prompt,
                           "--tokens", str(length), "--temperature", "0"], cwd=folder, check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    assert ours == theirs, f"sample writes {ours!r}, PyTorch {theirs!r}"


def run_case(program, text, folder, model_text, flags, steps, loss_tolerance):
    torch.manual_seed(1)
    dtype = torch.float64 if "float64" in flags else torch.float32
    characters = text.read_text()
    vocabulary = sorted(set(characters))
    numbers = {character: number for number, character in enumerate(vocabulary)}
    tokens = torch.tensor([numbers[character] for character in characters])
    layers, heads, channels, context = (int(word) for word in model_text.split("-"))
    model = Gpt(layers, heads, channels, context, len(vocabulary)).to(dtype)
    first = copy.deepcopy(model.state_dict())
    # As the hub has them: without the prefix, and with a last layer of its own.
    prefix = "transformer."
    saved = {name[len(prefix):]: tensor for name, tensor in first.items()}
    saved["lm_head.weight"] = first[prefix + "wte.weight"]
    ours = train_here(program, folder, saved, "--batch", BATCH, "--model", "gpt:" + model_text, "--dataset",
                      f"text:{text}", "--steps", steps, "--optimizer", "adamw", "--log", "log.jsonl", *flags.split())
    losses = [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]

    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 1e-2},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    for step in range(steps):
        begins = [(step * BATCH + row) * context for row in range(BATCH)]
        windows = torch.stack([tokens[begin:begin + context + 1] for begin in begins])
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1),
                                        windows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        difference = abs(loss.item() - losses[step])
        assert difference <= loss_tolerance, f"in step {step} the loss differs by {difference:.1e}"
    if not flags:
        check_sample(program, folder, model, vocabulary, context)
    return compare(ours, model.state_dict(), first)


def main():
    program, text = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    return run_cases([
        (name, tolerance, lambda folder, case=(*case, loss_tolerance): run_case(program, text, folder, *case))
        for name, *case, tolerance, loss_tolerance in CASES
    ], least=5e-3)


if __name__ == "__main__":
    sys.exit(main())
