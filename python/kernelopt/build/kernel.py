"""Triton's compiler, called as Inductor calls it, for an architecture that need not be here."""

import ast
import contextlib
import dataclasses
import io
import re
from types import ModuleType

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction

from .module import Settings, entry_of, load, settings, stripped
from .order import BuildFault, Order, Product
from .ptxas import resources

HIDDEN_POINTERS = 2
"""Triton's kernels take the addresses of a global and of a profile scratch buffer behind their own arguments."""
WARP = 32
EXHAUSTED = re.compile(r"failed with error code -|No space left on device|Disk quota exceeded|File too large|Memory allocation failure")
"""In what is said of an assembler that ended early; a negative code is a signal's (triton 3.6, `backends/nvidia/compiler.py`)."""

triton.knobs.nvidia.dump_ptxas_log = True  # where registers and spills are said; it is read from stdout
triton.knobs.compilation.always_compile = True  # a cache that a source could write to is nobody's word


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One kernel in machine code, and in Triton's intermediate representation."""

    product: Product
    ttir: str
    stack_bytes: int


def build(order: Order) -> Product:
    """The kernel of an order.

    Raises:
        BuildFault: the source is refused, or does not compile.
    """
    text, tree = stripped(order.source)
    parameters = Parameters.of(entry_of(tree, order.entry), order)
    return compile_text(text, parameters, order, settings(order.source, order.entry)).product


@dataclasses.dataclass(frozen=True)
class Parameters:
    """A function's parameters, in order, against the target's arguments.

    Attributes:
        types: Triton's type by parameter; `constexpr` for constants.
        constants: values of those.
        divisible: positions of arguments that are multiples of 16.
        names: the target's name of each runtime parameter, in order, by parameter.
    """

    types: dict[str, str]
    constants: dict[str, int]
    divisible: list[int]
    names: dict[str, str]

    @classmethod
    def of(cls, function: ast.FunctionDef, order: Order) -> "Parameters":
        """Pairs them by position, as a call does.

        Raises:
            BuildFault: they do not fit.
        """
        given = {"num_warps": order.num_warps, "num_stages": order.num_stages, **order.constants}
        names = [parameter.arg for parameter in function.args.args]
        defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        constexpr = {parameter.arg for parameter in function.args.args if _is_constexpr(parameter)}
        constants = {}
        for name in names:
            if name in given and (name in constexpr or name in order.constants):
                constants[name] = given[name]
            elif name in constexpr and isinstance(defaults.get(name), ast.Constant):
                constants[name] = defaults[name].value
            elif name in constexpr:
                raise BuildFault("compiler", f"the constant {name} has no value", function.lineno)
        runtime = [name for name in names if name not in constants]
        arguments = [(name, kind) for name, kind in order.signature if name not in order.constants]
        if len(runtime) != len(arguments):
            wanted = ", ".join(name for name, _ in arguments)
            reason = f"{function.name} takes {len(runtime)} arguments ({', '.join(runtime)}); the target has {len(arguments)} ({wanted})"
            raise BuildFault("compiler", reason, function.lineno)
        paired = dict(zip(runtime, arguments, strict=True))
        types = {name: paired[name][1] if name in paired else "constexpr" for name in names}
        divisible = [index for index, name in enumerate(names) if name in paired and paired[name][0] in order.divisible_by_16]
        return cls(types, constants, divisible, {name: argument for name, (argument, _) in paired.items()})


def _is_constexpr(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and ast.unparse(parameter.annotation).split(".")[-1].strip("'\"") == "constexpr"


def compile_text(text: str, parameters: Parameters, order: Order, how: Settings) -> Compiled:
    """Compiles a screened module's function `order.entry`.

    Raises:
        BuildFault: the source does not compile, or needs what a launch cannot give.
    """
    if how.launch_cooperative_grid:
        raise BuildFault("compiler", "the kernel needs a cooperative launch")
    module = load(text)
    function = getattr(module, order.entry)
    attributes = {(index,): [["tt.divisibility", 16]] for index in parameters.divisible}
    source = ASTSource(function, parameters.types, parameters.constants, attributes)
    log = io.StringIO()
    try:
        with contextlib.redirect_stdout(log):
            made = triton.compile(source, target=GPUTarget("cuda", order.architecture, WARP), options=_options(order, how))
    except CompilationError as error:
        raise _compilation_fault(error, module) from None
    except MemoryError:
        raise
    except Exception as error:
        kind = "stopped" if _has_run_out(error) else "compiler"
        raise BuildFault(kind, f"{type(error).__name__}: {error}".partition("\nRepro command")[0]) from None
    metadata = made.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size or metadata.num_ctas != 1:
        raise BuildFault("compiler", "the kernel needs scratch memory or block clusters, which a launch does not give it")
    used = resources(log.getvalue(), metadata.name)
    if not used["registers"]:
        raise BuildFault("environment", "ptxas does not say how many registers a kernel takes: another release of triton than 3.6?")
    facts = {
        "entry": metadata.name,
        "shared_bytes": metadata.shared,
        "threads": metadata.num_warps * metadata.warp_size,
        "hidden_pointers": HIDDEN_POINTERS,
        "registers": used["registers"],
        "spill_bytes": used["spill_bytes"],
    }
    return Compiled(Product(made.asm["cubin"], facts), made.asm["ttir"], used["stack_bytes"])


def _has_run_out(error: Exception) -> bool:
    """True where a disk, memory or time was spent, which says nothing of the source: no room for a file, no process to be had, an
    assembler that was killed or that says so."""
    return isinstance(error, OSError) or (isinstance(error, PTXASError) and EXHAUSTED.search(str(error)) is not None)


def _options(order: Order, how: Settings) -> dict[str, object]:
    options = {
        "num_warps": order.num_warps,
        "num_stages": order.num_stages,
        "debug": how.debug,
        "sanitize_overflow": False,
        "enable_fp_fusion": how.enable_fp_fusion,
        "launch_cooperative_grid": False,
        "launch_pdl": how.launch_pdl,
    }
    return options | ({"enable_reflect_ftz": False} if how.disable_ftz else {})


def _compilation_fault(error: CompilationError, module: ModuleType) -> BuildFault:
    """The innermost error that lies in the source's own text, with its line there."""
    lines = {
        value.src: value.starting_line_number + _lines_before_def(value)
        for value in vars(module).values()
        if isinstance(value, JITFunction)
    }
    line, reason = None, ""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, CompilationError):
            if current.src in lines and hasattr(current.node, "lineno"):
                line = lines[current.src] + current.node.lineno - 1
            reason = current.error_message or reason
        else:
            reason = f"{type(current).__name__}: {current}"
        current = current.__cause__
    return BuildFault("compiler", reason or str(error), line)


def _lines_before_def(function: JITFunction) -> int:
    """Decorator lines, which Triton counts but leaves out of its text."""
    return next((index for index, line in enumerate(function.raw_src) if line.lstrip().startswith("def ")), 0)
