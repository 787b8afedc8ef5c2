#!/usr/bin/env python3
"""The Python package on a real GPU: capture, profile, gate and load, and whether what must be noticed is noticed.

    PYTHONPATH=python python3 tests/gpu/python_smoke.py [--out FOLDER]

Prints what it does and finds; ends with 1 where anything is not as it must be. Needs torch with CUDA and triton, nothing built.
"""

import argparse
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "examples/h200_suite.py"
BY_HAND = ROOT / "examples/triton_kernels.py"
HERE = Path(__file__).resolve()
GREATEST_CONTROL = 1.05
"""Median ratio of the original to itself that is still chance."""
GATE_ROUNDS = 40
"""Ten are too few on a busy host: a call of 70 us waits for the processor, and its median came out 6 % off."""


# ---- models, for `python -m kernelopt capture tests/gpu/python_smoke.py:NAME` ----


def transformer(device: str = "cuda"):
    """Two pre-norm layers with attention from the library, bfloat16."""
    sys.path.insert(0, str(ROOT / "examples"))
    from transformer_block import Block

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(1000, 256), Block(256, 8), Block(256, 8), nn.LayerNorm(256))
    return model.to(device, torch.bfloat16).eval(), (torch.randint(0, 1000, (4, 256), device=device),)


def small_softmax(device: str = "cuda"):
    """A softmax of four megabytes."""
    torch.manual_seed(0)
    return (lambda x: torch.softmax(x, -1)), (torch.randn(512, 2048, device=device),)


def attention(device: str = "cuda"):
    """The library's fused attention, which has no float64 of its own."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 8, 256, 64, device=device, dtype=torch.bfloat16).unbind()
    return (lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sin()), (q, k, v)


def mutating(device: str = "cuda"):
    """Changes an argument in place, and has indices."""
    torch.manual_seed(0)

    def model(table: torch.Tensor, ids: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
        rows = table[ids].tanh()
        sums.add_(rows)
        return rows.amax(-1)

    return model, (torch.randn(1000, 64, device=device), torch.randint(3, 990, (512,), device=device), torch.zeros(512, 64, device=device))


def too_large(device: str = "cuda"):
    """More than any GPU has."""
    return nn.Identity(), (torch.empty(1 << 44, device=device),)


# ---- checks ----


class Checks:
    """Counts what holds and what does not."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def that(self, holds: bool, what: str, found: object = "") -> None:
        """Prints a line; remembers it where it does not hold."""
        print(f"  {'ok  ' if holds else 'FAIL'} {what}{f': {found}' if found != '' and not holds else ''}", flush=True)
        if not holds:
            self.failed.append(what)


check = Checks()


def step(what: str, work: Callable[[], object]) -> object:
    """Runs a step and says how long it took."""
    started = time.monotonic()
    result = work()
    print(f"{what}: {time.monotonic() - started:.1f} s", flush=True)
    return result


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    """Runs `python -m kernelopt` in a process of its own."""
    paths = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    line = [sys.executable, "-m", "kernelopt", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths, **environment})


def captured(model: str, place: Path) -> None:
    """Captures in this process."""
    from kernelopt.capture import Options, capture

    step(f"capture {model}", lambda: capture(Options(model, place, device="cuda", force=True)))
    look_into(place)


def look_into(place: Path) -> None:
    """Prints what a bundle holds and checks it."""
    manifest = json.loads((place / "manifest.json").read_text())
    print(f"  {manifest['device']} {manifest['versions']} {manifest['precision']}")
    print("  " + ", ".join(f"{name} {entry['bytes'] / 1e6:.2f} MB" for name, entry in manifest["files"].items()))
    check.that(manifest["device"]["kind"] == "cuda" and manifest["device"]["name"] == torch.cuda.get_device_name(), "the GPU is named")
    check.that(manifest["versions"]["driver"] != "unknown", "the driver's version is known")
    check.that(re.fullmatch(r"GPU-[0-9a-f-]{36}", manifest["device"]["uuid"]) is not None, "the UUID is one", manifest["device"]["uuid"])
    for graph in manifest["graphs"]:
        description = json.loads((place / f"graph_{graph['index']}.json").read_text())
        sets = [(s["name"], s["reference"] is not None) for s in description["input_sets"]]
        which = f"graph {graph['index']}"
        check.that(all(present for _, present in sets), f"{which} has a reference on every input set", description["input_sets"])
        check.that("model" in description, f"{which} can be called as the model", description["inputs"])
        for kernel in json.loads((place / graph["meanings"]).read_text()):
            look_at(kernel)


def look_at(kernel: dict) -> None:
    """Prints one kernel's launch and checks it against its meaning."""
    name, launch = kernel["kernel"], kernel.get("launch")
    print(f"    {name}: {launch}")
    check.that(launch is not None, f"{name} has a launch")
    check.that(kernel["meaning"] is not None, f"{name} has a meaning", kernel.get("reason"))
    if launch is None or kernel["meaning"] is None:
        return
    names = [argument["name"] for argument in kernel["meaning"]["arguments"]]
    check.that(set(launch["divisible_by_16"]) <= set(names), f"{name}: aligned arguments are arguments", launch["divisible_by_16"])
    # A grid over constants of the launch is a formula.
    numbers = [int(extent) for extent in launch["grid"] if extent.isdigit()]
    check.that(all(number >= 1 for number in numbers), f"{name}: its grid is not empty", launch["grid"])
    read = {argument["name"] for argument in kernel["meaning"]["arguments"] if argument["role"] == "in"}
    check.that(read <= set(kernel["distributions"]), f"{name}: every input has a distribution", sorted(kernel["distributions"]))


def look_at_profile(result: dict) -> None:
    """Prints medians and checks that the kernels fit into their call."""
    for graph in result["graphs"]:
        call = statistics.median(graph["call_us"])
        print(f"  call {call:.1f} us over {len(graph['call_us'])}, watched {statistics.median(graph['watched_call_us']):.1f} us")
        total = 0.0
        for name, kernel in graph["kernels"].items():
            median = statistics.median(kernel["us"]) if kernel["us"] else 0.0
            total += median
            print(f"    {median:9.2f} us in {kernel['launches']} launches, {len(kernel['us'])} samples: {name}")
            check.that(median > 0 and kernel["launches"] > 0, f"{name} has times")
        check.that(total <= 1.1 * call, "the kernels' times fit into the call", f"{total:.1f} of {call:.1f} us")
        check.that(not graph["notes"], "the profiler gave the kernels' times", graph["notes"])


def look_at_gate(result: dict) -> None:
    """Checks that an unchanged model is found unchanged."""
    for input_set in result["input_sets"]:
        name = input_set["name"]
        ratios = [a / b for a, b in input_set["pairs_us"]], [a / b for a, b in input_set["control_us"]]
        pair, control = (statistics.median(r) for r in ratios)
        original = statistics.median(a for a, _ in input_set["pairs_us"])
        rounds = f"{len(ratios[0])} rounds of {input_set['runs_per_block']}"
        print(f"  {name}: {original:.1f} us, original over optimised {pair:.4f}, over control {control:.4f}, {rounds}")
        check.that(max(pair, 1 / pair) < GREATEST_CONTROL, f"{name}: the unchanged model is as fast", pair)
        check.that(max(control, 1 / control) < GREATEST_CONTROL, f"{name}: so is the control", control)
        check.that(not input_set["faults"], f"{name}: no faults", input_set["faults"])
        check.that(not input_set["notes"], f"{name}: no notes", input_set["notes"])
        check.that(not input_set["missing"] and input_set["inputs_intact"], f"{name}: nothing missing, inputs intact", input_set["missing"])
        for output in input_set["outputs"]:
            errors = output["max_error_baseline"], output["max_error_optimized"]
            print(f"    output {output['index']}: {output['dtype']}, scale {output['scale']:.3g}, errors {errors[0]:.3g} {errors[1]:.3g}")
            close = errors[0] is not None and errors[0] <= 0.05 * max(output["scale"], 1e-3)
            check.that(output["equal"] and output["layout_equal"] and close, f"{name}: the output is right", output)


def gated(place: Path) -> dict:
    """Gates a bundle, in this process, against its own files."""
    from kernelopt.gate import gate

    return gate(place, place, rounds=GATE_ROUNDS, seconds=0, seed=1)


def faults_of(place: Path, what: str, edit: Callable[[str], str]) -> list[str]:
    """Faults that the gate finds in an edited file. In a process of its own, since some leave the GPU's state spoilt."""
    code = (place / "output_code_0.py").read_text()
    assert edit(code) != code, "the edit changes nothing"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "output_code_0.py").write_text(edit(code))
        ended = step(f"gate, {what}", lambda: command("gate", place, "--optimized", folder, "--rounds", 5))
    check.that(ended.returncode == 0, f"gate ends with 0, {what}", ended.stderr[-3000:])
    result = json.loads(ended.stdout or '{"input_sets": []}')
    faults = [fault for input_set in result["input_sets"] for fault in input_set["faults"]]
    print("  " + "\n  ".join(dict.fromkeys(faults)))
    return faults


# ---- the parts ----


def by_command(folder: Path) -> None:
    """Everything through the command line, on the largest model."""
    place = folder / "softmax"
    ended = step("capture softmax", lambda: command("capture", f"{SUITE}:softmax", "-o", place, "--device", "cuda", "--force"))
    print(ended.stderr.strip())
    check.that(ended.returncode == 0, "capture ends with 0", ended.returncode)
    look_into(place)
    ended = step("profile softmax", lambda: command("profile", place))
    check.that(ended.returncode == 0, "profile ends with 0", ended.stderr[-3000:])
    look_at_profile(json.loads(ended.stdout))
    ended = step("gate softmax", lambda: command("gate", place, "--optimized", place, "--seconds", 5))
    check.that(ended.returncode == 0, "gate ends with 0", ended.stderr[-3000:])
    look_at_gate(json.loads(ended.stdout))


def errors(folder: Path) -> None:
    """Errors that people meet."""
    hidden = command("capture", f"{HERE}:small_softmax", "-o", folder / "none", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    check.that(hidden.returncode == 4 and "no GPU can be used" in hidden.stderr, "no GPU: said, exit code 4", hidden.stderr)
    large = command("capture", f"{HERE}:too_large", "-o", folder / "large", "--device", "cuda")
    check.that(large.returncode == 4 and "memory is not enough" in large.stderr, "too little memory: said, exit code 4", large.stderr)
    check.that("Traceback" not in hidden.stderr + large.stderr, "no traceback")


def in_process(folder: Path) -> None:
    """Three more models, each captured, profiled and gated unchanged."""
    from kernelopt.profile import profile

    for model in (f"{SUITE}:rms", f"{HERE}:transformer", f"{HERE}:attention", f"{HERE}:mutating"):
        place = folder / model.rpartition(":")[2]
        captured(model, place)
        look_at_profile(step("profile", lambda place=place: profile(place, 1.0, 0)))
        look_at_gate(step("gate", lambda place=place: gated(place)))


def by_hand(folder: Path) -> None:
    """Kernels that were written by hand: their launches, their grids, and the reference that launches their twins."""
    grids = {"gated": ["CeilDiv(16777216, BLOCK)", "1", "1"], "softmax": ["4096", "1", "1"]}
    for model, grid in grids.items():
        place = folder / f"by_hand_{model}"
        captured(f"{BY_HAND}:{model}", place)
        (kernel,) = json.loads((place / "meanings_0.json").read_text())
        check.that(kernel["meaning"] is not None and "program" in kernel["meaning"], f"{model}: the text is the meaning", kernel)
        check.that(kernel["launch"]["grid"] == grid, f"{model}: the grid is known", kernel["launch"]["grid"])
        look_at_gate(step("gate", lambda place=place: gated(place)))
        more = {"gated": ("configs=[{'num_warps': 1,", "configs=[{'num_warps': 4,"), "softmax": ("'num_warps': 4", "'num_warps': 16")}
        faults = faults_of(place, f"{model} with more warps", lambda code, model=model: code.replace(*more[model]))
        check.that(not faults, f"{model}: another launch is right", faults)


def events_instead_of_the_profiler(folder: Path) -> None:
    """The other way to time kernels gives the same times."""
    from kernelopt import kernel_times
    from kernelopt.profile import profile

    place = folder / "rms"
    by_trace = profile(place, 0.5, 0)["graphs"][0]
    traced = kernel_times._durations_ns
    kernel_times._durations_ns = lambda trace: {}
    by_events = step("profile by events", lambda: profile(place, 0.5, 0))["graphs"][0]
    kernel_times._durations_ns = traced
    print(f"  {by_events['notes']}")
    for name, kernel in by_events["kernels"].items():
        a, b = statistics.median(kernel["us"]), statistics.median(by_trace["kernels"][name]["us"])
        check.that(0.95 * b <= a <= 1.1 * b + 10, f"{name}: {a:.1f} us by events, {b:.1f} us by the profiler")


def integer_ends(folder: Path) -> None:
    """Indices are drawn between the ends of what was captured, so these must be exact."""
    kernels = json.loads((folder / "mutating/meanings_0.json").read_text())
    ids = mutating()[1][1]
    ends = [(d["quantiles"][0], d["quantiles"][-1]) for kernel in kernels for d in kernel["distributions"].values()]
    expected = (float(ids.min()), float(ids.max()))
    check.that(expected in ends, "the ends of the indices are exact", (expected, ends))


def loading(folder: Path) -> None:
    """`kernelopt.load` gives the model."""
    import kernelopt
    from kernelopt.optimized import manifest_digest

    place, out = folder / "transformer", folder / "out"
    (out / "optimized").mkdir(parents=True, exist_ok=True)
    (out / "optimized/output_code_0.py").write_text((place / "output_code_0.py").read_text())
    (out / "result.json").write_text(json.dumps({"bundle": manifest_digest(place)}))
    (out / "journal.db").unlink(missing_ok=True)
    with sqlite3.connect(out / "journal.db") as journal:
        journal.execute("create table event (seq integer primary key, kind text, active_ms integer, body text)")
        journal.execute("insert into event (kind, body) values ('opened', ?)", (json.dumps({"bundle_path": str(place)}),))
    loaded = step("load", lambda: kernelopt.load(out))
    model, _ = transformer()
    ids = torch.randint(0, 1000, (4, 256), device="cuda")
    with torch.no_grad():
        difference = (loaded(ids).float() - model(ids).float()).abs().max().item()
    check.that(difference < 0.1, "the loaded model agrees with the eager one on new ids", difference)


def planted(folder: Path) -> None:
    """Faults that the gate must see."""
    place = folder / "small_softmax"
    captured(f"{HERE}:small_softmax", place)
    stream = faults_of(place, "kernels on the default stream", lambda code: code.replace("stream=stream0", "stream=0"))
    check.that(any("second stream" in fault for fault in stream), "a kernel on another stream is seen")
    waits = "\n_inner = call\ndef call(args):\n    outputs = _inner(args)\n    outputs[0].sum().item()\n    return outputs\n"
    recorded = faults_of(place, "waits for the GPU", lambda code: code + waits)
    check.that(
        any("CUDA graph" in fault or "during capture" in fault for fault in recorded), "what cannot be captured in a CUDA graph is seen"
    )
    out = re.compile(r"tl\.store\((out_ptr\d+) \+ ")
    illegal = faults_of(place, "writes far away", lambda code: out.sub(r"tl.store(\1 + (1 << 40) + ", code))
    check.that(any("fails when called" in fault for fault in illegal), "an illegal address is evidence, not the end")


def main() -> int:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="keep the bundles here")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here")
        return 1
    from byte_code import keep_byte_code  # not where a capture loads this file

    keep_byte_code()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for part in (by_command, errors, in_process, by_hand, events_instead_of_the_profiler, integer_ends, loading, planted):
            print(f"== {part.__name__}", flush=True)
            try:
                part(folder)
            except Exception as error:
                traceback.print_exc()
                check.that(False, f"{part.__name__} ends", error)
    print(f"{len(check.failed)} failures, {time.monotonic() - started:.0f} s")
    print("\n".join(f"  {what}" for what in check.failed))
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
