"""suite, at most 4 minutes: every test that a GPU runs, the tutorials, gradients, compare, NCCL on one card."""

import signal

from gtests import run_groups
from stage import Failed, Skipped

SECONDS = 240
AT_ONCE = 4
SECONDS_OF_TESTS = 150  # what comes after them is to be run, too
SECONDS_A_TEST = 60
NO_NCCL = ("built without NCCL", "no NCCL was found")
REHEARSED_TUTORIALS = ("01_list_devices",)


def untuned_where_it_may(environment):
    """Timing products beside other tests says nothing; those that are about products tune all the same."""
    if environment.get("LOCKSTEP_TEST_DEVICE") != "cuda":
        return environment
    return {**environment, "LOCKSTEP_TUNING": "off"}


def tests(stage):
    groups = stage.check.programs.groups()
    if not groups:
        raise Failed("the build has no tests for a GPU")
    untuned = [{**group, "environment": untuned_where_it_may(group["environment"])} for group in groups]
    run_groups(stage, untuned, AT_ONCE, SECONDS_OF_TESTS, SECONDS_A_TEST)


def tutorial(stage, name):
    programs = stage.check.programs
    stage.passes(
        f"tutorial {name} --device cuda",
        [
            "bash",
            programs.check_output,
            programs.bin / name,
            programs.tutorial_sources / f"{name}.cpp",
            "cuda",
        ],
        60,
    )


def gradients(stage, precision):
    command = [stage.check.lockstep, "check-gradients", "--device", "cuda", "--matmul-precision", precision]
    command += stage.check.sizes.gradients
    stage.passes(f"gradients beside Eigen in double, {precision}", command, 60)


def lacks_nccl(outcome):
    """Whether a program said that it, or this machine, has no NCCL."""
    return bool(outcome.problem) and any(phrase in outcome.text for phrase in NO_NCCL)


def compare(stage, name, *flags):
    command = [
        stage.check.lockstep,
        "compare",
        "--device",
        "cuda",
        "--dataset",
        "digits",
        "--json",
        stage.file("compare").with_suffix(".json"),
        "--model",
        stage.check.sizes.compare_net,
    ]
    outcome = stage.run(name, [*command, *flags], 60)
    if "nccl" in flags and lacks_nccl(outcome):
        raise Skipped(outcome.problem)
    detail = f"{outcome.problem} ({outcome.log.name})" if outcome.problem else f"{outcome.seconds:.1f} s"
    stage.line(name, "FAILED" if outcome.problem else "ok", detail=detail, seconds=outcome.seconds)


def killed_rank(stage, name):
    """Rank 1 of 2 that train over NCCL is killed: rank 0 must not wait for ever."""
    train = (
        f"{stage.check.lockstep} train --device cuda --parallel ddp --comm nccl --nccl-share-gpu "
        "--virtual-devices cuda:0*2 --steps 100000000 --comm-timeout 10"
    )
    rank = f'if [ "$RANK" = 1 ]; then (sleep 6; kill -KILL $$) & fi; exec {train}'
    launcher = [stage.check.lockstep, "run", "--standalone", "--nproc-per-node", 2, "--", "bash", "-c", rank]
    outcome = stage.run(name, launcher, 60)
    if lacks_nccl(outcome):
        raise Skipped(outcome.problem)
    is_right = outcome.code == 128 + signal.SIGKILL and "rank 1 failed first" in outcome.text
    detail = f"{outcome.seconds:.1f} s, {outcome.problem or 'it ended well'} ({outcome.log.name})"
    stage.line(name, "ok" if is_right else "FAILED", detail=detail, seconds=outcome.seconds)


def run(stage):
    is_small = stage.check.is_emulated
    stage.part("gradients", gradients, "highest")
    name = "compare: dp and ddp on logical devices equal one device"
    counts, virtual = ("1,2", "cuda:0*2") if is_small else ("1,2,4,8", "cuda:0*8")
    short = ["--steps", 4] if is_small else ["--epochs", 2]
    stage.part(
        name, compare, name, "--modes", "dp,ddp", "--devices", counts, "--virtual-devices", virtual, *short
    )
    stage.part("tests", tests)
    for count in (2,) if is_small else (2, 4):
        name = f"compare: ddp over NCCL, {count} ranks share the GPU"
        stage.part(
            name,
            compare,
            name,
            "--modes",
            "ddp",
            "--comm",
            "nccl",
            "--nccl-share-gpu",
            "--ranks",
            "processes",
            "--devices",
            count,
            "--virtual-devices",
            f"cuda:0*{count}",
            "--steps",
            4 if is_small else 40,
        )
    name = "NCCL: a killed rank ends the other one"
    stage.part(name, killed_rank, name)
    for precision in ("high", "medium"):
        stage.part("gradients", gradients, precision)
    for program in stage.check.programs.lists()["tutorials"]:
        if not is_small or program in REHEARSED_TUTORIALS:
            stage.part(f"tutorial {program}", tutorial, program)
