#!/usr/bin/env python3
"""The six models of `examples/h200_suite.py`: compiled, under max-autotune, and as `kernelopt tune` leaves them.

    PYTHONPATH=python python3 tests/gpu/suite.py --kernelopt target/release/kernelopt --out results [MODEL...]

For each model: capture, tune without a language model, then time all three in one process, in turns, by events, the L2 cache
flushed before each. Writes one `MODEL.json` with raw samples, and a table to stdout. Needs a GPU, torch, triton and, for llama
and bert, transformers.

A search ends at 70 % of its budget, and the profile, which imports torch, comes first. So byte code of torch that is missing is written
before anything else (`byte_code.py`).
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

from byte_code import keep_byte_code

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "examples/h200_suite.py"
MODELS = ["softmax", "cross_entropy", "group_norm", "rms", "llama", "bert"]
ROUNDS = 60
"""Timed rounds; each has every variant once, in random order."""
FLUSH_BYTES = 256 << 20
"""More than twice the L2 cache of any GPU there is."""
RESAMPLES = 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--kernelopt", type=Path, default=ROOT / "target/release/kernelopt")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/kernelopt-suite"), help="bundles and output folders")
    parser.add_argument("--budget", default="60s", help="of each search")
    parser.add_argument("--compare", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        print(json.dumps(compare(options.compare, options.work)))
        return 0
    keep_byte_code()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    capture_all(options)
    failed = []
    for model in options.models:
        try:
            measure(model, options)
        except subprocess.CalledProcessError as error:
            failed.append(model)
            print(f"{model}: {' '.join(map(str, error.cmd[:4]))} ended with {error.returncode}", flush=True)
    return 1 if failed else 0


def capture_all(options: argparse.Namespace) -> None:
    """Captures side by side: most of a capture is spent on importing torch. One that fails is missed by its search."""
    words = [sys.executable, "-m", "kernelopt", "capture"]
    captures = [
        subprocess.Popen([*words, f"{SUITE}:{model}", "-o", options.work / model, "--device", "cuda", "--force"], env=environment())
        for model in options.models
    ]
    for capture in captures:
        capture.wait()


def measure(model: str, options: argparse.Namespace) -> None:
    """Tunes and compares one model; what was found is written after each of the two."""
    bundle, out, place = options.work / model, options.work / f"{model}-out", options.out / f"{model}.json"
    shutil.rmtree(out, ignore_errors=True)
    row: dict = {"model": model, "seconds": {}}

    def run(name: str, *command: object, **more: object) -> subprocess.CompletedProcess:
        began = time.monotonic()
        done = subprocess.run([str(word) for word in command], check=True, env=environment(), **more)
        row["seconds"][name] = round(time.monotonic() - began, 1)
        return done

    run("tune", options.kernelopt, "tune", bundle, "-o", out, "--budget", options.budget)
    row["result"] = json.loads((out / "result.json").read_text())
    row["search"] = search(out / "journal.db")
    place.write_text(json.dumps(row) + "\n")
    compared = run(
        "compare", sys.executable, __file__, "--compare", model, "--out", options.out, "--work", options.work, stdout=subprocess.PIPE
    )
    row |= json.loads(compared.stdout)
    place.write_text(json.dumps(row) + "\n")
    print(line(model, row), flush=True)


def search(journal: Path) -> dict:
    """From the profile's end to the last look: seconds, first looks and their number a minute, and the share of that time in which the
    device verified and measured."""
    with contextlib.closing(sqlite3.connect(journal)) as opened:
        events = [(kind, ms, json.loads(body)) for kind, ms, body in opened.execute("select kind, active_ms, body from event order by seq")]
    began = next(ms for kind, ms, _ in events if kind == "profiled")
    looks = [(ms, body) for kind, ms, body in events if kind == "judged" and body["depth"] in ("screen", "full")]
    if not looks:
        return {"seconds": 0.0, "candidates": 0}
    spent_ms = looks[-1][0] - began
    busy = {name: sum(body["outcome"]["evidence"][f"{name}_ms"] for _, body in looks) / spent_ms for name in ("verify", "measure")}
    candidates = sum(body["depth"] == "screen" for _, body in looks)
    return {"seconds": spent_ms / 1e3, "candidates": candidates, "a_minute": 6e4 * candidates / spent_ms, "share": busy}


def environment() -> dict[str, str]:
    """What child processes find this Python and the package by."""
    path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "KERNELOPT_PYTHON": sys.executable, "PYTHONPATH": path}


def compare(model: str, work: Path) -> dict:
    """Microseconds of every variant in every round, and ratios with intervals."""
    sys.path[:0] = [str(ROOT / "python"), str(SUITE.parent)]
    import h200_suite
    import torch

    import kernelopt

    function, arguments = getattr(h200_suite, model)()
    with torch.no_grad():
        variants = {"eager": function, "ours": kernelopt.load(work / f"{model}-out")}
        for name, mode in (("compiled", None), ("max_autotune", "max-autotune-no-cudagraphs")):
            torch._dynamo.reset()
            variants[name] = torch.compile(function, mode=mode)
            variants[name](*arguments)
        for variant in variants.values():
            for _ in range(5):
                variant(*arguments)
        samples = time_in_turns(variants, arguments)
    medians = {name: statistics.median(times) for name, times in samples.items()}
    ratios = {other: ratio(samples["ours"], samples[other]) for other in samples if other != "ours"}
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "medians_us": medians,
        "ours_over": ratios,
        "samples_us": samples,
    }


def time_in_turns(variants: dict, arguments: tuple) -> dict[str, list[float]]:
    """Every variant once a round, in random order, by events; the cache flushed and the queue kept full."""
    import torch

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    order, samples = random.Random(0), {name: [] for name in variants}
    for _ in range(ROUNDS):
        laps = []
        for name in order.sample(list(variants), len(variants)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # Long enough for the processor to have queued the whole call, so that only the device's time counts.
            torch.cuda._sleep(2_000_000)
            flush.zero_()
            begin.record()
            variants[name](*arguments)
            end.record()
            laps.append((name, begin, end))
        torch.cuda.synchronize()
        for name, begin, end in laps:
            samples[name].append(1e3 * begin.elapsed_time(end))
    return samples


def ratio(ours: list[float], other: list[float]) -> dict[str, float]:
    """Median of the rounds' ratios with its 95 % bootstrap interval (percentile method)."""
    ratios = [a / b for a, b in zip(ours, other, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return {"estimate": statistics.median(ratios), "low": medians[int(0.025 * RESAMPLES)], "high": medians[int(0.975 * RESAMPLES)]}


def line(model: str, row: dict) -> str:
    """One row of the table. Generated kernels together: their share of the model's time, over what is left of it."""
    result, looks = row["result"], row["search"]
    times = "  ".join(f"{name} {row['medians_us'][name]:8.1f}" for name in ("eager", "compiled", "max_autotune", "ours"))
    over = "  ".join("over {} {estimate:.3f} [{low:.3f}, {high:.3f}]".format(name, **found) for name, found in row["ours_over"].items())
    shares = [(target["share"], target["speedup"]) for target in result["targets"]]
    after = sum(share / speedup for share, speedup in shares)
    kernels = f"{sum(share for share, _ in shares) / after:.2f}x" if after else "-"
    pace = "nothing looked at"
    if looks["candidates"]:
        busy = sum(looks["share"].values())
        pace = f"{looks['candidates']} candidates, {looks['a_minute']:.0f} a minute, the device busy {busy:.0%} of it"
    return f"{model:14} {times} us  {over}  generated kernels {kernels}  {result['model']['verdict']}  {pace}  {row['seconds']}"


if __name__ == "__main__":
    sys.exit(main())
