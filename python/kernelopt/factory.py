"""Finds the user's factory and calls it."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch.utils._pytree import tree_map

from . import gpu
from .errors import BadInput, UserError, in_short

REMEDY = "Write MODULE:FACTORY, as in examples/token_loss.py:make; the factory returns (callable or nn.Module, tuple of its arguments)."


def load_model(name: str, device: str) -> tuple[Callable, tuple]:
    """Calls the factory `MODULE:FACTORY`, where MODULE is a path of a Python file or an importable module.

    Returns:
        What is to be compiled, and its example arguments.

    Raises:
        BadInput: there is no such factory, it raised, or it returned something else.
    """
    module_name, colon, factory_name = name.rpartition(":")
    if not colon or not module_name or not factory_name:
        raise BadInput(f"{name!r} does not name a factory", REMEDY)
    factory = getattr(_import(module_name), factory_name, None)
    if not callable(factory):
        raise BadInput(f"{module_name} has no function {factory_name!r}", REMEDY)
    with blaming(f"the factory {name}"):
        takes_device = "device" in inspect.signature(factory).parameters
        made = factory(device=device) if takes_device else factory()
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], tuple)):
        raise BadInput(f"the factory {name} returned {_described(made)}", REMEDY)
    if not takes_device and device != "cpu":
        with blaming(f"moving the model of {name} to {device}"):
            made = _moved(made, device)
    return made


def _moved(made: tuple[Callable, tuple], device: str) -> tuple[Callable, tuple]:
    """The module and the arguments on `device`, where the factory knows of none. What a function holds stays where it is."""
    model, arguments = made
    if isinstance(model, torch.nn.Module):
        model = model.to(device)
    return model, tree_map(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, arguments)


def _import(name: str) -> ModuleType:
    path = Path(name)
    with blaming(f"the module {name}"):
        if path.suffix != ".py":
            sys.path.insert(0, "")
            return importlib.import_module(name)
        if not path.is_file():
            raise BadInput(f"there is no file {path}", REMEDY)
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module


class blaming:
    """Turns an exception of the user's code into an error that names the place in it."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, UserError):
            return
        explained = gpu.explained(error)
        if explained is not None:
            raise explained from error
        inner = [f for f in traceback.extract_tb(trace) if not f.filename.startswith((torch.__path__[0], __file__, "<"))]
        place = f" ({inner[-1].filename}, line {inner[-1].lineno})" if inner else ""
        raise BadInput(f"{self.what} failed: {in_short(error)}{place}") from error


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"an object of type {type(value).__name__}"
