"""What the tuner chose for each product, from the file of LOCKSTEP_TUNING_CACHE (kernels/cuda/tuning_cache.h), and
what became of each epilogue that it tried, from the logs of the programs (kernels/cuda/tuner.cpp)."""

import re

from stage import Skipped

# cublasLtEpilogue_t
NAMES = {
    1: "DEFAULT",
    2: "RELU",
    4: "BIAS",
    6: "RELU_BIAS",
    32: "GELU",
    36: "GELU_BIAS",
    130: "RELU_AUX",
    134: "RELU_AUX_BIAS",
    136: "DRELU",
    152: "DRELU_BGRAD",
    160: "GELU_AUX",
    164: "GELU_AUX_BIAS",
    192: "DGELU",
    208: "DGELU_BGRAD",
    256: "BGRADA",
    512: "BGRADB",
}
FINISHES = ("none", "forward", "gradient", "bias gradient", "gradient with its sums")
# Places in a product's key (kernels/cuda/product_plan.cpp).
ROWS, COLUMNS, INNER, FINISH, ACTIVATION, VECTOR = 3, 4, 5, 14, 15, 16
DEFAULT = 1
COMPUTE = {68: "float32", 75: "bfloat16", 77: "TF32"}  # cublasComputeType_t


def is_left_to_kernels(key, epilogue):
    """Whether a kernel of our own has to finish what the product's epilogue leaves undone."""
    finish = FINISHES[key[FINISH]]
    if finish == "none":
        return False
    if finish == "forward" and key[VECTOR] and key[ACTIVATION]:
        return epilogue not in (6, 36, 134, 164)
    if finish == "forward" and not key[VECTOR] and not key[ACTIVATION]:
        return False
    if finish == "gradient with its sums":
        return epilogue not in (152, 208)
    return epilogue == DEFAULT


def show_choices(stage):
    """How many products our own kernels finish; then a line for each product: epilogue, algorithm, time."""
    path = stage.check.tuning_cache
    if not path.exists():
        raise Skipped("no product was tuned")
    products = [parse(line) for line in path.read_text().splitlines()[1:]]
    left = [product for product in products if is_left_to_kernels(product["key"], product["epilogue"])]
    stage.line(
        "products whose finish is left to a kernel",
        "measured",
        figure=len(left),
        detail=f"of {len(products)}, of which "
        f"{sum(FINISHES[product['key'][FINISH]] != 'none' for product in products)} have a finish",
    )
    for product in products:
        show(stage, product, ", then a kernel" if product in left else "")


TRIED = re.compile(r"epilogues of (.+) \[(\d+), (\d+)\] x (\d+): (.+)$", re.MULTILINE)
ONE = re.compile(r"(\d+): (\d+) found, (\d+) refused(?:, ([\d.]+) us)?")


def show_tried(stage):
    """A line for each product that was tuned: how many epilogues the library refuses, and what became of each."""
    found = [
        match
        for log in sorted(stage.check.logs.glob(f"{stage.name}-*.log"))
        for match in TRIED.findall(log.read_text(errors="replace"))
    ]
    if not found:
        raise Skipped("no product was tuned")
    for operation, rows, columns, inner, text in found:
        tried = ONE.findall(text)
        stage.line(
            f"epilogues of {operation} {rows}x{columns}x{inner}",
            "measured",
            figure=sum(not microseconds for _, _, _, microseconds in tried),
            unit="refused",
            detail="; ".join(what_became_of(*one) for one in tried),
        )


def what_became_of(epilogue, num_found, num_refused, microseconds):
    name = NAMES.get(int(epilogue), epilogue)
    if num_found == "0":
        return f"{name} has no algorithm"
    fastest = f", {microseconds} us" if microseconds else ""
    return f"{name} {num_found} algorithms, {num_refused} refused{fastest}"


def parse(line):
    _, version, key, figures, algorithm = line.split("\t")
    epilogue, workspace, microseconds = figures.split()
    return {
        "version": version,
        "key": [int(number) for number in key.split()],
        "epilogue": int(epilogue),
        "workspace": workspace,
        "microseconds": float(microseconds),
        "algorithm": " ".join(algorithm.split()[:2]),
    }


def show(stage, product, extra):
    key, epilogue = product["key"], product["epilogue"]
    stage.line(
        f"product {key[ROWS]}x{key[COLUMNS]}x{key[INNER]}, {COMPUTE.get(key[0], key[0])}, "
        f"{FINISHES[key[FINISH]]}",
        "measured",
        figure=product["microseconds"],
        unit="us",
        detail=f"{NAMES.get(epilogue, epilogue)}{extra}; workspace {product['workspace']} B, "
        f"cuBLASLt {product['version']}, algorithm {product['algorithm']}",
    )
