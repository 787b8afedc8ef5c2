"""A Triton kernel of the model's author within the float64 reference: its float64 twin is launched in its place."""

import ast

import torch
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from .build.module import load
from .build.order import BuildFault
from .build.purity import impurities
from .build.screen import keep, parse
from .build.twin import twin
from .errors import NoReference

HEAD = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton.jit
"""
POINTERS = {torch.float64: "*fp64", torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}


def put_twin(node: torch.fx.Node) -> None:
    """Makes a node that launches a kernel one that launches its twin.

    Raises:
        NoReference: the kernel has none.
    """
    given = dict(node.kwargs)
    if given["tma_descriptor_metadata"]:
        raise NoReference("a kernel takes tensor descriptors")
    kernel, configuration = kernel_side_table.get_kernel(given["kernel_idx"]), {}
    if isinstance(kernel, Autotuner):
        # Whichever configuration it is, the kernel computes the same.
        config, kernel = kernel.configs[0], kernel.fn
        configuration = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    if not isinstance(kernel, JITFunction):
        raise NoReference(f"a kernel is a {type(kernel).__name__}")
    constants = configuration | dict(kernel_side_table.get_constant_args(given["constant_args_idx"]))
    types = {parameter.name: _type(parameter, given["kwargs"], constants) for parameter in kernel.params}
    source = HEAD + user_defined_triton_kernel_transitive_closure_source_code(kernel)
    try:
        made = twin(ast.Module(_plain(parse(source)), []), kernel.__name__, types, rounded=False)
    except BuildFault as fault:
        raise NoReference(f"{kernel.__name__}: {fault.reason}") from None
    what = {"text": made.text, "entry": kernel.__name__, "narrows": made.narrows, "draws": made.draws}
    node.target = launch_twin
    node.args = (what, tuple(given["grid"][0]), constants, dict(given["kwargs"]), list(given["tensors_to_clone"]))
    node.kwargs = {}


def launch_twin(what: dict, grid: tuple, constants: dict, tensors: dict, written: list[str]) -> dict[str, torch.Tensor]:
    """New values of the tensors `written`, by the twin that `put_twin` has written down.

    Raises:
        NoReference: it computes in something narrower than float64.
    """
    given = {name: value.clone() if name in written else value for name, value in tensors.items()}
    function = getattr(load(what["text"]), what["entry"])
    compiled = function[grid](**given, **constants)
    narrow = impurities(compiled.asm["ttir"], what["narrows"], what["draws"]) if compiled is not None else []
    if narrow:
        raise NoReference(f"the twin of {what['entry']} computes in a narrower type: {narrow[0]}")
    return {name: given[name] for name in written}


def _plain(tree: ast.Module) -> list[ast.stmt]:
    kept = keep(tree)
    return [node for node in kept if not isinstance(node, ast.Expr)]


def _type(parameter: object, tensors: dict, constants: dict) -> str:
    """Triton's type of a parameter, as far as the twin must know it; a number stays as wide as it is given."""
    name = parameter.name
    if parameter.is_constexpr:
        return "constexpr"
    if name in tensors:
        return POINTERS.get(tensors[name].meta["val"].dtype, "*i64")
    return "i32" if isinstance(constants.get(name), int) else "fp64"
