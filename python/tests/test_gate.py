"""The gate and the profile: wrong replacements show, identical ones do not, and times come from inside `call`."""

import re

import pytest

from conftest import KINDS, MODELS
from kernelopt.capture import Options, capture
from kernelopt.gate import gate
from kernelopt.profile import profile


@pytest.fixture
def evidence(bundles, tmp_path):
    """`evidence(kind, edit)` gates a bundle against its own first file, edited."""

    def gated(kind, edit=None):
        bundle = bundles(kind)
        if edit is not None:
            code = bundle.text("output_code_0.py")
            edited = edit(code)
            assert edited != code
            (tmp_path / "output_code_0.py").write_text(edited)
        return gate(bundle.root, tmp_path, rounds=5, seconds=0, seed=3)

    return gated


def _outputs(result):
    return [output for input_set in result["input_sets"] for output in input_set["outputs"]]


@pytest.mark.parametrize("kind", KINDS)
def test_an_identical_model_passes(evidence, kind):
    result = evidence(kind)
    assert [s["name"] for s in result["input_sets"]] == ["captured", "quarter", "fourfold"]
    assert [s["distinct"] for s in result["input_sets"]] == [False, True, True]
    for input_set in result["input_sets"]:
        assert not input_set["missing"]
        assert not input_set["nan_mismatch"]
        assert input_set["inputs_intact"]
        assert input_set["repeatable"] == {"baseline": True, "optimized": True}
        assert not input_set["faults"] and not input_set["notes"]
        assert len(input_set["pairs_us"]) == len(input_set["control_us"]) == 5
        assert all(time > 0 for pair in input_set["pairs_us"] + input_set["control_us"] for time in pair)
        assert [pair[0] for pair in input_set["pairs_us"]] == [pair[0] for pair in input_set["control_us"]]
    outputs = _outputs(result)
    assert outputs
    tolerance = 2e-2 if kind == "bf16" else 2e-5
    for output in outputs:
        assert output["equal"] and output["layout_equal"]
        assert output["max_error_baseline"] == output["max_error_optimized"] <= tolerance * max(output["scale"], 1.0)


def test_an_input_that_the_model_changes_is_an_output(evidence):
    """A mutation that the model asked for (`rows.mul_(2)`), and the running statistics of a batch norm in training."""
    assert {output["of"] for output in _outputs(evidence("many"))} == {"output", "input"}
    changed = [output for output in _outputs(evidence("train_dynamic")) if output["of"] == "input"]
    assert len(changed) == 3 * 3  # mean, variance and count, in three input sets


def test_a_wrong_constant_shows(evidence):
    outputs = _outputs(evidence("static", lambda code: code.replace("0.7071067811865476", "0.72")))
    assert any(o["max_error_optimized"] > 100 * o["max_error_baseline"] for o in outputs)


def test_a_nan_shows(evidence):
    result = evidence("static", lambda code: code.replace("0.7071067811865476", "std::numeric_limits<float>::quiet_NaN()"))
    assert all(s["nan_mismatch"] for s in result["input_sets"])


WRAPPED = """
_inner, _calls = call, []
def call(args):
    _calls.append(1)
    weights = list(args)
    outputs = _inner(args)
    {body}
    return outputs
"""


@pytest.mark.parametrize(
    ("body", "shows"),
    [
        ("outputs[0].add_(1e-3 * len(_calls))", lambda s: not s["repeatable"]["optimized"]),
        ("outputs = (outputs[0].T.contiguous().T,)", lambda s: not s["outputs"][0]["layout_equal"]),
        ("outputs = (outputs[0].double(),)", lambda s: not s["outputs"][0]["layout_equal"]),
        ("outputs = ()", lambda s: not s["outputs"][0]["layout_equal"]),
        ("weights[1].mul_(1.001)", lambda s: not s["inputs_intact"]),
        ("outputs[0].mul_(1 if len(_calls) < 5 else 2)", lambda s: s["outputs"][0]["max_error_optimized"] > 1e-3),
    ],
    ids=["unrepeatable", "strides", "dtype", "missing", "writes-a-weight", "wrong-only-when-timed"],
)
def test_planted_faults_show(evidence, body, shows):
    result = evidence("static", lambda code: code + WRAPPED.format(body=body))
    assert any(shows(input_set) for input_set in result["input_sets"])


REMEMBERS = """
_inner, _known = call, {}
def call(args):
    place = tuple(a.data_ptr() for a in args)
    if place not in _known:
        _known[place] = _inner(args)
    return _known[place]
"""


def test_what_is_remembered_by_address_shows(evidence):
    """Every input set has addresses of its own, so only new values at the same addresses can tell."""
    result = evidence("static", lambda code: code + REMEMBERS)
    faults = {s["name"]: s["faults"] for s in result["input_sets"]}
    assert not faults["captured"]
    for name in ("quarter", "fourfold"):
        (fault,) = faults[name]
        assert "the optimised graph 0 gives other outputs with new values at the same addresses" in fault


def test_a_failure_with_new_values_is_a_fault(evidence):
    refuses = """
_inner, _seen = call, {}
def call(args):
    if _seen.setdefault(tuple(a.data_ptr() for a in args), float(args[2][0, 0])) != float(args[2][0, 0]):
        raise ValueError("these are not the values of the first call")
    return _inner(args)
"""
    result = evidence("static", lambda code: code + refuses)
    assert any("fails with new values at the same addresses: ValueError" in fault for s in result["input_sets"] for fault in s["faults"])


def test_the_control_is_the_original(evidence):
    """The optimised model sleeps, the control does not."""
    slow = "\nimport time\n_inner = call\ndef call(args):\n    time.sleep(0.03)\n    return _inner(args)\n"
    for input_set in evidence("static", lambda code: code + slow)["input_sets"]:
        assert min(optimized for _, optimized in input_set["pairs_us"]) >= 30_000
        assert sorted(control for _, control in input_set["control_us"])[2] < 30_000


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda code: code + "\n)", "does not load: .*SyntaxError"),
        (lambda code: code + "\ndef call(args):\n    raise ValueError('no luck')", "fails when called: ValueError: no luck"),
    ],
)
def test_a_file_that_does_not_run_is_evidence_against_it(evidence, edit, message):
    """A winner that cannot be loaded or called loses its place; it does not end the job."""
    result = evidence("static", edit)
    assert not result["device_lost"]
    assert all(re.search(f"the optimised output_code_0.py {message}", s["faults"][0]) for s in result["input_sets"])


def test_a_missing_reference_is_said(bundles, tmp_path):
    capture(Options(f"{MODELS}:dropout", tmp_path / "b"))
    result = gate(tmp_path / "b", tmp_path, rounds=5, seconds=0, seed=0)
    assert all(s["missing"][0]["graph"] == 0 and "random" in s["missing"][0]["reason"] for s in result["input_sets"])
    assert not _outputs(result)


@pytest.mark.parametrize("kind", ["static", "train"])
def test_profile_times_every_kernel_inside_its_call(bundles, kind):
    bundle = bundles(kind)
    result = profile(bundle.root, seconds=0.2, seed=0)
    assert [g["index"] for g in result["graphs"]] == list(range(len(bundle.manifest["graphs"])))
    for graph, entry in zip(result["graphs"], bundle.manifest["graphs"], strict=True):
        assert set(graph["kernels"]) == {kernel["kernel"] for kernel in bundle.json(entry["meanings"])}
        assert len(graph["call_us"]) == len(graph["watched_call_us"]) >= 5
        for round_, call_us in enumerate(graph["watched_call_us"]):
            assert 0 < sum(kernel["us"][round_] for kernel in graph["kernels"].values()) < call_us
        assert all(kernel["launches"] == 1 for kernel in graph["kernels"].values())
    assert result["environment"]["torch_threads"] == bundle.manifest["device"]["threads"]
