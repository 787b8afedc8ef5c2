"""What people are told when the GPU is missing, too small, lost, or a kernel faults on it."""

import shutil

import pytest
import torch

from conftest import MODELS
from kernelopt import gpu
from kernelopt.capture import Options, capture
from kernelopt.errors import BadInput, EnvironmentLacks
from kernelopt.factory import blaming, load_model


def _accelerator_error(code: int, message: str) -> torch.AcceleratorError:
    error = torch.AcceleratorError(message)
    error.error_code = code
    return error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_before_the_factory_is_called(tmp_path):
    with pytest.raises(EnvironmentLacks, match="no GPU can be used: ") as raised:
        capture(Options(f"{MODELS}:raises", tmp_path / "b", device="cuda"))
    assert "--device cpu" in raised.value.remedy
    assert not list(tmp_path.iterdir())


def test_a_hidden_gpu_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(EnvironmentLacks, match="CUDA_VISIBLE_DEVICES is ''"):
        gpu.require_gpu()


def test_a_torch_without_cuda_is_said(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(EnvironmentLacks, match="built without CUDA"):
        gpu.require_gpu()


@pytest.fixture
def a_gpu(monkeypatch):
    """Makes torch say that there is a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X1")
    return lambda capability: monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)


def test_an_old_gpu_is_named(a_gpu):
    a_gpu((6, 1))
    with pytest.raises(EnvironmentLacks, match=r"NVIDIA X1 has compute capability 6\.1, and Triton needs 7\.0"):
        gpu.require_gpu()


def test_a_missing_c_compiler_is_said(a_gpu, monkeypatch):
    a_gpu((9, 0))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(EnvironmentLacks, match="no C compiler"):
        gpu.require_gpu()


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), EnvironmentLacks, "CUDA out of memory"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), EnvironmentLacks, "memory is not enough"),
        (_accelerator_error(700, "CUDA error: an illegal memory access was met\nadvice"), BadInput, "illegal memory access was met$"),
        (RuntimeError("Triton Error [CUDA]: misaligned address"), BadInput, "a kernel faulted"),
        (_accelerator_error(999, "CUDA error: unknown error"), EnvironmentLacks, "the GPU was lost: CUDA error: unknown error$"),
        (_accelerator_error(46, "CUDA error: CUDA-capable device(s) is/are busy or unavailable"), EnvironmentLacks, "the GPU was lost"),
    ],
)
def test_errors_of_the_gpu_are_explained_where_a_model_raises_them(error, kind, message):
    with pytest.raises(kind, match=message) as raised, blaming("the model"):
        try:
            raise error
        except RuntimeError as inner:
            raise ValueError("the compiler says something long") from inner  # as torch wraps it
    assert raised.value.remedy


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("shapes differ"), _accelerator_error(900, "operation not permitted")])
def test_other_errors_are_not_the_gpus(error):
    assert gpu.explained(error) is None
    assert not gpu.is_fault(error)


def test_a_factory_that_knows_no_device_has_its_model_moved():
    model, (x,) = load_model(f"{MODELS}:mlp", "meta")
    assert x.device.type == "meta"
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
