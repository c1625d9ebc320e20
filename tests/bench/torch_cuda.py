"""PyTorch's times for what `lockstep` measures on a GPU, many in one process, since importing it takes seconds.

usage: torch_cuda.py cuda|cpu
prints one line {"torch": VERSION, "device": NAME}, or {"problem": WHY}; then for each line that it reads one:
  {"precision": "highest"|"high", "batch": N, "sizes": [A, B, ...], "seconds": S}
      -> {"eager": MICROSECONDS, "graph": MICROSECONDS}   medians of a step, launched op by op and as one CUDA graph
and {"problem": WHY} for one that went wrong. On a CPU, which rehearsals use, "graph" is another "eager".
"""

import json
import sys
import time


def say(**answer):
    print(json.dumps(answer), flush=True)


try:
    import torch
    import torch.nn.functional as F
    from torch_model import median, mlp, random_batch, sgd, train_step
except ImportError as error:
    say(problem=str(error))
    sys.exit(0)

device = torch.device(sys.argv[1])


def wait():
    if device.type == "cuda":
        torch.cuda.synchronize()


def median_microseconds(run, seconds):
    for _ in range(5):
        run()
    wait()
    times = []
    begin = time.perf_counter()
    while len(times) < 11 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(10):
            run()
        wait()
        times.append((time.perf_counter() - start) / 10)
    return median(times) * 1e6


def captured(step, model, optimizer, x, y):
    """The step as a graph; what to call for it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return graph.replay


def measure_step(precision, batch, sizes, seconds):
    torch.set_float32_matmul_precision(precision)
    model = mlp(sizes).to(device)
    optimizer = sgd(model, foreach=True)
    x, y = (part.to(device) for part in random_batch(batch, sizes))

    def step():
        train_step(model, optimizer, x, y)

    eager = median_microseconds(step, seconds)
    run = captured(step, model, optimizer, x, y) if device.type == "cuda" else step
    return {"eager": eager, "graph": median_microseconds(run, seconds)}


if device.type == "cuda" and not torch.cuda.is_available():
    say(problem=f"PyTorch {torch.__version__} has no CUDA device")
    sys.exit(0)
say(torch=torch.__version__, device=torch.cuda.get_device_name() if device.type == "cuda" else "cpu")
for line in sys.stdin:
    try:
        say(**measure_step(**json.loads(line)))
    except Exception as error:  # the next one may go well
        say(problem=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
