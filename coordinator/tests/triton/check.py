"""Compiles candidates for sm_90, or runs them in Triton's interpreter against their meaning in float64. No GPU.

check.py compile JOB.json    every candidate becomes a cubin
check.py interpret JOB.json  every candidate's outputs are those of the meaning, for several kinds of inputs
check.py load JOB.json       every rendered module makes an autotuner with one configuration

A job is a list; one line per candidate is printed for each that fails, and the exit status says whether any did.
"""

import importlib.util
import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

MODE = sys.argv[1]
if MODE == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"
else:
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())

# The interpreter is chosen before triton is imported.
import numpy as np  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

DTYPES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int64": torch.int64,
    "int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
POINTERS = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "u8", "bool": "i1",
}  # fmt: skip
FAILURES_SHOWN = 3
TOLERANCE = {torch.float64: 1e-9, torch.float32: 3e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def module(source: str, folder: str, name: str):
    """The source as a module; Triton reads the text of its functions from a file."""
    path = Path(folder) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


# ---- compile ----


def compile_one(job: dict, candidate: dict, folder: str, number: int) -> None:
    made = module(candidate["source"], folder, f"m{number}")
    for launch in candidate["launches"]:
        compile_launch(job, candidate, launch, getattr(made, launch["entry"]))


def passed(job: dict, candidate: dict, launch: dict) -> list:
    """What a launch passes: the target's arguments, or those that it names, scratch among them."""
    arguments = job["meaning"]["arguments"]
    scratch = [{"name": s["name"], "type": f"*{POINTERS[s['dtype']]}", "role": "scratch"} for s in candidate["scratch"]]
    by_name = {a["name"]: a for a in [*arguments, *scratch]}
    return [by_name[name] for name in launch["arguments"]] if launch.get("arguments") else arguments


def compile_launch(job: dict, candidate: dict, launch: dict, kernel) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    arguments = passed(job, candidate, launch)
    signature = {a["name"]: a["type"] for a in arguments} | dict.fromkeys(launch["constants"], "constexpr")
    assert kernel.arg_names[: len(arguments)] == [a["name"] for a in arguments], f"parameters are {kernel.arg_names}"
    assert set(kernel.arg_names) == set(signature), f"parameters are {kernel.arg_names}"
    aligned = {(i,): [["tt.divisibility", 16]] for i, a in enumerate(arguments) if a["name"] in launch["divisible_by_16"]}
    source = ASTSource(fn=kernel, signature=signature, constexprs=launch["constants"], attrs=aligned)
    options = {"num_warps": launch["num_warps"], "num_stages": launch["num_stages"]}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert len(made.asm["cubin"]) > 0
    assert made.metadata.shared <= 227 << 10, f"{made.metadata.shared} bytes of shared memory"
    if "divisions" in job:
        ptx = made.asm["ptx"]
        divisions, loads = len(re.findall(r"\bdiv\.", ptx)), re.findall(r"ld\.global\S*", ptx)
        assert divisions <= job["divisions"], f"{divisions} divisions"
        assert loads and all(f".{job['vector']}." in load for load in loads), f"loads {set(loads)}"


# ---- the meaning in float64 ----


def index_value(text: str, names: dict):
    """An index expression over loop variables, which are arrays."""
    functions = {
        "FloorDiv": lambda a, b: a // b, "ModularIndexing": lambda a, b, c: (a // b) % c, "Mod": lambda a, b: a % b,
        "PythonMod": lambda a, b: a % b, "Min": np.minimum, "Max": np.maximum, "Where": np.where,
    }  # fmt: skip
    return eval(text, functions, names)


def promote(name: str, x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if name.startswith(("float", "bfloat")) else x.astype(name)


def erf(x: np.ndarray) -> np.ndarray:
    return torch.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def pointwise(function: str, args: list) -> np.ndarray:
    a, b = args[0], args[1] if len(args) > 1 else None
    if function in ("truediv", "reciprocal"):
        numerator, denominator = (a, b) if b is not None else (1.0, a)
        return np.asarray(numerator, np.float64) / np.asarray(denominator, np.float64)
    table = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "eq": np.equal,
        "ne": np.not_equal, "lt": np.less, "gt": np.greater, "le": np.less_equal, "ge": np.greater_equal, "neg": np.negative,
        "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
        "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
        "round": np.rint, "sign": np.sign, "pow": np.power, "atan2": np.arctan2, "floordiv": np.floor_divide, "fmod": np.fmod,
        "mod": np.fmod, "remainder": np.mod, "isnan": np.isnan, "isinf": np.isinf, "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "bitwise_left_shift": np.left_shift,
        "bitwise_right_shift": np.right_shift, "erf": erf, "square": np.square, "identity": lambda x: x,
        "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_not": np.logical_not,
        "relu": lambda x: np.maximum(x, 0), "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "where": lambda c, x, y: np.where(np.asarray(c) != 0, x, y), "fma": lambda x, y, z: x * y + z,
    }  # fmt: skip
    return table[function](*args)


def known_mean(mean: np.ndarray, m2: np.ndarray) -> np.ndarray:
    """The compiler's statistics of what holds infinities are NaN, the mean too."""
    return np.where(np.isnan(m2), np.nan, mean)


def reduction(kind: str, values: list, axes: tuple) -> list:
    x = values[0]
    keep = {"axis": axes, "keepdims": True}
    if kind == "welford_reduce":
        mean, count = x.mean(**keep), np.prod([x.shape[a] for a in axes])
        m2 = ((x - mean) ** 2).sum(**keep)
        return [known_mean(mean, m2), m2, np.full_like(mean, count)]
    if kind == "welford_combine":
        mean, m2, weight = values
        total = weight.sum(**keep)
        grand = np.where(weight == 0, 0, mean * weight).sum(**keep) / total
        # What has no weight may be anything.
        squares = np.where(weight == 0, 0, m2 + (mean - grand) ** 2 * weight).sum(**keep)
        return [known_mean(grand, squares), squares, total]
    if kind == "online_softmax_reduce":
        peak = x.max(**keep)
        return [peak, np.exp(x - peak).sum(**keep)]
    if kind in ("argmax", "argmin"):
        flat = x.reshape(*(n for i, n in enumerate(x.shape) if i not in axes), -1)
        place = getattr(np, kind)(flat, -1)
        return [place.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])]
    return [getattr(np, kind)(x, **keep)]


class Truth:
    """Runs the nodes of a meaning over arrays of float64; `memory` holds one flat array per storage."""

    def __init__(self, meaning: dict, memory: dict) -> None:
        self.meaning, self.memory = meaning, memory
        for node in meaning["nodes"]:
            self.run(node)

    def run(self, node: dict) -> None:
        axes = node["iter"] + node["reduce"]
        extents = [int(index_value(a["extent"], self.meaning["symbols"])) for a in axes]
        grids = np.meshgrid(*[np.arange(n) for n in extents], indexing="ij") if axes else []
        self.shape, self.reduced = tuple(extents), tuple(range(len(node["iter"]), len(axes)))
        self.names = dict(self.meaning["symbols"]) | {a["var"]: g for a, g in zip(axes, grids, strict=True)}
        self.values: dict = {}
        self.statements(node["body"])

    def statements(self, body: list) -> None:
        for s in body:
            self.values[s["id"]] = getattr(self, s["op"])(s)

    def load(self, s: dict):
        flat, offset = self.memory[s["buffer"]]
        return flat[np.clip(index_value(s["index"], self.names) + offset, 0, flat.size - 1)]

    def store(self, s: dict) -> None:
        flat, offset = self.memory[s["buffer"]]
        place = np.asarray(index_value(s["index"], self.names))
        value = np.asarray(self.values[s["value"]])
        shape = np.broadcast_shapes(place.shape, value.shape)
        if self.reduced and value.ndim == len(self.shape) and all(value.shape[a] == 1 for a in self.reduced):
            place = np.broadcast_to(place, self.shape)[(..., *[slice(0, 1)] * len(self.reduced))]
            shape = value.shape
        where = np.broadcast_to(place, shape) + offset
        value = np.broadcast_to(value, shape).astype(flat.dtype)
        np.add.at(flat, where, value) if s.get("mode") == "atomic_add" else flat.__setitem__(where, value)

    def constant(self, s: dict):
        return np.asarray(float(s["value"]) if s["dtype"].startswith(("float", "bfloat")) else s["value"])

    def index(self, s: dict):
        return promote(s["dtype"], np.asarray(index_value(s["index"], self.names)))

    def cast(self, s: dict):
        return promote(s["dtype"], np.asarray(self.values[s["value"]]))

    def pointwise(self, s: dict):
        return pointwise(s["function"], [self.values[a] for a in s["args"]])

    def reduction(self, s: dict):
        values = [np.broadcast_to(self.values[v], self.shape) for v in s["values"]]
        results = reduction(s["kind"], values, self.reduced)
        return results if len(results) > 1 else results[0]

    def item(self, s: dict):
        return self.values[s["value"]][s["position"]]

    def masked(self, s: dict):
        self.statements(s["body"])
        return np.where(self.values[s["mask"]] != 0, self.values[s["result"]], float(s["other"]))

    def indirect(self, s: dict) -> None:
        place = np.asarray(self.values[s["value"]]).astype(np.int64)
        size = index_value(s["size"], self.meaning["symbols"])
        self.names[s["variable"]] = np.where(place < 0, place + size, place) if s["wrap_negative"] else place


# ---- interpret ----


class Library:
    """`libdevice` and `triton_helpers` for the interpreter, over numpy."""

    unary = {"rsqrt": lambda x: 1 / np.sqrt(x), "erf": erf, "nearbyint": np.rint, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos}
    binary = {"pow": np.power, "fmod": np.fmod, "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign}

    def __getattr__(self, name: str):
        function = self.unary.get(name) or self.binary.get(name) or getattr(np, name)

        def applied(*args):
            first = next(a for a in args if isinstance(a, tl.tensor))
            plain = [a.handle.data if isinstance(a, tl.tensor) else np.asarray(a, first.handle.data.dtype) for a in args]
            return wrap(function(*plain).astype(first.handle.data.dtype), first.dtype)

        return applied


class Helpers:
    """The reductions of `triton_helpers`, whose custom combines the interpreter would run one element at a time."""

    @staticmethod
    def max2(x, axis):
        return wrap(np.max(x.handle.data, axis=axis), x.dtype)

    @staticmethod
    def min2(x, axis):
        return wrap(np.min(x.handle.data, axis=axis), x.dtype)

    @staticmethod
    def any(x, axis):
        return wrap(np.any(x.handle.data, axis=axis), x.dtype)

    @staticmethod
    def prod(x, axis):
        return wrap(np.prod(x.handle.data, axis=axis, dtype=x.handle.data.dtype), x.dtype)

    @staticmethod
    def div_floor_integer(a, b):
        first = a if isinstance(a, tl.tensor) else b
        return wrap(np.floor_divide(plain(a), plain(b)), first.dtype)

    @staticmethod
    def remainder_integer(a, b):
        first = a if isinstance(a, tl.tensor) else b
        return wrap(np.mod(plain(a), plain(b)), first.dtype)


def let_sizes_be_bounds() -> None:
    """Sizes are arrays of one element in the interpreter, which numpy no longer takes for numbers where a loop needs one."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def plain(x):
    return x.handle.data if isinstance(x, tl.tensor) else x


def wrap(data: np.ndarray, dtype):
    from triton.runtime.interpreter import TensorHandle

    data = np.asarray(data)
    return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)) if data.ndim else dtype)


class Memory:
    """Storages behind the pointers of a meaning, as torch tensors and as arrays of float64."""

    def __init__(self, meaning: dict, regime: str, rng: np.random.Generator) -> None:
        self.meaning = meaning
        sizes: dict = {}
        for name in meaning["buffers"]:
            owner, offset = self.root(name)
            sizes[owner] = max(sizes.get(owner, 0), offset + self.reach(name))
        self.tensors = {}
        for owner, size in sizes.items():
            dtype = DTYPES[meaning["buffers"][owner]["dtype"]]
            self.tensors[owner] = self.draw(owner, size, dtype, regime, rng)
        self.entry = {owner: tensor.clone() for owner, tensor in self.tensors.items()}
        self.flat = {owner: wide(tensor) for owner, tensor in self.tensors.items()}
        Truth(meaning, {name: (self.flat[self.root(name)[0]], self.root(name)[1]) for name in meaning["buffers"]})

    def argument(self, argument: dict):
        """What is passed for one of the target's arguments."""
        return self.number(argument["value"]) if argument["role"] == "size" else self.tensors[self.root(argument["buffers"][0])[0]]

    def number(self, text: str) -> int:
        return int(index_value(text, self.meaning["symbols"]))

    def root(self, name: str) -> tuple:
        buffer = self.meaning["buffers"][name]
        if "mutates" in buffer:
            return self.root(buffer["mutates"])
        if "alias" in buffer:
            owner, offset = self.root(buffer["alias"]["of"])
            return owner, offset + self.number(buffer["alias"]["offset"])
        for argument in self.meaning["arguments"]:
            if name in argument.get("buffers", [])[1:]:
                return argument["buffers"][0], 0
        return name, 0

    def reach(self, name: str) -> int:
        buffer = self.meaning["buffers"][name]
        spans = [(self.number(n) - 1) * self.number(s) for n, s in zip(buffer["size"], buffer["stride"], strict=True)]
        return self.number(buffer["offset"]) + sum(spans) + 1

    def draw(self, owner: str, size: int, dtype: torch.dtype, regime: str, rng: np.random.Generator) -> torch.Tensor:
        if not dtype.is_floating_point:
            bounds = [self.number(s["size"]) for node in self.meaning["nodes"] for s in walk(node["body"]) if s["op"] == "indirect"]
            low, high = (0, 2) if dtype == torch.bool else (0, 100) if dtype == torch.uint8 else (-9, 9)
            if bounds and dtype == torch.int64:
                low, high = -min(bounds), min(bounds)
            return torch.from_numpy(rng.integers(low, high, size)).to(dtype)
        values = rng.standard_normal(size) * {"small": 0.01, "large": 20.0}.get(regime, 1.0)
        if regime == "far":
            values += 1000.0
        for special in {"special": (np.inf, -np.inf, np.nan), "infinite": (np.inf,)}.get(regime, ()):
            values[rng.integers(0, size, max(1, size // 900))] = special
        return torch.from_numpy(values).to(dtype)

    def reset(self) -> None:
        for owner, tensor in self.tensors.items():
            tensor.copy_(self.entry[owner])


def walk(statements: list):
    for s in statements:
        yield s
        yield from walk(s.get("body", []))


def wide(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.double() if tensor.dtype.is_floating_point else tensor).numpy().copy()


def interpret_one(job: dict, candidate: dict, folder: str, number: int, memories: dict) -> None:
    arguments = job["meaning"]["arguments"]
    made = module(candidate["source"], folder, f"m{number}")
    made.libdevice, made.triton_helpers = Library(), Helpers()
    for regime, memory in memories.items():
        memory.reset()
        scratch = {s["name"]: poisoned(s) for s in candidate["scratch"]}
        for launch in candidate["launches"]:
            args = [scratch[a["name"]][0] if a["role"] == "scratch" else memory.argument(a) for a in passed(job, candidate, launch)]
            with np.errstate(all="ignore"):
                getattr(made, launch["entry"])[tuple(int(e) for e in launch["grid"])](*args, **launch["constants"])
        for name, (_, whole, guard) in scratch.items():
            assert torch.equal(whole[-GUARD:], guard), f"{regime}: written behind scratch {name}"
        for a in arguments:
            if a["role"] in ("out", "inout") and a["name"] not in job["scratch"]:
                owner = memory.root(a["buffers"][0])[0]
                compare(memory.tensors[owner], memory.flat[owner], f"{regime}: {a['name']}", job.get("tolerance", 1.0))
            elif a["role"] == "in":
                owner = memory.root(a["buffers"][0])[0]
                assert torch.equal(memory.tensors[owner].view(torch.uint8), memory.entry[owner].view(torch.uint8)), f"{a['name']} was written"


GUARD = 256
"""Bytes behind a scratch buffer that nobody may write."""


def poisoned(scratch: dict) -> tuple:
    """A scratch buffer that holds what no kernel would leave there, all that was allocated for it, and its guard's bytes."""
    dtype = DTYPES[scratch["dtype"]]
    size = scratch["elements"] * dtype.itemsize
    memory = torch.full((size + GUARD,), 0x7F, dtype=torch.uint8)  # a NaN, or a number beyond what is drawn
    if scratch["zeroed"]:
        memory[:size] = 0
    return memory[:size].view(dtype), memory, memory[-GUARD:].clone()


def compare(tensor: torch.Tensor, want: np.ndarray, what: str, factor: float) -> None:
    got = wide(tensor)
    if not tensor.dtype.is_floating_point:
        assert np.array_equal(got, want), f"{what} differs"
        return
    finite = np.isfinite(want)
    same = np.where(np.isnan(want), np.isnan(got), got == want)
    assert same[~finite].all(), f"{what}: {(~same & ~finite).sum()} special values differ"
    scale = np.abs(want) + (np.sqrt(np.mean(want[finite] ** 2)) if finite.any() else 0.0)
    error = np.abs(got - want)[finite] / (scale[finite] + 1e-30)
    worst = np.nan_to_num(error, nan=np.inf).max(initial=0.0)
    assert worst < TOLERANCE[tensor.dtype] * factor, f"{what}: relative error {worst:.2e}"


# ---- load ----


def load_one(job: dict, candidate: dict, folder: str, number: int) -> None:
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner, GridExpr

    triton_helpers.set_driver_to_gpu = lambda: None
    kernel = getattr(module(candidate["source"], folder, f"m{number}"), candidate.get("kernel", job["kernel"]))
    assert isinstance(kernel, CachingAutotuner), type(kernel)
    (config,) = kernel.configs
    launch = candidate["launch"]
    assert config.kwargs == launch["constants"], config
    assert (config.num_warps, config.num_stages) == (launch["num_warps"], launch["num_stages"]), config
    assert list(kernel.triton_meta["signature"]) == kernel.fn.arg_names
    symbols = job["meaning"]["symbols"]
    names = {a["name"]: int(index_value(a["value"], symbols)) for a in job["meaning"]["arguments"] if a["role"] == "size"}
    grid = GridExpr.from_meta(kernel.inductor_meta, config).eval_slow(names)
    assert grid == tuple(int(e) for e in launch["grid"]), grid
    meta = kernel._create_compile_meta(config)
    assert meta["num_warps"] == launch["num_warps"]


def main() -> int:
    jobs, failed, number = json.loads(Path(sys.argv[2]).read_text()), 0, 0
    torch.set_num_threads(1)
    if MODE == "interpret":
        let_sizes_be_bounds()
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            memories = {}
            if MODE == "interpret":
                with np.errstate(all="ignore"):
                    memories = {regime: Memory(job["meaning"], regime, np.random.default_rng(7)) for regime in job["regimes"]}
            for candidate in job["candidates"]:
                number += 1
                try:
                    if MODE == "interpret":
                        interpret_one(job, candidate, folder, number, memories)
                    else:
                        {"compile": compile_one, "load": load_one}[MODE](job, candidate, folder, number)
                except Exception as why:
                    failed += 1
                    reason = str(why) if isinstance(why, AssertionError) else traceback.format_exc(limit=-3)
                    body = candidate["source"].split("@triton.jit", 1)[-1]
                    print(f"{job['name']}: {candidate['note']}: {reason}\n{body}", flush=True)
                    if failed >= FAILURES_SHOWN:
                        return 1
    print(f"{number} candidates, {failed} failed")
    return int(failed > 0)


sys.exit(main())
