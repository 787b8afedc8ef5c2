"""The test that an agent has its Python do when it doubts itself."""

import json
import os
import subprocess
import sys

from kernelopt.errors import ExitCode


def sing(**environment):
    command = [sys.executable, "-m", "kernelopt", "canary"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


def test_a_sound_python_compiles_and_is_right():
    done = sing()
    assert (done.returncode, json.loads(done.stdout)) == (ExitCode.SUCCESS, {"right": True})


def test_a_python_without_a_compiler_fails_whatever_was_built_before(tmp_path):
    done = sing(CXX="/bin/false", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert done.returncode != ExitCode.SUCCESS and done.stdout == ""
