"""The exporter: its names are those of the Rust contract, it covers every kernel, and what it says is what the kernel does."""

import re
from pathlib import Path

import pytest
import sympy
import torch
from torch._inductor import config
from torch.utils._sympy.functions import FloorDiv, ModularIndexing, Where

from conftest import KINDS
from interpreter import run_meaning, wide
from kernelopt.input_sets import CAPTURED
from kernelopt.meaning import expressions, vocabulary
from kernelopt.meaning.body import walk
from kernelopt.runtime import load_graphs
from kernelopt.watch import CompilerWatch

RUST = Path(__file__).parents[2] / "shared/src"
FUNCTION = (RUST / "meaning/function.rs").read_text()


def _snake(variant: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", variant).lower()


def _variants(source: str, enum: str) -> set[str]:
    body = source.partition(f"pub enum {enum} {{")[2].partition("\n}")[0]
    return {_snake(name) for name in re.findall(r"^    ([A-Z]\w*)", body, re.MULTILINE)}


def test_functions_are_those_of_the_contract():
    body = FUNCTION.partition("functions! {\n")[2].partition("\n}")[0]
    arities = {_snake(name): int(arity) for name, arity in re.findall(r"\b([A-Z]\w*) = (\d)", body)}
    assert arities == vocabulary.ARITY


def test_reductions_and_dtypes_are_those_of_the_contract():
    assert set(vocabulary.REDUCTIONS) == _variants(FUNCTION, "ReductionKind")
    assert {name.replace("_", "") for name in _variants((RUST / "dtype.rs").read_text(), "Dtype")} == set(vocabulary.DTYPES.values())


def test_statements_are_those_of_the_contract(bundles):
    operations = _variants((RUST / "meaning/mod.rs").read_text(), "Operation")
    used = {
        s["op"] for kind in KINDS for _, entry in _kernels(bundles(kind)) for node in entry["meaning"]["nodes"] for s in walk(node["body"])
    }
    assert used <= operations
    assert used == operations - {"bitcast"}, "a construct that no test model has is not tested"


def _kernels(bundle):
    return [(graph, entry) for graph in bundle.manifest["graphs"] for entry in bundle.json(graph["meanings"])]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_has_a_meaning_and_distributions(bundles, kind):
    bundle = bundles(kind)
    defined = [
        name for graph in bundle.manifest["graphs"] for name in re.findall(r"^(\w+) = async_compile", bundle.text(graph["code"]), re.M)
    ]
    kernels = _kernels(bundle)
    assert [entry["kernel"] for _, entry in kernels] == defined
    for _, entry in kernels:
        assert entry["meaning"] is not None, entry["reason"]
        read = {a["name"] for a in entry["meaning"]["arguments"] if a["role"] == "in"}
        assert read <= set(entry["distributions"])


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_made_before_they_are_used(bundles, kind):
    for _, entry in _kernels(bundles(kind)):
        meaning = entry["meaning"]
        for node in meaning["nodes"]:
            made: set[int] = set()
            for s in walk(node["body"]):
                used = [s[k] for k in ("value", "mask", "result") if k in s and s["op"] != "constant"]
                assert made.issuperset(used + s.get("args", []) + s.get("values", [])), s
                assert s["id"] not in made
                made.add(s["id"])
                assert s.get("buffer", "") in {"", *meaning["buffers"]}


@pytest.mark.parametrize("kind", KINDS)
def test_meanings_say_what_the_kernels_do(bundles, kind):
    """Every launch of every kernel in the model, on the captured inputs, against its meaning run in float64."""
    bundle = bundles(kind)
    checked: list[str] = []
    for graph, entry in zip(load_graphs(bundle), bundle.manifest["graphs"], strict=True):
        loaded, inputs = graph.load(), graph.inputs(CAPTURED)
        for kernel in bundle.json(entry["meanings"]):
            _replace_by_checked(loaded.module, kernel["meaning"], checked)
        loaded.call(inputs)
    assert set(checked) == {entry["kernel"] for _, entry in _kernels(bundle)}


def _replace_by_checked(module, meaning: dict, checked: list[str]) -> None:
    name = meaning["kernel"]
    kernel = getattr(module, name)

    def launch(*arguments):
        tensors = {a["name"]: t for a, t in zip(meaning["arguments"], arguments, strict=True) if a["role"] != "size"}
        expected = run_meaning(meaning, tensors)
        kernel(*arguments)
        for argument, memory in expected.items():
            got = wide(torch.as_strided(tensors[argument], (memory.numel(),), (1,)))
            narrow = tensors[argument].dtype == torch.bfloat16
            tolerance = {"rtol": 2**-7, "atol": 1e-3} if narrow else {"rtol": 2e-5, "atol": 2e-6}
            torch.testing.assert_close(got, memory, equal_nan=True, **tolerance, msg=f"{name}, {argument}")
        checked.append(name)

    setattr(module, name, launch)


def test_the_models_have_every_kind_of_memory(bundles):
    """Overlapping outputs, mutation, reuse in place and buffers inside a kernel: else the test above would not cover them."""
    meanings = [entry["meaning"] for kind in KINDS for _, entry in _kernels(bundles(kind))]
    described = [buffer for meaning in meanings for buffer in meaning["buffers"].values()]
    assert {key for key in ("alias", "mutates", "internal") if any(key in buffer for buffer in described)} == {
        "alias",
        "mutates",
        "internal",
    }
    assert {a["role"] for meaning in meanings for a in meaning["arguments"]} == {"in", "out", "inout", "size"}


def test_a_wrong_meaning_would_be_found(bundles):
    """The check of meanings against kernels can fail: one operation is exchanged."""
    bundle = bundles("static")
    (graph,) = load_graphs(bundle)
    loaded, inputs = graph.load(), graph.inputs(CAPTURED)
    meaning = next(e["meaning"] for _, e in _kernels(bundle) if "gelu" in e["kernel"])
    statement = next(s for s in walk(meaning["nodes"][0]["body"]) if s.get("function") == "erf")
    statement["function"] = "tanh"
    _replace_by_checked(loaded.module, meaning, [])
    with pytest.raises(AssertionError, match="gelu"):
        loaded.call(inputs)


def test_an_unknown_operation_is_no_target(capture_codes):
    (entry,) = capture_codes(lambda x: torch.lgamma(x) + 1, torch.rand(64))
    assert entry["meaning"] is None
    assert "lgamma" in entry["reason"]


def test_random_numbers_are_no_target(capture_codes):
    (entry,) = capture_codes(lambda x: torch.nn.functional.dropout(x, 0.5, True), torch.rand(64))
    assert entry["meaning"] is None
    assert "load_seed" in entry["reason"]


def test_one_kernel_at_two_places_keeps_one_meaning(capture_codes):
    (entry,) = capture_codes(lambda x, y: (torch.relu(x @ x) @ y, torch.relu(y @ y)), torch.randn(8, 8), torch.randn(8, 8))
    assert len(entry["meaning"]["nodes"]) == 1


@pytest.fixture
def capture_codes():
    """Compiles a function and returns the entries of its kernels."""

    def compiled(function, *arguments):
        graphs = []

        def on_call(graph, inputs, call):
            graphs.append(graph)
            return call(inputs)

        torch._dynamo.reset()
        with config.patch(fx_graph_cache=False), CompilerWatch(on_call).watching(), torch.no_grad():
            torch.compile(function)(*arguments)
        return [entry for graph in graphs for entry in graph.kernels]

    return compiled


X, Y, N = sympy.symbols("x y n", integer=True, nonnegative=True)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (3 * X + Y - 7, "3*x + y - 7"),
        (-X, "-x"),
        (X * (Y + 1) * N**2, "n**2*x*(y + 1)"),
        ((X + 1) ** 3, "(x + 1)**3"),
        (FloorDiv(X, 3), "FloorDiv(x, 3)"),
        (ModularIndexing(X, 4, N), "ModularIndexing(x, 4, n)"),
        (Where(X < 3, Y, -Y), "Where(x < 3, y, -y)"),
        (5, "5"),
    ],
)
def test_expressions_are_printed_in_the_grammar(expression, text):
    assert expressions.render(expression) == text


@pytest.mark.parametrize("expression", [X / 2, 2**X, sympy.sin(X), X**9, sympy.Abs(X - Y)])
def test_other_expressions_are_refused(expression):
    with pytest.raises(vocabulary.Unsupported):
        expressions.render(expression)
