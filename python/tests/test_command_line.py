"""Errors that people meet: a sentence and what to do, an exit code, no traceback; and data on stdout alone."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import MODELS
from kernelopt import __main__ as command_line
from kernelopt.errors import ExitCode

RUST_EXIT = (Path(__file__).parents[2] / "shared/src/exit.rs").read_text()


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs the command line in this process; returns the exit code and what was written to stderr. Nothing may go to stdout."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kernelopt", *map(str, arguments)])
        code = command_line.main()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        assert captured.out == ""
        return code, captured.err

    return run


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nocolon", "does not name a factory"),
        (f"{MODELS}:absent", "has no function 'absent'"),
        ("nowhere.py:make", "there is no file nowhere.py"),
        ("no_such_module:make", "ModuleNotFoundError"),
        (f"{MODELS}:raises", "ValueError: no such checkpoint"),
        (f"{MODELS}:wrong_return", "returned an object of type Identity"),
        (f"{MODELS}:fails_when_run", "compiled and run, failed"),
    ],
)
def test_a_bad_factory_is_bad_input(run, tmp_path, model, message):
    code, err = run("capture", model, "-o", tmp_path / "b")
    assert code == ExitCode.BAD_INPUT
    assert message in err
    assert not list(tmp_path.iterdir())


def test_an_error_names_the_line_of_the_users_file(run, tmp_path):
    _, err = run("capture", f"{MODELS}:raises", "-o", tmp_path / "b")
    line = MODELS.read_text().splitlines().index('    raise ValueError("no such checkpoint")') + 1
    assert f"{MODELS}, line {line}" in err


def test_no_torch_is_the_environments_fault(run, tmp_path, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    code, err = run("capture", f"{MODELS}:mlp", "-o", tmp_path / "b")
    assert code == ExitCode.ENVIRONMENT
    assert "pip install 'torch==2.11.*'" in err


def test_another_torch_is_refused_by_its_version(run, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.12.1+cpu")
    code, err = run("profile", tmp_path)
    assert code == ExitCode.ENVIRONMENT
    assert "torch 2.12.1+cpu" in err


def test_no_compiler_is_the_environments_fault(run, tmp_path):
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("/nowhere/g++",)}):
        code, err = run("capture", f"{MODELS}:mlp", "-o", tmp_path / "b")
    assert code == ExitCode.ENVIRONMENT
    assert "no C++ compiler" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_an_output_fault(run, tmp_path):
    tmp_path.chmod(0o555)
    code, err = run("capture", f"{MODELS}:mlp", "-o", tmp_path / "b")
    assert code == ExitCode.OUTPUT
    assert "read-only" in err


def test_a_place_below_a_file_is_an_output_fault(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, err = run("capture", f"{MODELS}:mlp", "-o", tmp_path / "file" / "b")
    assert code == ExitCode.OUTPUT
    assert str(tmp_path / "file" / "b") in err


@pytest.mark.parametrize("command", [["profile"], ["gate", "--optimized", ".", "--out", "r.json"]])
def test_no_bundle_is_bad_input(run, command, tmp_path):
    name, *rest = command
    code, err = run(name, tmp_path / "none", *rest)
    assert code == ExitCode.BAD_INPUT
    assert "no bundle at" in err
    assert "python -m kernelopt capture" in err


def test_a_place_for_the_result_that_cannot_be_written_is_an_output_fault(run, bundles, tmp_path):
    (tmp_path / "file").write_text("")
    code, err = run("gate", bundles("static").root, "--optimized", tmp_path, "--out", tmp_path / "file" / "r.json", "--rounds", "5")
    assert code == ExitCode.OUTPUT
    assert str(tmp_path / "file" / "r.json") in err


def test_what_a_loaded_file_prints_goes_to_stderr(run, bundles, tmp_path):
    bundle = bundles("static")
    (tmp_path / "output_code_0.py").write_text(bundle.text("output_code_0.py") + "\nprint('chatter')\n")
    code, err = run("gate", bundle.root, "--optimized", tmp_path, "--out", tmp_path / "r.json", "--rounds", "5")
    assert code == ExitCode.SUCCESS
    assert "chatter" in err
    assert json.loads((tmp_path / "r.json").read_text())["torch_threads"] >= 1


def test_a_fresh_process_profiles_to_stdout(bundles):
    command = [sys.executable, "-m", "kernelopt", "profile", str(bundles("static").root), "--seconds", "0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["graphs"][0]["index"] == 0


def test_exit_codes_are_those_of_the_contract():
    for code in ExitCode:
        name = code.name.title().replace("_", "").replace("Badinput", "BadInput")
        assert f"{name} = {code.value}," in RUST_EXIT
