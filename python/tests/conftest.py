"""Bundles that several tests look at, captured once per session."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from autotuners import autotuners_of
from kernelopt.bundle import Bundle
from kernelopt.capture import Options, capture

CAPTURES = Path(__file__).parents[2] / "tests/fixtures/captures"
MODELS = Path(__file__).parent / "models.py"
KINDS = {
    "static": ("mlp", {}),
    "dynamic": ("mlp", {"dynamic": True}),
    "train": ("mlp", {"train": True}),
    "broken": ("broken", {}),
    "frozen": ("frozen_conv", {"freeze": True}),
    "train_dynamic": ("batch_norm", {"train": True, "dynamic": True}),
    "bf16": ("bf16", {}),
    "many": ("many", {}),
    "many_dynamic": ("many", {"dynamic": True}),
}


@pytest.fixture(autouse=True)
def triton_cache(tmp_path, monkeypatch):
    """Triton writes into the test's own folder."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """`bundles(kind)` is a captured bundle of one of `KINDS`."""
    made: dict[str, Bundle] = {}

    def bundle(kind: str) -> Bundle:
        if kind not in made:
            factory, flags = KINDS[kind]
            place = tmp_path_factory.mktemp("bundles") / kind
            capture(Options(f"{MODELS}:{factory}", place, **flags))
            made[kind] = Bundle(place)
        return made[kind]

    return bundle


@pytest.fixture
def autotuners(tmp_path):
    """`autotuners("cuda-h200/rms")` are the kernels of a captured file, as loading it makes them, each with one configuration left."""
    return lambda capture: autotuners_of(CAPTURES / capture / "output_code_0.py", tmp_path)
