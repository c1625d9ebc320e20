"""Which machine a published table means by "hardware" and "interconnect": a preset of `lockstep predict`, a PCIe
server with another GPU's figures, or a cluster of either."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

PRESETS = Path(__file__).resolve().parents[1] / "simulate" / "predict" / "topologies"
MAX_HOSTS = 4096
# By the generation of PCIe.
SERVERS = {3: "gtx1080ti-pcie3-8", 4: "a6000-pcie4-8", 5: "rtx5090-pcie5-8"}
SWITCHES = "pcie3-switches-8"  # all GPUs below one socket, as more than four can only be through switches
MACHINES = ["server", "servers", "node", "nodes", "box", "machine", "machines", "host", "hosts"]


class UnknownHardware(Exception):
    """Why there is no machine."""


@dataclass
class Gpu:
    preset: str = ""  # a machine of these over PCIe
    nvlink_preset: str = ""
    nvlink: int = 0  # generation of its NVLinks
    pcie: int = 3
    has_peers: bool = True  # reads other GPUs' memory over PCIe; GeForce cards since Turing don't
    sheet: tuple = ()  # without a preset: name, float32 TFLOP/s, GB/s, GB of memory (NVIDIA's data sheets)

    def device(self):
        if not self.sheet:
            return read_preset(self.preset or self.nvlink_preset)["device"]
        return dict(zip(("name", "tflops", "memory_gb_per_s", "memory_gb"), self.sheet))


# By the words of a name, as words_of() writes them.
GPUS = {
    "k80": Gpu("k80-p2-16x"),
    "titan x": Gpu("titanx-maxwell-dual-root-8"),
    "titan x maxwell": Gpu("titanx-maxwell-dual-root-8"),
    "titan x pascal": Gpu("titanx-pascal-dual-root-8"),
    "gtx 1080 ti": Gpu("gtx1080ti-pcie3-8"),
    "1080 ti": Gpu("gtx1080ti-pcie3-8"),
    "p100": Gpu("", "dgx1-p100", 1),
    "v100": Gpu("", "dgx1-v100", 2),
    "a100": Gpu("", "dgx-a100", 3, 4),
    "h100": Gpu("", "hgx-h100-8", 4, 5),
    "h200": Gpu("", "hgx-h200-8", 4, 5),
    "3090": Gpu("rtx3090-pcie4-8", "rtx3090-nvlink-8", 3, pcie=4, has_peers=False),
    "4090": Gpu("rtx4090-pcie4-8", pcie=4, has_peers=False),
    "5090": Gpu("rtx5090-pcie5-8", pcie=5, has_peers=False),
    "a6000": Gpu("a6000-pcie4-8", pcie=4),
    "m40": Gpu(sheet=("Tesla M40", 6.8, 288, 12)),
    "gtx 980": Gpu(sheet=("GTX 980", 4.6, 224, 4)),
    "gtx 1070": Gpu(sheet=("GTX 1070", 6.5, 256, 8)),
    "gtx 1080": Gpu(sheet=("GTX 1080", 8.9, 320, 8)),
    "titan xp": Gpu(sheet=("TITAN Xp", 12.1, 547.6, 12)),
    "titan v": Gpu(sheet=("TITAN V", 14.9, 653, 12)),
    "p40": Gpu(sheet=("Tesla P40", 11.8, 346, 24)),
    "t4": Gpu(sheet=("T4", 8.1, 320, 16)),
    "2080": Gpu(has_peers=False, sheet=("RTX 2080", 10.1, 448, 8)),
    "2080 ti": Gpu(has_peers=False, sheet=("RTX 2080 Ti", 13.4, 616, 11)),
    "titan rtx": Gpu(has_peers=False, sheet=("TITAN RTX", 16.3, 672, 24)),
    "rtx 8000": Gpu(sheet=("Quadro RTX 8000", 16.3, 672, 48)),
    "3080": Gpu(pcie=4, has_peers=False, sheet=("RTX 3080", 29.8, 760, 10)),
    "a10": Gpu(pcie=4, sheet=("A10", 31.2, 600, 24)),
    "a10g": Gpu(pcie=4, sheet=("A10G", 35, 600, 24)),
    "a40": Gpu(pcie=4, sheet=("A40", 37.4, 696, 48)),
    "rtx 6000 ada": Gpu(pcie=4, sheet=("RTX 6000 Ada", 91.1, 960, 48)),
    "l4": Gpu(pcie=4, sheet=("L4", 30.3, 300, 24)),
    "l40": Gpu(pcie=4, sheet=("L40", 90.5, 864, 48)),
    "l40s": Gpu(pcie=4, sheet=("L40S", 91.6, 864, 48)),
}


def read_preset(name):
    machine = json.loads((PRESETS / f"{name}.json").read_text())
    return {**read_preset(machine.pop("like")), **machine} if "like" in machine else machine


def words_of(name):
    """" gtx 1080 ti pascal " for "GTX1080Ti (Pascal)"; "PCI Express", "PCIe Gen3" and "PCIe 3.0" are "pcie" and
    "pcie3", likewise NVLink's."""
    text = " ".join(re.findall(r"[a-z0-9]+", name.lower()))
    text = re.sub(r"\bpci express\b", "pcie", text)
    text = re.sub(r"\b(pcie|nvlink) gen ?(?=\d\b)", r"\1 ", text)
    text = re.sub(r"\b(pcie|nvlink) gen\b", r"\1", text)
    text = re.sub(r"\b(pcie|nvlink) (\d)\b", r"\1\2", text)
    text = re.sub(r"\b(gtx|rtx|titan|tesla|quadro|dgx|hgx|nvidia)(?=[a-z0-9])", r"\1 ", text)
    text = re.sub(r"(?<=\d)ti\b", " ti", text)
    return f" {text} "


def has_words(words, *phrases):
    return any(f" {phrase} " in words for phrase in phrases)


def split_count(hardware):
    """"DGX-1 x2" and "2x DGX-1": ("DGX-1", 2)."""
    for pattern, name, count in ((r"(.+) x(\d+)", 1, 2), (r"(\d+)x *(.+)", 2, 1)):
        match = re.fullmatch(pattern, hardware)
        if match and 1 <= int(match[count]) <= MAX_HOSTS:
            return match[name], int(match[count])
    return hardware, 1


def network_speed(interconnect):
    """(ports of a host, Gb/s of each) of "100GbE", "8x400GbE", "25 Gb/s", "12.5 GB/s", or None. A figure in bytes
    beside the name of a link within a host ("NVLink 300 GB/s") is that link's."""
    inner = re.search(r" (nvlink|nvswitch|pcie)", words_of(interconnect))
    number = r"(?<![\w.-])(?:(\d+) *[xX] *)?(\d+(?:\.\d+)?(?:e\d+)?) *"
    bits = r"(?P<bits>GbE|GBE|gbe|Gbe|Gbits?/s|[Gg]bit|[Gg]b/s|[Gg]bps|[Gg]b|[Gg])"
    for match in re.finditer(number + rf"(?:{bits}|(?P<bytes>GB/s|GBps))(?![\w])", interconnect):
        if match["bytes"] and inner:
            continue
        ports, speed = int(match[1] or 1), float(match[2]) * (8 if match["bytes"] else 1)
        return (ports, speed) if 1 <= ports <= 64 and 0 < speed <= 1e5 else None
    return None


def links_of(words):
    """({pcie, nvlink, nvswitch that are named}, generation of the link or 0)."""
    named = set(re.findall(r" (pcie|nvlink)[1-6]?(?= )", words)) | set(re.findall(r" (nvswitch)(?= )", words))
    generations = re.findall(r" (?:pcie|nvlink)([1-6])(?= )", words)
    if named & {"nvlink", "nvswitch"}:
        named.discard("pcie")  # how they reach the host
    return named, int(generations[-1]) if generations else 0


def find_gpu(words):
    """The GPU with the longest name in the words; a "980 Ti" or a "2080 Super" is another GPU."""
    found = [name for name in GPUS if has_words(words, name) and not has_words(words, f"{name} ti", f"{name} super")]
    name = max(found, key=len, default=None)
    if name == "titan x" and has_words(words, "pascal"):
        name = "titan x pascal"
    return GPUS.get(name)


def find_host(hardware, interconnect):
    """(name of a preset, the GPU that takes the place of its own or None)."""
    words = words_of(hardware)
    named, generation = links_of(words_of(interconnect))
    if not named:
        named, generation = links_of(words)
    gpu = find_gpu(words)
    if gpu is None:
        if has_words(words, "pcie3 box", "pcie3 server"):
            return SWITCHES, None
        known = ", ".join(name.upper() for name in GPUS if name != "1080 ti")
        raise UnknownHardware(f"'{hardware}' names no GPU that is known: {known}")
    wants_switch = "nvswitch" in named or has_words(words, "dgx 2")
    if wants_switch or "nvlink" in named:
        is_other = "nvlink" in named and generation not in (0, gpu.nvlink)
        if not gpu.nvlink_preset or (wants_switch and gpu.nvlink < 3) or is_other:
            link = "an NVSwitch" if wants_switch else f"NVLink{generation or ''}"
            raise UnknownHardware(f"no preset has '{hardware}' joined by {link}")
        return gpu.nvlink_preset, None
    if not named and gpu.nvlink_preset and not gpu.preset:
        return gpu.nvlink_preset, None
    generation = generation or gpu.pcie
    if has_words(words_of(interconnect), "single root") and generation == 3:
        return SWITCHES, gpu
    if gpu.preset and generation == gpu.pcie:
        return gpu.preset, None
    if generation not in SERVERS:
        raise UnknownHardware(f"no preset is a server of PCIe{generation}: PCIe3, PCIe4 and PCIe5 are known")
    return SERVERS[generation], gpu


def give_slots(machine, socket_gb_per_s):
    """Four GPUs in slots of their own, two to a socket: a server of two sockets has enough lanes for four, but not for
    eight."""
    pcie = next(link for link in machine["links"] if link["kind"] == "pcie")["gb_per_s"]
    gpus = [f"gpu{i}" for i in range(4)]
    nodes = {**dict.fromkeys(gpus, "gpu"), "cpu0": "cpu", "cpu1": "cpu"}
    machine["nodes"] = [{"name": name, "kind": kind} for name, kind in nodes.items()]
    machine["links"] = [{"from": gpu, "to": f"cpu{i // 2}", "kind": "pcie", "gb_per_s": pcie}
                        for i, gpu in enumerate(gpus)]  # fmt: skip
    machine["links"].append({"from": "cpu0", "to": "cpu1", "kind": "socket", "gb_per_s": socket_gb_per_s})


def write_host(folder, name, preset, gpu, per_host, has_peers, socket_gb_per_s=None):
    """A file with the preset's machine, with another GPU or fewer of them, without peer access, or, if the speed
    between its sockets is given, with a slot for each GPU."""
    machine = read_preset(preset)
    if socket_gb_per_s:
        give_slots(machine, socket_gb_per_s)
    gpus = [node["name"] for node in machine["nodes"] if node["kind"] == "gpu"]
    gone = set(gpus[per_host:])
    machine["nodes"] = [node for node in machine["nodes"] if node["name"] not in gone]
    machine["links"] = [link for link in machine["links"] if not gone & {link["from"], link["to"]}]
    if gpu:
        machine["device"] = gpu.device()
        machine["peer_access"] = gpu.has_peers
        if gpu.has_peers:
            machine["host"].pop("staging", None)
    if not has_peers:
        machine["peer_access"] = False
    path = Path(folder) / f"{name.replace(' ', '_').replace('/', '_')}-{per_host}.json"
    path.write_text(json.dumps(machine))
    return str(path)


def find_hardware(hardware, interconnect, num_gpus, folder):
    """(what --topology takes, the machine's name). As many full hosts as the GPUs need; "x2" after a DGX, HGX,
    server or node counts hosts, of which a server may be partly filled; after a GPU it counts GPUs. A machine that no
    preset is goes into a file in the folder. Raises UnknownHardware."""
    name, count = split_count(hardware)
    preset, gpu = find_host(name, interconnect)
    words = words_of(name)
    is_full = has_words(words, "dgx", "hgx")
    counts_hosts = is_full or has_words(words, *MACHINES)
    in_preset = sum(node["kind"] == "gpu" for node in read_preset(preset)["nodes"])
    slots = has_words(words_of(interconnect), "own slots")
    per_host = in_preset = 4 if slots else in_preset
    if counts_hosts and not is_full and 1 < count <= num_gpus:
        per_host = min(in_preset, -(-num_gpus // count))
    num_hosts = -(-num_gpus // per_host)
    if counts_hosts and 1 < count < num_hosts:
        raise UnknownHardware(f"'{hardware}' is {count} hosts of {per_host} GPUs each, the row has {num_gpus} GPUs")
    shown = f"{preset} with {gpu.device()['name']}" if gpu else preset
    has_peers = not has_words(words_of(interconnect), "without peer access")
    shown += "" if has_peers else " without peer access"
    # Broadwell's QPI, unless it is Skylake's UPI: NCCL's src/graph/topo.h.
    socket = (10 if has_words(words_of(interconnect), "upi") else 6) if slots else None
    shown += f" in slots of their own, {socket} GB/s between sockets" if slots else ""
    is_preset = not gpu and per_host == in_preset and has_peers and not slots
    topology = preset if is_preset else write_host(folder, shown, preset, gpu, per_host, has_peers, socket)
    if num_hosts == 1:
        return topology, shown
    speed = network_speed(interconnect)
    if speed is None:
        raise UnknownHardware(
            f"{num_gpus} GPUs are {num_hosts} hosts of '{shown}' with {per_host} each, and '{interconnect}' says no "
            "speed of the network between them, such as 100GbE, 8x400GbE or 12.5 GB/s"
        )
    ports = f"{speed[0]}x" if speed[0] > 1 else ""
    cluster = f"*{num_hosts}@{ports}{speed[1]:g}gbe"
    return topology + cluster, shown + cluster
