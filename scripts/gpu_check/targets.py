"""targets, at most 6 minutes: the speeds asked for, beside PyTorch and the floor of products alone."""

import json

import bench

SECONDS = 360
OTHER_KERNEL_US = 0.7  # the floor's allowance for each node that is no product


def small_net(stage, precision, batch):
    """Steps of the small net beside the floor and PyTorch."""
    net = stage.check.sizes.net
    name = f"mlp {'-'.join(map(str, net))}, batch {batch}, {precision}"
    graph = bench.step(stage, precision, batch, net, graph=True)
    stage.part(f"{name}: graph / floor", beside_floor, name, precision, batch, graph)
    theirs = bench.peer_step(stage, precision, batch, net)
    is_large = batch == 8192
    times_of(
        stage,
        f"{name}: PyTorch graph / ours",
        theirs["graph"],
        graph["us"],
        1.3 if is_large and precision == "highest" else 2,
    )
    if not is_large:
        eager = bench.step(stage, precision, batch, net, graph=False)
        times_of(stage, f"{name}: PyTorch eager / ours without a graph", theirs["eager"], eager["us"], 5)
    if batch == 64 or (precision == "high" and not is_large):
        times_of(stage, f"{name}: PyTorch eager / our graph", theirs["eager"], graph["us"], 20)


def beside_floor(stage, name, precision, batch, graph):
    products, count = bench.floor(stage, "products", precision, batch, *stage.check.sizes.net)
    floor = products + OTHER_KERNEL_US * (graph["graph_nodes"] - count)
    stage.judge(
        f"{name}: graph / floor",
        graph["us"] / floor,
        "<=",
        1.4,
        "x",
        f"{graph['us']:.2f} us, {count:.0f} products {products:.2f} us, {graph['graph_nodes']} nodes",
    )


def times_of(stage, name, theirs, ours, least):
    stage.judge(name, theirs / ours, ">=", least, "x", f"{theirs:.1f} us / {ours:.1f} us")


def wide_net(stage):
    sizes = stage.check.sizes
    step = bench.step(stage, "highest", sizes.wide_batch, sizes.wide, graph=True, limit=60)
    (rate,) = bench.floor(stage, "sgemm", "highest", sizes.sgemm, limit=60)
    stage.judge(
        f"wide net, batch {sizes.wide_batch}, highest: share of the SGEMM rate",
        step["gflops"] / 1e3 / rate,
        ">=",
        0.95,
        "",
        f"{step['us']:.0f} us, {step['gflops'] / 1e3:.3g} of {rate:.3g} TFLOP/s",
    )


def wide_net_tf32(stage):
    sizes = stage.check.sizes
    step = bench.step(stage, "high", sizes.wide_batch, sizes.wide, graph=True, limit=60)
    theirs = bench.peer_step(stage, "high", sizes.wide_batch, sizes.wide)
    times_of(
        stage,
        f"wide net, batch {sizes.wide_batch}, high: PyTorch graph / ours",
        theirs["graph"],
        step["us"],
        1.25,
    )


def epoch(stage):
    sizes = stage.check.sizes
    rows, batch = sizes.epoch_rows, sizes.epoch_batch
    row = bench.train(
        stage,
        "epoch",
        "--graph",
        "--dataset",
        f"synthetic:{rows}x{sizes.net[0]}x{sizes.net[-1]}",
        "--model",
        bench.mlp(sizes.net),
        "--batch",
        batch,
        "--epochs",
        6,
        "--lr",
        0.01,
    )
    ours = 1e6 * min(row["epoch_seconds"][1:])
    step = bench.step(stage, "highest", batch, sizes.net, graph=True)
    steps = -(-rows // batch)
    stage.judge(
        f"epoch of {rows} rows from host memory / {steps} graph steps",
        ours / (steps * step["us"]),
        "<=",
        1.1,
        "x",
        f"{ours:.0f} us, step {step['us']:.2f} us",
    )
    theirs = stage.check.peer.ask({"measure": "epoch", "rows": rows, "batch": batch, "sizes": sizes.net}, 60)
    times_of(stage, "the same epoch: PyTorch eager / ours", theirs["epoch"], ours, 10)


def logical_devices(stage):
    flags = bench.ddp_flags(stage.check.sizes, 12)
    one, four = (
        1e6 * bench.train(stage, name, *flags, *extra)["step_seconds"]
        for name, extra in (("one_device", []), ("four_devices", bench.FOUR_RANKS))
    )
    stage.judge(
        f"DDP on 4 logical devices, batch {stage.check.sizes.ddp_batch} / one device",
        four / one,
        "<=",
        1.5,
        "x",
        f"{four:.1f} us / {one:.1f} us",
    )


def all_reduce(stage):
    size = stage.check.sizes.all_reduce
    path = stage.file("all_reduce").with_suffix(".json")
    stage.succeed(
        "all_reduce",
        [
            stage.check.lockstep,
            "bench",
            "all-reduce",
            "--device",
            "cuda",
            "--virtual-devices",
            "cuda:0*4",
            "--devices",
            4,
            "-b",
            size,
            "-e",
            size,
            "-n",
            200,
            "-c",
            "--json",
            path,
        ],
        30,
    )
    time = json.loads(path.read_text())["rows"][0]["time_us"]
    stage.judge(f"all-reduce of {size}iB among 4 logical devices", time, "<=", 20, "us")


def between_gpus(stage, count):
    path = stage.file("between_gpus").with_suffix(".json")
    stage.succeed(
        "between_gpus",
        [
            stage.check.lockstep,
            "bench",
            "all-reduce",
            "--device",
            "cuda",
            "--devices",
            count,
            "-b",
            "64K",
            "-e",
            "64M",
            "-f",
            32,
            "-c",
            "--json",
            path,
        ],
        40,
    )
    for row in json.loads(path.read_text())["rows"]:
        stage.line(
            f"all-reduce of {row['bytes']} bytes between {count} GPUs",
            "measured",
            figure=row["time_us"],
            unit="us",
            detail=f"{row['busbw_gb_per_s']:.4g} GB/s bus bandwidth, {row['plan']}",
        )


def run(stage):
    sizes = stage.check.sizes
    for batch in sizes.batches:
        for precision in ("highest", "high"):
            stage.part(f"small net, batch {batch}, {precision}", small_net, precision, batch)
    stage.part("DDP on 4 logical devices", logical_devices)
    stage.part("all-reduce among 4 logical devices", all_reduce)
    stage.part("epoch from host memory", epoch)
    stage.part("wide net beside SGEMM", wide_net)
    stage.part("wide net beside PyTorch", wide_net_tf32)
    for count in (2, 4, 8):
        if count <= stage.check.num_gpus:
            stage.part(f"all-reduce between {count} GPUs", between_gpus, count)
