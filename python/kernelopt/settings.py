"""What a bundle's manifest says of the machine, the versions and the settings that change results."""

import contextlib
import platform
import shlex
import subprocess
from pathlib import Path

import torch
from torch._inductor import config
from torch._inductor.codecache import CppPythonBindingsCodeCache
from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions, get_cpp_compiler
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.exc import InvalidCxxCompiler

from . import __version__, gpu
from .errors import EnvironmentLacks


def versions(kind: str) -> dict[str, str]:
    """Versions of what made a bundle for a device of this kind, `cpu` or `cuda`."""
    common = {"torch": torch.__version__, "python": platform.python_version(), "kernelopt": __version__}
    if kind == "cuda":
        return common | gpu.versions()
    return common | {"compiler": _first_line([compiler(), "--version"])}


def compiler() -> str:
    """The C++ compiler that Inductor uses.

    Raises:
        EnvironmentLacks: there is none.
    """
    try:
        return get_cpp_compiler()
    except InvalidCxxCompiler:
        raise EnvironmentLacks("no C++ compiler was found", "Install g++ (Debian: apt-get install g++), or set CXX.") from None


def device(kind: str) -> dict[str, object]:
    """The processor or the GPU, and the threads that torch uses on the processor."""
    facts = gpu.facts() if kind == "cuda" else {"name": _processor_name()}
    return {"kind": kind, **facts, "threads": torch.get_num_threads()}


GPU_SETTINGS = {
    "cudnn_allow_tf32": (torch.backends.cudnn, "allow_tf32"),
    "cudnn_benchmark": (torch.backends.cudnn, "benchmark"),
    "cudnn_deterministic": (torch.backends.cudnn, "deterministic"),
    "reduced_precision_reduction_bf16": (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    "reduced_precision_reduction_fp16": (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
}
"""Settings of the GPU's libraries, by the name that they have in a manifest."""


def precision(kind: str) -> dict[str, object]:
    """Settings of torch that change results or speed."""
    found = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "flush_denormal": flushes_denormals(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
    }
    for name, (owner, attribute) in GPU_SETTINGS.items() if kind == "cuda" else ():
        with contextlib.suppress(RuntimeError):  # torch refuses to tell where parts of a library are set differently
            found[name] = getattr(owner, attribute)
    return found


def restore_precision(settings: dict[str, object]) -> None:
    """Makes this process compute as the captured one did."""
    torch.set_float32_matmul_precision(settings["float32_matmul_precision"])
    torch.set_flush_denormal(settings["flush_denormal"])
    torch.use_deterministic_algorithms(settings["deterministic_algorithms"])
    torch.backends.mkldnn.enabled = settings["mkldnn"]
    for name, (owner, attribute) in GPU_SETTINGS.items():
        if name in settings:
            setattr(owner, attribute, settings[name])


def flushes_denormals() -> bool:
    """Whether this thread takes denormal numbers for zero; torch can set that but not tell."""
    least_normal = torch.tensor(torch.finfo(torch.float64).tiny, dtype=torch.float64)
    return bool(least_normal / 2 == 0)


def inductor_settings() -> dict[str, object]:
    """Inductor's settings that differ from its defaults, as far as JSON can hold them."""
    plain = (bool, int, float, str, type(None))
    overridden = config._get_dict(skip_default=True)
    return {name: value for name, value in sorted(overridden.items()) if isinstance(value, plain) and value != config._config[name].default}


def compile_command() -> list[str]:
    """Inductor's command line for one C++ kernel, without its precompiled header; `{source}` and `{output}` stand for files."""
    options = CppTorchDeviceOptions(vec_isa=pick_vec_isa(), device_type="cpu", **CppPythonBindingsCodeCache.cpp_compile_command_flags)
    command = CppBuilder(name="OUTPUT", sources="SOURCE", BuildOption=options).get_command_line()
    places = {"SOURCE": "{source}", "OUTPUT.so": "{output}"}
    return [places.get(word, word) for word in shlex.split(command)]


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _first_line(command: list[str]) -> str:
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except OSError as error:
        return f"unknown ({error})"
    return text.partition("\n")[0].strip()
