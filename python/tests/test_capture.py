"""Capture: what a bundle holds, that it appears whole or not at all, and that a change to it is seen."""

import ctypes
import errno
import json
import re
import subprocess

import pytest
import torch
from safetensors.torch import load_file

import models
from conftest import MODELS
from kernelopt.bundle import Bundle, BundleWriter
from kernelopt.capture import Options, capture
from kernelopt.distributions import QUANTILES, distribution
from kernelopt.errors import BadInput, OutputFailed
from kernelopt.input_sets import scaled
from kernelopt.runtime import load_graphs


def test_graphs_of_each_kind(bundles):
    kinds = {kind: [g["kind"] for g in bundles(kind).manifest["graphs"]] for kind in ("static", "train", "broken", "frozen")}
    assert kinds == {"static": ["inference"], "train": ["forward", "backward"], "broken": ["inference"] * 2, "frozen": ["inference"]}
    assert all(g["calls_per_run"] == 1 for kind in kinds for g in bundles(kind).manifest["graphs"])


def test_inputs_say_which_are_weights_and_sizes(bundles):
    static = bundles("static").json("graph_0.json")["inputs"]
    assert sorted(i["weight"] for i in static) == [False] + [True] * 6
    dynamic = bundles("dynamic").json("graph_0.json")["inputs"]
    assert [i["symbol"] for i in dynamic if "symbol" in i]
    frozen = bundles("frozen").json("graph_0.json")
    assert [i["weight"] for i in frozen["inputs"]] == [False]
    assert any("packed" in constant for constant in frozen["constants"].values())


def test_sizes_are_symbols_in_a_dynamic_capture(bundles):
    meanings = [entry["meaning"] for entry in bundles("dynamic").json("meanings_0.json")]
    assert all(24 in meaning["symbols"].values() for meaning in meanings)
    assert any(a["role"] == "size" for meaning in meanings for a in meaning["arguments"])


def test_the_compile_command_builds_a_kernel(bundles, tmp_path):
    bundle = bundles("static")
    source, library = tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    source.write_text(re.search(r"async_compile\.cpp_pybinding\(\[.*?\], r'''\n(.*?)'''", bundle.text("output_code_0.py"), re.DOTALL)[1])
    places = {"{source}": str(source), "{output}": str(library)}
    command = [places.get(word, word) for word in bundle.manifest["compile_command"]]
    assert "-include" not in command
    subprocess.run(command, check=True)
    assert ctypes.CDLL(str(library)).kernel


def _eager_float64(factory):
    module, (x,) = factory()
    x = x.double().requires_grad_()
    return module.double(), x, module(x)


@pytest.mark.parametrize(("kind", "factory"), [("static", models.mlp), ("dynamic", models.mlp), ("frozen", models.frozen_conv)])
def test_the_reference_is_eager_float64(bundles, kind, factory):
    _, _, expected = _eager_float64(factory)
    reference = load_file(bundles(kind).root / "reference_0.safetensors")
    torch.testing.assert_close(reference["captured.output.0"], expected.detach(), rtol=1e-12, atol=1e-12)


def test_the_reference_of_a_backward_graph_has_the_gradients(bundles):
    module, _, output = _eager_float64(models.mlp)
    (output * torch.randn(output.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    found = list(load_file(bundles("train").root / "reference_1.safetensors").values())
    for parameter in module.parameters():  # what the forward graph saved was rounded to float32, so no closer than that
        scale = float(parameter.grad.abs().max())
        assert any(f.shape == parameter.shape and torch.allclose(f, parameter.grad, rtol=0, atol=1e-5 * scale) for f in found)


def test_scaled_inputs_are_the_captured_ones_in_another_order(bundles):
    (graph,) = load_graphs(bundles("static"))
    weights = [i["weight"] for i in bundles("static").json("graph_0.json")["inputs"]]
    captured = graph.inputs("captured").values
    for recipe in scaled("cpu"):
        for weight, before, after in zip(weights, captured, graph.inputs(recipe.name).values, strict=True):
            if weight:
                assert torch.equal(before, after)
            else:
                assert torch.equal((before * recipe.scale).reshape(-1).sort().values, after.reshape(-1).sort().values)
                assert not torch.equal(before * recipe.scale, after)


def test_what_crosses_a_graph_break_comes_from_the_scaled_run(bundles):
    sets = bundles("broken").json("graph_1.json")["input_sets"]
    keys = [[value["tensor"]["key"] for value in s["values"]] for s in sets]
    assert keys[0] != keys[1] != keys[2]


def test_random_numbers_leave_no_reference(tmp_path, capsys):
    capture(Options(f"{MODELS}:dropout", tmp_path / "b"))
    (input_set, *_) = Bundle(tmp_path / "b").json("graph_0.json")["input_sets"]
    assert input_set["reference"] is None
    assert "random" in input_set["reason"]
    assert "training mode" in capsys.readouterr().err


def test_attention_without_dropout_has_a_reference(tmp_path):
    capture(Options(f"{MODELS}:attention", tmp_path / "b"))
    assert all(s["reference"] is not None for s in Bundle(tmp_path / "b").json("graph_0.json")["input_sets"])


def test_a_bundle_is_replaced_only_by_force(tmp_path):
    place = tmp_path / "b"
    options = Options(f"{MODELS}:unsupported", place)
    capture(options)
    with pytest.raises(OutputFailed, match="holds a bundle already"):
        capture(options)
    assert Bundle(place).manifest["model"].endswith(":unsupported")
    capture(Options(f"{MODELS}:dropout", place, force=True))
    assert Bundle(place).manifest["model"].endswith(":dropout")
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_other_folders_are_never_replaced(tmp_path):
    (tmp_path / "precious").write_text("data")
    with pytest.raises(OutputFailed, match="is not a bundle"):
        capture(Options(f"{MODELS}:unsupported", tmp_path, force=True))
    assert (tmp_path / "precious").read_text() == "data"


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    place = tmp_path / "b"
    capture(Options(f"{MODELS}:unsupported", place))
    before = (place / "manifest.json").read_bytes()

    def full(self, name, tensors):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BundleWriter, "tensors", full)
    with pytest.raises(OutputFailed, match="No space left on device"):
        capture(Options(f"{MODELS}:unsupported", place, force=True))
    assert (place / "manifest.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


@pytest.fixture
def small(bundles, tmp_path):
    """A copy of a bundle, to spoil."""
    source = bundles("static").root
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_any_changed_byte_is_seen(small):
    for name in json.loads((small / "manifest.json").read_text())["files"]:
        path = small / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        with pytest.raises(BadInput, match=re.escape(name)):
            Bundle(small)
        path.write_bytes(whole[:-1])
        with pytest.raises(BadInput, match=re.escape(name)):
            Bundle(small)
        path.unlink()
        with pytest.raises(BadInput, match=re.escape(name)):
            Bundle(small)
        path.write_bytes(whole)
    Bundle(small)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda m: m | {"schema_version": 99}, "schema_version is 99"),
        (lambda m: {k: v for k, v in m.items() if k != "files"}, "not a manifest"),
        (lambda m: m | {"files": {"../x": {"sha256": "", "bytes": 0}}}, "not a plain path"),
        (lambda m: [m], "not a manifest"),
    ],
)
def test_a_wrong_manifest_is_refused(small, spoil, message):
    path = small / "manifest.json"
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(BadInput, match=message):
        Bundle(small)


def test_distributions_are_order_statistics():
    values = torch.tensor([0.0, float("nan"), float("inf"), *range(1, 130)])
    found = distribution(values)
    assert found["quantiles"] == [float(round(i * 129 / 128)) for i in range(QUANTILES)]
    assert found["nan_share"] == 1 / 132
    assert found["zero_share"] == 1 / 131
    assert distribution(torch.tensor([float("nan")])) is None
    assert distribution(torch.tensor([], dtype=torch.float32)) is None


def test_large_distributions_keep_their_ends():
    values = torch.rand(5_000_001) + 1
    values[1234567], values[3] = -5.0, 9.0
    found = distribution(values)
    assert (found["quantiles"][0], found["quantiles"][-1]) == (-5.0, 9.0)
    assert abs(found["quantiles"][QUANTILES // 2] - 1.5) < 1e-2
