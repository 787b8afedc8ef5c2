"""Triton kernels of the model's author: what is read of a launch, how the grid follows, the reference, and what is left alone."""

import ast
import dataclasses
import functools
import json
import operator
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="no triton in this Python")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import triton
import triton_kernels

import user_bundle
from autotuners import autotuners_of
from kernelopt.build.order import Order
from kernelopt.build.truth import _smaller
from kernelopt.errors import NoReference
from kernelopt.grids import GridWatch, NotKnown, expressions
from kernelopt.meaning.vocabulary import Unsupported
from kernelopt.observe import ObservedKernel
from kernelopt.reference import Float64Graph
from kernelopt.user_kernels import meaning_of
from kernelopt.watch import SourceGraph
from test_build import build

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kernels(tmp_path):
    return autotuners_of(user_bundle.PLACE / "output_code_0.py", tmp_path, chosen=0)


@pytest.fixture
def gated(tmp_path_factory):
    """`gated(edit)` is the element-wise kernel with an edited text."""

    def made(edit=lambda text: text):
        kernel = autotuners_of(user_bundle.PLACE / "output_code_0.py", tmp_path_factory.mktemp("gated"), chosen=0)["scale_and_gate_0"]
        path = Path(kernel.filename)
        path.write_text(edit(path.read_text()))
        return kernel

    return made


def arguments(**changes):
    """What the element-wise kernel is launched with; the last three numbers are the grid."""
    tensors = {name: torch.randn(64, 64) for name in ("x", "gate", "y")}
    return (*{**tensors, "n": 4096, "scale": 1.5, **changes}.values(), 64, 1, 1)


# ---- the meaning ----


def test_the_fixture_is_what_is_read_of_the_launches(tmp_path):
    committed = json.loads((user_bundle.PLACE / "meanings_0.json").read_text())
    for entry, expected in zip(user_bundle.entries(tmp_path), committed, strict=True):
        found = json.loads(json.dumps(entry))
        assert {name: d.keys() for name, d in found.pop("distributions").items()} == {
            name: d.keys() for name, d in expected.pop("distributions").items()
        }
        assert found == expected


def test_a_pointer_that_is_read_and_written_has_two_buffers(gated):
    meaning = meaning_of("k", gated(lambda text: text.replace("tl.store(y + index, value", "tl.store(gate + index, value")), arguments())
    roles = {argument["name"]: argument["role"] for argument in meaning["arguments"]}
    assert roles == {"x": "in", "gate": "inout", "y": "in", "n": "size", "scale": "number"}
    assert meaning["arguments"][1]["buffers"] == ["gate", "gate_after"]
    assert meaning["buffers"]["gate_after"]["mutates"] == "gate"


def test_comments_and_names_are_not_the_program_and_numbers_are(gated):
    program = meaning_of("k", gated(), arguments())["program"]
    plain = lambda text: text.replace("inside = index < n", "inside = index  <  n  # a comment").replace("a block of elements", "one")  # noqa: E731
    assert meaning_of("k", gated(plain), arguments())["program"] == program
    assert meaning_of("k", gated(lambda text: text.replace("tl.sigmoid(scale", "tl.sigmoid(2 * scale")), arguments())["program"] != program


@pytest.mark.parametrize(
    ("edit", "changes", "reason"),
    [
        (("tl.store(y", "tl.atomic_add(y"), {}, "tl.atomic_add: its programs depend on each other"),
        (("tl.sigmoid(", "tl.inline_asm_elementwise("), {}, "inline assembly"),
        (("tl.load(x + index", "tl.load(x + index, other=scale"), {}, "what a masked load gives is rounded"),
        (("index < n", "helper(index)"), {}, "helper is not defined"),
        (None, {"scale": True}, "its argument scale is a bool"),
        (None, {"n": "many"}, "its argument n is a str"),
        (None, {"scale": float("nan")}, "its argument scale is nan of type fp64"),
        (None, {"gate": torch.zeros(64, 64, dtype=torch.complex64)}, "the element type complex64 is not supported"),
    ],
)
def test_what_cannot_be_judged_is_left_alone(gated, edit, changes, reason):
    kernel = gated() if edit is None else gated(lambda text: text.replace(*edit))
    with pytest.raises(Unsupported, match=reason):
        meaning_of("k", kernel, arguments(**changes))


def test_memory_that_is_written_is_nobody_elses(gated):
    x = torch.randn(64, 64)
    with pytest.raises(Unsupported, match="its arguments y and x share memory"):
        meaning_of("k", gated(), arguments(x=x, y=x))
    halves = torch.randn(128, 64)
    meaning_of("k", gated(), arguments(x=halves[:64], y=halves[64:]))
    meaning_of("k", gated(), arguments(x=x, gate=x))  # both are only read


def test_a_kernel_with_other_arguments_elsewhere_is_left_alone(gated):
    kernel = gated()
    kernel.run = lambda *arguments, stream: None
    entry = {"kernel": "k", "meaning": None, "reason": "not seen"}
    observed = ObservedKernel(entry, kernel)
    observed.run(*arguments(), stream=0)
    observed.run(*arguments(), stream=0)
    assert entry["meaning"]["program"] and "reason" not in entry
    observed.run(*arguments(n=4095), stream=0)
    assert entry["meaning"] is None and entry["reason"] == "it is launched with other arguments at another place"
    observed.run(*arguments(), stream=0)
    assert entry["meaning"] is None, "what was seen once stays"


# ---- the grid ----


N, M = 1000, torch.empty(6, 70)


def by_name(meta):
    """A grid with a name."""
    return (triton.cdiv(N, meta["BLOCK"]), M.shape[0])


@pytest.mark.parametrize(
    ("grid", "extents"),
    [
        (lambda meta: (triton.cdiv(N, meta["BLOCK"]),), ["CeilDiv(1000, BLOCK)", "1", "1"]),
        (by_name, ["CeilDiv(1000, BLOCK)", "6", "1"]),
        (lambda META: (M.numel() // 2, min(N, META["A"]) * 2 + META["B"] % 3), ["210", "((Min(1000, A)*2) + Mod(B, 3))", "1"]),
        (lambda m: [(N + m["BLOCK"] - 1) // m["BLOCK"], 1, 2], ["FloorDiv(((1000 + BLOCK) - 1), BLOCK)", "1", "2"]),
    ],
)  # fmt: skip
def test_a_grid_function_is_read_as_a_tree(grid, extents):
    assert expressions(grid) == extents


def test_two_grid_functions_on_a_line_are_told_apart():
    first, second = (lambda meta: (meta["A"],)), (lambda meta: (meta["B"], N))
    assert (expressions(first)[0], expressions(second)[0]) == ("A", "B")


@pytest.mark.parametrize(
    "grid",
    [
        (6,),
        functools.partial(lambda n, meta: (n,), 6),
        eval("lambda meta: (meta['BLOCK'],)"),
        lambda meta: (triton.next_power_of_2(meta["BLOCK"]),),
        lambda meta: (N / meta["BLOCK"],),
        lambda meta: (0.5,),
        lambda meta: meta,
        lambda *meta: (1,),
    ],
)
def test_another_grid_is_not_known(grid):
    with pytest.raises(NotKnown):
        expressions(grid)


def test_launches_with_different_grid_functions_have_none():
    seen = GridWatch()
    kernel = triton_kernels.scale_and_gate
    seen.see(kernel, lambda meta: (triton.cdiv(N, meta["BLOCK"]),))
    assert seen.of("scale_and_gate") == ["CeilDiv(1000, BLOCK)", "1", "1"]
    seen.see(kernel, (16,))
    assert seen.of("scale_and_gate") is None


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (lambda meta: (triton.cdiv(N, meta["BLOCK"]),), ["CeilDiv(1000, BLOCK)", "1", "1"]),
        (lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), ["CeilDiv(n, BLOCK)", "1", "1"]),
        (lambda meta: (triton.cdiv(N + 64, meta["BLOCK"]),), ["16", "1", "1"]),
        (lambda meta: (16 * meta["num_warps"] // meta["num_warps"],), ["16", "1", "1"]),
        (lambda meta: (N // (meta["BLOCK"] - 64),), ["16", "1", "1"]),
    ],
)
def test_a_grid_that_does_not_give_what_was_seen_stays_a_number(grid, expected):
    seen = GridWatch()
    seen.see(triton_kernels.scale_and_gate, grid)
    launch = {"entry": "scale_and_gate", "grid": ["16", "1", "1"], "constants": {"BLOCK": 64}}
    entry = {"launch": launch, "meaning": {"arguments": [{"name": "n", "role": "size", "value": "1000"}, {"name": "x", "role": "in"}]}}
    seen.name(entry)
    assert entry["launch"]["grid"] == expected


def test_an_autotuned_kernel_goes_by_its_functions_name():
    seen = GridWatch()
    seen.see(triton_kernels.softmax_rows, lambda meta: (N,))
    assert seen.of("softmax_rows") == ["1000", "1", "1"]


def test_launches_of_an_eager_run_are_watched(monkeypatch):
    ran = []
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", lambda kernel, *arguments, grid, **options: ran.append(kernel))
    monkeypatch.setattr(triton.runtime.autotuner.Autotuner, "run", lambda kernel, *arguments, grid, **options: ran.append(kernel))
    with GridWatch().watching() as seen:
        for factory in (triton_kernels.gated, triton_kernels.softmax):
            monkeypatch.setattr(torch, "randn", lambda *size, device: torch.zeros(4, 8))
            call, inputs = factory("cpu")
            call(*inputs)
    assert len(ran) == 2
    assert seen.of("scale_and_gate") == ["CeilDiv(32, BLOCK)", "1", "1"]
    assert seen.of("softmax_rows") is None, "a tuple does not say how it was made"


# ---- builds, the twin and the reference ----


def order(entry, kernel, **changes):
    launch = entry["launch"]
    signature = tuple((argument["name"], argument["type"]) for argument in entry["meaning"]["arguments"])
    source = Path(kernel.filename).read_text()
    made = Order("triton", source, 90, "kernel", 60, 60, entry=launch["entry"], signature=signature, constants=launch["constants"])
    made = dataclasses.replace(made, num_warps=launch["num_warps"], num_stages=launch["num_stages"])
    return dataclasses.replace(made, divisible_by_16=frozenset(launch["divisible_by_16"]), **changes)


@pytest.mark.parametrize("number", [0, 1])
def test_the_kernel_its_twin_and_another_launch_compile(kernels, number):
    entry = json.loads((user_bundle.PLACE / "meanings_0.json").read_text())[number]
    kernel = kernels[entry["kernel"]]
    assert build(order(entry, kernel)).facts["registers"] > 0
    twin = build(order(entry, kernel, kind="twin")).facts["twin"]
    assert (twin["widened"], twin["inouts"], twin["roundings"]) == (["y"], [], 0)
    block = 2 * entry["launch"]["constants"]["BLOCK"]
    assert build(order(entry, kernel, constants={"BLOCK": block}, num_warps=8)).facts["threads"] == 256


def test_the_twin_keeps_a_block_of_the_authors_whatever_its_name(gated):
    text = Path(gated(lambda text: text.replace("BLOCK", "RBLOCK")).filename).read_text()
    asked = Order("triton", text, 90, "twin", 60, 60, entry="scale_and_gate", constants={"RBLOCK": 1024})
    assert {tried.constants["RBLOCK"] for tried in _smaller(asked)} == {1024}
    generated = dataclasses.replace(asked, source=text.replace("triton_heuristics.user_autotune", "triton_heuristics.reduction"))
    assert {tried.constants["RBLOCK"] for tried in _smaller(generated)} == {64, 128, 256, 512, 1024}


def reference(kernel, inputs, constants, grid):
    """The reference of a graph that launches `kernel` on inputs and a new `y`."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_functional

    graph, nodes = torch.fx.Graph(), {}
    for name in (*inputs, "y"):
        nodes[name] = graph.placeholder(name)
        nodes[name].meta["val"] = torch.empty(1)
    launch = {
        "kernel_idx": kernel_side_table.add_kernel(kernel),
        "constant_args_idx": kernel_side_table.add_constant_args(constants),
        "grid": grid,
        "tma_descriptor_metadata": {},
        "kwargs": nodes,
        "tensors_to_clone": ["y"],
    }
    made = graph.call_function(triton_kernel_wrapper_functional, kwargs=launch)
    graph.output((graph.call_function(operator.getitem, (made, "y")),))
    return Float64Graph.of(SourceGraph(torch.fx.GraphModule({}, graph))).code


def test_the_reference_launches_the_twin():
    rows, columns = 3, 1500
    grid = [(triton.cdiv(rows * columns, 64), 1, 1)]
    gated = reference(triton_kernels.scale_and_gate, ["x", "gate"], {"n": rows * columns, "scale": 1.5, "BLOCK": 64}, grid)
    softmax = reference(triton_kernels.softmax_rows, ["x"], {"stride": columns, "columns": columns}, [(rows, 1, 1)] * 2)
    size = [rows, columns]
    cases = [
        {"code": gated, "size": size, "inputs": 2, "formula": "gated"},
        {"code": softmax, "size": size, "inputs": 1, "formula": "softmax"},
    ]
    command = [sys.executable, str(Path(__file__).parent / "user_interpreter.py")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    errors = json.loads(done.stdout)
    assert set(errors) == {"gated", "softmax"} and max(errors.values()) < 1e-14, errors


def test_the_reference_says_why_there_is_none():
    with pytest.raises(NoReference, match=r"scale_and_gate: .*the buffer cannot be told"):
        reference(triton_kernels.scale_and_gate, ["x"], {"gate": 1, "n": 1, "scale": 1.5, "BLOCK": 64}, [(1, 1, 1)])


def test_the_text_of_the_reference_is_python():
    code = reference(triton_kernels.scale_and_gate, ["x", "gate"], {"n": 9, "scale": 1.5, "BLOCK": 64}, [(1, 1, 1)])
    assert "from kernelopt.twin_launch import launch_twin" in code
    ast.parse(code)
