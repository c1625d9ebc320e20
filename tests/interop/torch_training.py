#!/usr/bin/env python3
"""Trains the same MLP on the digits in PyTorch and in Lockstep and compares all weights.

Run: torch_training.py PROGRAM DIGITS_ROWS
PROGRAM is the program lockstep, DIGITS_ROWS the file datasets/digits_rows.txt. PyTorch makes the
first weights and writes them for --init; Lockstep trains with --no-shuffle and writes --save. The
format of both files is safetensors, read and written here by hand: it is that short.

Exits 0 when all weights agree, 1 when some do not, 77 where PyTorch is missing.
"""
import ctypes
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
except ImportError:
    print(f"skipped: {sys.executable} has no PyTorch; "
          "set LOCKSTEP_TORCH_PYTHON to a Python that has it")
    sys.exit(77)

NUM_TRAIN_ROWS = 1500
STEPS = 24
BATCH = 64  # 1500 = 23 * 64 + 28: the last of the 24 steps has a smaller batch
DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}


def read_digits(path, dtype):
    """The first 1500 rows and their labels; each row is "label, 64 pixels", digits of base 17."""
    rows = path.read_text().split()
    assert len(rows) == 1797, f"{path} has {len(rows)} rows, expected 1797"
    values = [[int(digit, 17) for digit in row] for row in rows[:NUM_TRAIN_ROWS]]
    table = torch.tensor(values)
    return table[:, 1:].to(dtype) / 16, table[:, 0]


def write_safetensors(path, tensors):
    header, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        code = next(code for code, dtype in DTYPES.items() if dtype == tensor.dtype)
        tensor = tensor.detach().contiguous()
        part = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        header[name] = {"dtype": code, "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(part)]}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        part = bytearray(data[8 + length + begin:8 + length + end])
        tensors[name] = torch.frombuffer(part, dtype=DTYPES[entry["dtype"]]).view(entry["shape"])
    return tensors


def make_model(sizes, activation, dtype):
    layers = []
    for i in range(len(sizes) - 1):
        if i > 0:
            layers.append(activation())
        layers.append(torch.nn.Linear(sizes[i], sizes[i + 1], dtype=dtype))
    return torch.nn.Sequential(*layers)


def train(model, x, labels, optimizer, steps, scheduler=None, clip_norm=None):
    loss_function = torch.nn.CrossEntropyLoss()
    step = 0
    while step < steps:
        for begin in range(0, len(x), BATCH):
            if step == steps:
                break
            optimizer.zero_grad()
            loss_function(model(x[begin:begin + BATCH]), labels[begin:begin + BATCH]).backward()
            if clip_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            if scheduler:
                scheduler.step()
            step += 1


def sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **options)


def adamw(**options):
    return lambda parameters: torch.optim.AdamW(parameters, **options)


# name, flags of lockstep, PyTorch's optimizer, and what else train() above needs
CASES = [
    ("SGD with momentum", "", sgd(), {}),
    ("SGD on 2 devices, dp", "--devices 2 --parallel dp", sgd(), {}),
    ("SGD on 2 devices, ddp", "--devices 2 --parallel ddp", sgd(), {}),
    ("SGD on 3 devices, ddp", "--devices 3 --parallel ddp", sgd(), {}),
    ("SGD, bitwise, 4 devices", "--bitwise --devices 4 --parallel ddp", sgd(), {}),
    ("Nesterov", "--nesterov", sgd(nesterov=True), {}),
    ("weight decay", "--weight-decay 0.01", sgd(weight_decay=0.01), {}),
    ("AdamW", "--optimizer adamw", adamw(), {}),
    ("AdamW with options, ddp", "--optimizer adamw --lr 0.003 --weight-decay 0.1 --devices 3 "
     "--parallel ddp", adamw(lr=0.003, weight_decay=0.1), {}),
    ("step schedule", "--schedule step:10:0.5", sgd(),
     {"schedule": lambda o: torch.optim.lr_scheduler.StepLR(o, 10, 0.5)}),
    ("cosine schedule", "--schedule cosine", sgd(),
     {"schedule": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, STEPS)}),
    ("clipping", "--clip-norm 0.5", sgd(), {"clip_norm": 0.5}),
    ("two epochs", f"--steps {2 * STEPS}", sgd(), {"steps": 2 * STEPS}),
    ("GELU", "--model mlp:64-48-10:gelu", sgd(), {"activation": torch.nn.GELU}),
    ("tanh", "--model mlp:64-48-10:tanh", sgd(), {"activation": torch.nn.Tanh}),
    ("float64", "--dtype float64", sgd(), {"dtype": torch.float64}),
    ("AdamW, float64, ddp", "--optimizer adamw --dtype float64 --devices 2 --parallel ddp",
     adamw(), {"dtype": torch.float64}),
]


def train_here(program, folder, first, *flags):
    """The weights that Lockstep makes of the first ones, by rows in their order."""
    write_safetensors(folder / "init.safetensors", first)
    command = [program, "train", "--no-shuffle", "--init", "init.safetensors", "--save", "trained.safetensors"]
    subprocess.run([*command, *map(str, flags)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return read_safetensors(folder / "trained.safetensors")


def compare(ours, theirs, first):
    """The largest difference of two weights, and the largest distance that one moved."""
    assert set(ours) == set(theirs), f"names differ: {sorted(ours)} and {sorted(theirs)}"
    difference = max((ours[name] - theirs[name]).abs().max().item() for name in theirs)
    moved = max((theirs[name] - first[name]).abs().max().item() for name in theirs if "num_batches" not in name)
    return difference, moved


def run_cases(cases, least=1e-2):
    """cases: name, tolerance of the difference, and a function of a folder that returns what compare() does."""
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, tolerance, run_case in cases:
            difference, moved = run_case(Path(folder))
            # Weights that hardly move would agree whatever is computed.
            passed = difference <= tolerance and moved > least
            failed += not passed
            print(f"{'ok  ' if passed else 'FAIL'}  {name:<30}  largest difference {difference:.1e}"
                  f"  tolerance {tolerance:.0e}  moved {moved:.3f}")
    print(f"{len(cases) - failed} of {len(cases)} trainings agree with PyTorch {torch.__version__}")
    return 1 if failed else 0


def run_case(program, digits, folder, flags, make_optimizer, extra):
    dtype = extra.get("dtype", torch.float32)
    steps = extra.get("steps", STEPS)
    torch.manual_seed(1)
    model = make_model([64, 48, 10], extra.get("activation", torch.nn.ReLU), dtype)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    words = ["--batch", BATCH, *flags.split()]
    for flag, value in (("--model", "mlp:64-48-10"), ("--steps", steps)):
        if flag not in words:
            words += [flag, value]
    ours = train_here(program, folder, first, *words)

    optimizer = make_optimizer(model.parameters())
    scheduler = extra["schedule"](optimizer) if "schedule" in extra else None
    x, labels = read_digits(digits, dtype)
    train(model, x, labels, optimizer, steps, scheduler, extra.get("clip_norm"))
    assert all(ours[name].dtype == dtype for name in ours), "dtypes differ"
    return compare(ours, model.state_dict(), first)


def main():
    program, digits = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    return run_cases([
        (name, TOLERANCES[extra.get("dtype", torch.float32)],
         lambda folder, case=(flags, make_optimizer, extra): run_case(program, digits, folder, *case))
        for name, flags, make_optimizer, extra in CASES
    ])


if __name__ == "__main__":
    sys.exit(main())
