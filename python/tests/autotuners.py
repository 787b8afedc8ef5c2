"""Inductor's own objects for the kernels of a generated file, made without a GPU."""

import re
import types
from pathlib import Path
from unittest import mock

from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('(\w+)', '''\n(.*?)'''", re.MULTILINE | re.DOTALL)


def autotuners_of(code: Path, folder: Path, chosen: int = -1) -> dict[str, CachingAutotuner]:
    """The kernels of the file `code`, as loading it makes them, each with its configuration number `chosen` left. Texts go to `folder`."""
    kernels = {}
    with mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None):
        for name, function, source in KERNEL.findall(code.read_text()):
            path = folder / f"{name}.py"
            path.write_text(source)
            module = types.ModuleType(name)
            module.__file__ = str(path)  # triton reads the source of a function from its file
            exec(compile(source, str(path), "exec"), vars(module))
            kernels[name] = getattr(module, function)
            kernels[name].launchers = [types.SimpleNamespace(config=kernels[name].configs[chosen])]
    return kernels
