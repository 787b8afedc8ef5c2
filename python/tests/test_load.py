"""`kernelopt.load`: the model as a callable, out of what a job leaves behind."""

import json
import sqlite3

import pytest
import torch

import kernelopt
import models
from conftest import MODELS
from kernelopt.bundle import Bundle
from kernelopt.capture import Options, capture
from kernelopt.errors import BadInput
from kernelopt.optimized import manifest_digest


def _job(bundle: Bundle, out, edit=lambda code: code) -> None:
    """The files of a job's output folder that loading reads."""
    (out / "optimized").mkdir()
    (out / "optimized/output_code_0.py").write_text(edit(bundle.text("output_code_0.py")))
    (out / "result.json").write_text(json.dumps({"bundle": manifest_digest(bundle.root), "model": {"verdict": "improved"}}))
    with sqlite3.connect(out / "journal.db") as journal:
        journal.execute("create table event (seq integer primary key, kind text, active_ms integer, body text)")
        body = json.dumps({"kind": "opened", "bundle_path": str(bundle.root)})
        journal.execute("insert into event (kind, active_ms, body) values ('opened', 0, ?)", (body,))


def test_it_is_the_model_with_the_optimised_code(bundles, tmp_path):
    _job(bundles("static"), tmp_path, lambda code: code + "\n_inner = call\ndef call(args):\n    return [2 * o for o in _inner(args)]\n")
    optimized = kernelopt.load(tmp_path)
    model, _ = models.mlp()
    for x in (torch.randn(24, 32), torch.randn(24, 32)):
        torch.testing.assert_close(optimized(x), 2 * model(x))
    assert optimized.result["model"]["verdict"] == "improved"


@pytest.fixture
def loaded(tmp_path):
    """`loaded(factory)` captures a model of `models.py` and loads it unchanged."""

    def made(factory: str):
        (tmp_path / "out").mkdir()
        capture(Options(f"{MODELS}:{factory}", tmp_path / "b"))
        _job(Bundle(tmp_path / "b"), tmp_path / "out")
        return kernelopt.load(tmp_path / "out")

    return made


def test_nested_arguments_and_results_keep_their_form(loaded):
    optimized, (model, arguments) = loaded("nested"), models.nested()
    found, expected = optimized(*arguments), model(*arguments)
    assert found.keys() == expected.keys() and found["pair"][1] is None and found["name"] == "nested"
    torch.testing.assert_close((found["pair"][0], found["again"]), (expected["pair"][0], expected["again"]))
    with pytest.raises(TypeError, match="captured with arguments of the form"):
        optimized(arguments[0])
    with pytest.raises(ValueError, match="captured with 3 as argument 3, which is part of its code; 4 was given"):
        optimized(*arguments[:2], 4)


def test_an_argument_that_the_model_changes_is_changed(loaded):
    optimized = loaded("many")
    _, arguments = models.many()
    before = arguments[3].clone()
    optimized(*arguments)
    torch.testing.assert_close(arguments[3], before * 2 + 1)


def test_a_model_of_several_graphs_is_refused(bundles, tmp_path):
    _job(bundles("broken"), tmp_path)
    with pytest.raises(BadInput, match="holds 2 graphs"):
        kernelopt.load(tmp_path)


def test_a_moved_bundle_is_named(bundles, tmp_path):
    bundle = bundles("static")
    _job(bundle, tmp_path)
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        journal.execute("update event set body = ?", (json.dumps({"bundle_path": str(tmp_path / "gone")}),))
    with pytest.raises(BadInput, match="no bundle at"):
        kernelopt.load(tmp_path)
    assert kernelopt.load(tmp_path, bundle=bundle.root)(torch.randn(24, 32)).shape == (24, 16)
    with pytest.raises(BadInput, match="is not the bundle that was tuned"):
        kernelopt.load(tmp_path, bundle=bundles("bf16").root)


def test_an_unfinished_job_is_said(tmp_path):
    with pytest.raises(BadInput, match=r"result\.json.*No such file") as raised:
        kernelopt.load(tmp_path)
    assert "must have ended" in raised.value.remedy
