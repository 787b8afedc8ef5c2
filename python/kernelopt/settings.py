"""What a bundle's manifest says of the machine, the versions and the settings that change results."""

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

from . import __version__
from .errors import EnvironmentLacks


def versions() -> dict[str, str]:
    """Versions of what made the bundle."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernelopt": __version__,
        "compiler": _first_line([compiler(), "--version"]),
    }


def compiler() -> str:
    """The C++ compiler that Inductor uses.

    Raises:
        EnvironmentLacks: there is none.
    """
    try:
        return get_cpp_compiler()
    except InvalidCxxCompiler:
        raise EnvironmentLacks("no C++ compiler was found", "Install g++ (Debian: apt-get install g++), or set CXX.") from None


def device() -> dict[str, object]:
    """The processor and the threads that torch uses on it."""
    return {"kind": "cpu", "name": _processor_name(), "threads": torch.get_num_threads()}


def precision() -> dict[str, object]:
    """Settings of torch that change results or speed."""
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "flush_denormal": flushes_denormals(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
    }


def restore_precision(settings: dict[str, object]) -> None:
    """Makes this process compute as the captured one did."""
    torch.set_float32_matmul_precision(settings["float32_matmul_precision"])
    torch.set_flush_denormal(settings["flush_denormal"])
    torch.use_deterministic_algorithms(settings["deterministic_algorithms"])
    torch.backends.mkldnn.enabled = settings["mkldnn"]


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
