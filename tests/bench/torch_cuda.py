"""PyTorch's times for what `lockstep` measures on a GPU, many in one process, since importing it takes seconds.

usage: torch_cuda.py cuda|cpu
prints one line {"torch": VERSION, "device": NAME}, or {"problem": WHY}; then for each line that it reads one:
  {"model": "mlp:784-256-10", "row": [28, 28, 1], "classes": 10, "precision": "fp32"|"tf32"|"bf16", "batch": N,
   "seconds": S, "kinds": ["eager", "graph", "compiled"]}
      -> {"eager": MICROSECONDS, "graph": MICROSECONDS, ...}
medians of a step: launched op by op, as one CUDA graph, and compiled by torch.compile and then one CUDA graph; of nets
for images the better of NCHW and channels_last. {"problem": WHY} for one that went wrong. On a CPU, which rehearsals
use, each is another "eager".
"""

import json
import sys
import time


def say(**answer):
    print(json.dumps(answer), flush=True)


try:
    import torch
    import torch.nn.functional as F
    from torch_model import median, sgd
    from torch_nets import net_and_batch
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
    start = time.perf_counter()
    run()
    wait()
    steps = max(1, min(10, int(0.1 / (time.perf_counter() - start))))  # that run before the host waits
    times = []
    begin = time.perf_counter()
    while len(times) < 11 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(steps):
            run()
        wait()
        times.append((time.perf_counter() - start) / steps)
    return median(times) * 1e6


def captured(step, optimizer, forward_and_backward):
    """The step as a graph; what to call for it."""
    if device.type != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        forward_and_backward()
        optimizer.step()
    return graph.replay


def measure_kind(kind, model, x, y, precision, seconds):
    called = torch.compile(model) if kind == "compiled" and device.type == "cuda" else model
    optimizer = sgd(model, foreach=True)
    # A graph must not keep copies of weights from an earlier step.
    rounded = torch.autocast(device.type, torch.bfloat16, precision == "bf16", cache_enabled=kind == "eager")

    def forward_and_backward():
        with rounded:
            loss = F.cross_entropy(called(x).flatten(0, -2), y.flatten())
        loss.backward()

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward_and_backward()
        optimizer.step()

    run = step if kind == "eager" else captured(step, optimizer, forward_and_backward)
    return median_microseconds(run, seconds)


def measure_step(model, row, classes, precision, batch, seconds, kinds):
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True
    best = {}
    for layout in (torch.contiguous_format, torch.channels_last) if row else (torch.contiguous_format,):
        for kind in kinds:
            net, x, y = net_and_batch(model, row, classes, batch)
            net, x = net.to(device, memory_format=layout), x.to(device)
            x = x.contiguous(memory_format=layout) if row else x
            time_of = measure_kind(kind, net, x, y.to(device), precision, seconds)
            best[kind] = min(time_of, best.get(kind, time_of))
    return best


if device.type == "cuda" and not torch.cuda.is_available():
    say(problem=f"PyTorch {torch.__version__} has no CUDA device")
    sys.exit(0)
say(torch=torch.__version__, device=torch.cuda.get_device_name() if device.type == "cuda" else "cpu")
for line in sys.stdin:
    try:
        say(**measure_step(**json.loads(line)))
    except Exception as error:  # the next one may go well
        say(problem=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
