#!/usr/bin/env python3
"""random_runs.py PROGRAM FIRST COUNT: `compare` calls no right run wrong.

Run number i is drawn with the seed i: model, modes, 2 to 8 devices, a batch of 1 to 64 rows, optimizer, precision,
learning rate, shuffling. Each must exit with 0 and print a verdict. A wrong one is printed with its command.
"""
import random
import subprocess
import sys

IMAGES = ["mlp:64-32-10", "mlp:64-10", "lenet", "cnn:4c3-p2-10", "resnet18:4"]
GPT = "gpt:2-2-16-8"


def drawn(number):
    draw = random.Random(number)
    is_text = draw.random() < 0.25
    model = GPT if is_text else draw.choice(IMAGES)
    has_batch_norm = model.startswith("resnet")
    modes = ["dp", "ddp", "zero1", "zero2", "zero3"]
    if not has_batch_norm and model != "mlp:64-10":  # a pipeline needs two layers
        modes.append("pipeline")
    chosen = draw.sample(modes, draw.choice([1, 1, 2]))
    num_devices = draw.randint(2, 2 if "pipeline" in chosen else 8)
    batch = draw.choice([1, 2, 3, 5, 6, 8, 12, 16, 30, 64])
    if has_batch_norm:  # which refuses a device's single value; dp would also need --batch 3
        batch = draw.choice([num_devices * 2, num_devices * 3, 64])
    if "pipeline" in chosen:
        batch = max(batch, 8)
    words = ["--modes", ",".join(chosen), "--devices", str(num_devices), "--batch", str(batch), "--model", model,
             "--steps", str(draw.choice([1, 5, 21, 30, 45])), "--seed", str(number)]
    if is_text:
        words += ["--dataset", "embedded-text"]
    if draw.random() < 0.4:
        words += ["--optimizer", "adamw", "--lr", draw.choice(["1e-3", "1e-4"])]
    else:
        words += ["--lr", draw.choice(["0.1", "0.01", "0.2"]), "--momentum", draw.choice(["0", "0.9"])]
    if draw.random() < 0.2:
        words += ["--clip-norm", draw.choice(["0.5", "5"])]
    if draw.random() < 0.3:
        words += ["--weight-decay", "0.01"]
    if draw.random() < 0.3:
        words += ["--schedule", draw.choice(["step:7:0.5", "cosine"])]
    precision = draw.choice(["float32", "float32", "float64", "bf16"])
    words += ["--precision", "bf16"] if precision == "bf16" else ["--dtype", precision]
    if has_batch_norm and chosen == ["ddp"] and draw.random() < 0.5:
        words += ["--sync-batch-norm"]
    if not has_batch_norm and draw.random() < 0.2 and batch % 2 == 0 and "pipeline" not in chosen:
        words += ["--accumulate", "2"]
    if draw.random() < 0.1:
        words += ["--no-shuffle"]
    return words


def main():
    program, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    wrong = 0
    for number in range(first, first + count):
        words = drawn(number)
        end = subprocess.run([program, "compare", "--device", "cpu", *words], capture_output=True, text=True)
        if end.returncode == 0 and "\nverdict: every row" in end.stdout:
            continue
        wrong += 1
        print(f"run {number}: lockstep compare {' '.join(words)}\n  exit code {end.returncode}: {end.stderr.strip()}", flush=True)
    print(f"{count - wrong} of {count} runs are right")
    return 1 if wrong else 0


sys.exit(main())
