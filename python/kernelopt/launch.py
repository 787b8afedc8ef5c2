"""The launch of a Triton kernel as the compiler made it on this device: the Rust type `shared::launch::Launch`.

It is read from Inductor's `CachingAutotuner` after a run, when that has settled on one configuration.
"""

from torch._inductor.runtime.triton_helpers import get_constexprs
from torch._inductor.runtime.triton_heuristics import CachingAutotuner, GridExpr

CONSTANT = "constexpr"
DIVISIBLE = ["tt.divisibility", 16]
WARP_SPECIALISATION = ("num_consumer_groups", "num_buffers_warp_spec")


class NoLaunch(Exception):
    """Why a launch cannot be written down; the message is a sentence for people."""


def launch_of(kernel: object, arguments: tuple) -> dict:
    """The launch of `kernel` with these runtime arguments, grid evaluated.

    Args:
        kernel: what the generated file calls `run` of, after a run.
        arguments: what it was called with, the stream left out.

    Raises:
        NoLaunch: it is no kernel of one settled configuration, or the configuration holds what a `Launch` has no place for.
    """
    config = settled_config(kernel)
    constants = _constants(kernel, config)
    return {
        "entry": kernel.fn.__name__,
        "grid": [str(extent) for extent in _grid(kernel, config, arguments)],
        "constants": constants,
        "divisible_by_16": _divisible(kernel.triton_meta, kernel.fn.arg_names),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def settled_config(kernel: object) -> object:
    """The configuration that the compiler chose.

    Raises:
        NoLaunch: there is none, or more than one is left.
    """
    if not isinstance(kernel, CachingAutotuner):
        raise NoLaunch(f"it is a {type(kernel).__name__}, not one kernel of Inductor's")
    if len(kernel.launchers) != 1:
        raise NoLaunch(f"{len(kernel.launchers)} configurations are left after a run")
    config = kernel.launchers[0].config
    if getattr(config, "num_ctas", 1) not in (None, 1):
        raise NoLaunch(f"its configuration has clusters of {config.num_ctas} programs")
    if getattr(config, "maxnreg", None):
        raise NoLaunch(f"its configuration allows {config.maxnreg} registers")
    special = [name for name in WARP_SPECIALISATION if getattr(config, name, 0)]
    if special:
        raise NoLaunch(f"its configuration has {special[0]}")
    if kernel.triton_meta.get("launch_cooperative_grid") or kernel.triton_meta.get("launch_pdl"):
        raise NoLaunch("it is launched cooperatively or dependent on another kernel")
    return config


def _constants(kernel: CachingAutotuner, config: object) -> dict[str, int]:
    """Values of the parameters that are no runtime arguments: the configuration's blocks, and sizes of one."""
    known = {**kernel.triton_meta["constants"], **config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    constants = {}
    for name, kind in kernel.triton_meta["signature"].items():
        if kind != CONSTANT:
            continue
        if name not in known:
            raise NoLaunch(f"nothing is known of its constant {name}")
        if not isinstance(known[name], int):
            raise NoLaunch(f"its constant {name} is {known[name]!r}, not an integer")
        constants[name] = int(known[name])
    return constants


def _grid(kernel: CachingAutotuner, config: object, arguments: tuple) -> tuple[int, int, int]:
    """Extents along x, y and z. A size that is always one is a constant to the compiler, yet it is passed."""
    declared = get_constexprs(kernel.fn)
    passed = [name for i, name in enumerate(kernel.triton_meta["signature"]) if i not in declared]
    names = [*passed, *kernel.inductor_meta.get("extra_launcher_args", ())]
    if len(names) != len(arguments):
        raise NoLaunch(f"it is called with {len(arguments)} arguments, and {len(names)} are described")
    sizes = {name: value for name, value in zip(names, arguments, strict=True) if isinstance(value, int)}
    return GridExpr.from_meta(kernel.inductor_meta, config).eval_slow(sizes)


def _divisible(meta: dict, names: list[str]) -> list[str]:
    """Arguments that the compiler takes for multiples of 16."""
    (attributes,) = meta["configs"]
    whole = {place: [list(note) for note in notes] for place, notes in attributes.items() if len(place) == 1}
    return sorted(names[position] for (position,), notes in whole.items() if DIVISIBLE in notes)
