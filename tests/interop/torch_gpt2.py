#!/usr/bin/env python3
"""GPT-2 with its 124 million parameters: first steps in Lockstep beside others'.

Run: torch_gpt2.py PROGRAM Random|LlmC

Random: from random weights, the first loss and the norm of all gradients, beside PyTorch's.
LlmC:   from OpenAI's weights, the ten losses of llm.c's test_gpt2. LOCKSTEP_GPT2 names a folder with
        Hugging Face's model.safetensors of gpt2 and llm.c's gpt2_124M_debug_state.bin; without it
        the script exits 77.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from torch_gpt import Gpt
from torch_training import read_safetensors, write_safetensors

import torch
from torch.nn import functional

BATCH, LENGTH = 4, 64
LLM_C_LOSSES = [5.270007, 4.059707, 3.375123, 2.800783, 2.315382, 1.849029, 1.394656, 0.999147,
                0.624080, 0.376511]


def train(program, folder, tokens, flags):
    """The log of training on these tokens, one batch again and again; the model has LENGTH positions."""
    # Lockstep keeps the last tenth for validation.
    padded = tokens + [0] * 29
    assert len(padded) * 9 // 10 == len(tokens) == BATCH * LENGTH + 1
    (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(padded)}H", *padded))
    command = [program, "train", "--model", f"gpt:12-12-768-{LENGTH}", "--dataset",
               "tokens:tokens.bin", "--init", "init.safetensors", "--no-shuffle", "--batch",
               str(BATCH), "--log", "log.jsonl"] + flags.split()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def report(rows, tolerance, is_relative):
    failed = 0
    for name, ours, theirs in rows:
        difference = abs(ours - theirs) / (abs(theirs) if is_relative else 1)
        failed += not difference <= tolerance
        print(f"{'ok  ' if difference <= tolerance else 'FAIL'}  {name:<14} {ours:.6f}  expected "
              f"{theirs:.6f}  {'relative ' if is_relative else ''}difference {difference:.1e}  "
              f"tolerance {tolerance:.0e}")
    return 1 if failed else 0


def check_random(program, folder):
    torch.manual_seed(1)
    model = Gpt(12, 12, 768, LENGTH, 50257)
    with torch.no_grad():  # biases and norms do something too
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    write_safetensors(folder / "init.safetensors", model.state_dict())
    tokens = torch.randint(0, 50257, (BATCH * LENGTH + 1,))
    loss = functional.cross_entropy(model(tokens[:-1].view(BATCH, LENGTH)).flatten(0, 1),
                                    tokens[1:])
    loss.backward()
    norm = torch.sqrt(sum(parameter.grad.double().square().sum()
                          for parameter in model.parameters())).item()
    loss = loss.item()
    del model
    step = train(program, folder, tokens.tolist(), "--steps 1 --momentum 0")[0]
    return report([("loss", step["loss"], loss), ("gradient norm", step["grad_norm"], norm)], 1e-4,
                  is_relative=True)


def check_llm_c(program, folder, given):
    weights = read_safetensors(given / "model.safetensors")
    name = next(name for name in weights if name.endswith("wpe.weight"))
    weights[name] = weights[name][:LENGTH]
    write_safetensors(folder / "init.safetensors", weights)
    del weights
    state = (given / "gpt2_124M_debug_state.bin").read_bytes()
    magic, _, batch, length = struct.unpack_from("<4i", state)
    assert (magic, batch, length) == (20240327, BATCH, LENGTH), "unknown gpt2_124M_debug_state.bin"
    count = BATCH * LENGTH
    numbers = struct.unpack_from(f"<{2 * count}i", state, 1024)
    tokens = list(numbers[:count]) + [numbers[-1]]
    assert list(numbers[count:]) == tokens[1:], "its rows do not follow each other"
    log = train(program, folder, tokens, "--steps 10 --optimizer adamw --lr 1e-4 --weight-decay 0")
    rows = [(f"loss {i}", step["loss"], LLM_C_LOSSES[i]) for i, step in enumerate(log)]
    return report(rows, 1e-2, is_relative=False)


def main():
    program, way = Path(sys.argv[1]).resolve(), sys.argv[2]
    given = os.environ.get("LOCKSTEP_GPT2", "")
    if way == "LlmC" and not given:
        print("skipped: set LOCKSTEP_GPT2 to a folder with gpt2's model.safetensors and llm.c's "
              "gpt2_124M_debug_state.bin")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        if way == "Random":
            return check_random(program, Path(folder))
        return check_llm_c(program, Path(folder), Path(given).resolve())


if __name__ == "__main__":
    sys.exit(main())
