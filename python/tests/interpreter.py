"""Runs a meaning in float64, for tests: each loop is one dimension of a tensor, and values broadcast over the loops they use."""

import math

import torch

F64 = torch.float64


def _where(condition, yes, no):
    return torch.where(torch.as_tensor(condition), torch.as_tensor(yes), torch.as_tensor(no))


def _floor_div(a, b):
    return torch.div(torch.as_tensor(a), torch.as_tensor(b), rounding_mode="floor")


EXPRESSIONS = {
    "FloorDiv": _floor_div,
    "ModularIndexing": lambda a, b, c: _floor_div(a, b) % c,
    "Mod": lambda a, b: a % b,
    "CeilDiv": lambda a, b: -_floor_div(-a, b),
    "Where": _where,
    "Min": lambda *xs: _fold(torch.minimum, xs),
    "Max": lambda *xs: _fold(torch.maximum, xs),
}


def _fold(function, values):
    result = torch.as_tensor(values[0])
    for value in values[1:]:
        result = function(result, torch.as_tensor(value))
    return result


def _bools(function):
    return lambda *args: function(*(a.bool() for a in args))


def _floats(function):
    return lambda x: function(x.to(F64))


FUNCTIONS = {
    **{name: getattr(torch, name) for name in "add mul fmod remainder pow atan2 copysign hypot maximum minimum eq ne lt gt le ge".split()},
    **{name: getattr(torch, name) for name in "neg abs sign square isnan isinf signbit floor ceil trunc round relu".split()},
    **{name: getattr(torch, name) for name in "bitwise_and bitwise_or bitwise_xor bitwise_not".split()},
    **{name: _bools(getattr(torch, name)) for name in "logical_and logical_or logical_xor logical_not".split()},
    **{name: _floats(getattr(torch, name)) for name in "sigmoid sqrt rsqrt exp exp2 expm1 log log2 log10 log1p".split()},
    **{name: _floats(getattr(torch, name)) for name in "sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh".split()},
    **{name: _floats(getattr(torch, name)) for name in ("erf", "erfc", "reciprocal")},
    "sub": lambda a, b: a.long() - b.long() if torch.bool in (a.dtype, b.dtype) else a - b,
    "truediv": torch.true_divide,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.fmod,
    "identity": lambda a: a,
    "bitwise_left_shift": lambda a, b: a << b,
    "bitwise_right_shift": lambda a, b: a >> b,
    "where": lambda c, a, b: torch.where(c.bool(), a, b),
    "fma": lambda a, b, c: a * b + c,
}


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Memory as the interpreter computes with it: float64, int64 or bool."""
    if tensor.dtype == torch.bool:
        return tensor.clone()
    return tensor.to(F64 if tensor.is_floating_point() else torch.int64, copy=True)


def run_meaning(meaning: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Runs the nodes on the kernel's arguments.

    Args:
        tensors: pointer arguments by name, as they are before the launch; they are not changed.

    Returns:
        Memory behind every argument that is written, from its pointer on.
    """
    buffers = _memory(meaning, tensors)
    for node in meaning["nodes"]:
        _Nest(meaning, node, buffers).run(node["body"])
    return {a["name"]: buffers[a["buffers"][-1]] for a in meaning["arguments"] if a["role"] in ("out", "inout")}


def _memory(meaning: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    storages: dict[int, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    for argument in meaning["arguments"]:
        if argument["role"] == "size":
            continue
        tensor = tensors[argument["name"]]
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in storages:
            elements = tensor.untyped_storage().nbytes() // tensor.element_size()
            storages[pointer] = wide(torch.as_strided(tensor, (elements,), (1,), 0))
        first, *later = argument["buffers"]
        buffers[first] = storages[pointer][tensor.storage_offset() :]
        buffers |= {name: buffers[first].clone() for name in later}
    described = meaning["buffers"]
    for name, buffer in described.items():
        if name not in buffers and "mutates" not in buffer:
            sizes = [_value(e, meaning["symbols"]) for e in buffer["size"]]
            strides = [_value(e, meaning["symbols"]) for e in buffer["stride"]]
            length = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
            buffers[name] = wide(torch.zeros(length, dtype=getattr(torch, buffer["dtype"])))
    for name, buffer in described.items():
        if name not in buffers:
            buffers[name] = buffers[buffer["mutates"]]
    return buffers


def _value(text: str, names: dict):
    return eval(text, {"__builtins__": {}}, {**EXPRESSIONS, **names})


class _Nest:
    def __init__(self, meaning: dict, node: dict, buffers: dict[str, torch.Tensor]) -> None:
        self.buffers = buffers
        self.described = meaning["buffers"]
        self.names = dict(meaning["symbols"])
        self.values: dict[int, object] = {}
        self.mask = None
        axes = node["iter"] + node["reduce"]
        self.extents = [int(_value(axis["extent"], self.names)) for axis in axes]
        self.reduced = list(range(len(node["iter"]), len(axes)))
        for i, axis in enumerate(axes):
            shape = [-1 if j == i else 1 for j in range(len(axes))]
            self.names[axis["var"]] = torch.arange(self.extents[i]).reshape(shape)

    def run(self, body: list[dict]) -> None:
        for s in body:
            self.values[s["id"]] = getattr(self, s["op"])(s)

    def at(self, text: str) -> torch.Tensor:
        return torch.as_tensor(_value(text, self.names))

    def load(self, s: dict) -> torch.Tensor:
        index = self.at(s["index"])
        if self.mask is not None:
            index = torch.where(self.mask, index, 0)
        return self.buffers[s["buffer"]][index]

    def store(self, s: dict) -> None:
        index, value = torch.broadcast_tensors(self.at(s["index"]), self.values[s["value"]])
        memory = self.buffers[s["buffer"]]
        value = self.converted(value, self.described[s["buffer"]]["dtype"])
        if s.get("mode") == "atomic_add":
            shape = torch.broadcast_shapes(index.shape, self.extents)
            memory.index_put_((index.expand(shape).reshape(-1),), value.expand(shape).reshape(-1).to(memory.dtype), accumulate=True)
        else:
            memory[index] = value.to(memory.dtype)

    def constant(self, s: dict) -> torch.Tensor:
        return wide(
            torch.tensor(float(s["value"]) if isinstance(s["value"], str) else s["value"], dtype=F64).to(getattr(torch, s["dtype"]))
        )

    def index(self, s: dict) -> torch.Tensor:
        return self.converted(self.at(s["index"]), s["dtype"])

    def cast(self, s: dict) -> torch.Tensor:
        return self.converted(self.values[s["value"]], s["dtype"])

    def converted(self, value: torch.Tensor, dtype: str) -> torch.Tensor:
        kind = getattr(torch, dtype)
        if kind.is_floating_point:
            return value.to(F64)  # narrow floats are not rounded: the truth is exact
        return wide(value.to(torch.int64).to(kind) if kind != torch.bool else value != 0)

    def bitcast(self, s: dict) -> torch.Tensor:
        return wide(self.values[s["value"]].to(getattr(torch, s["from"])).view(getattr(torch, s["dtype"])))

    def pointwise(self, s: dict) -> torch.Tensor:
        return FUNCTIONS[s["function"]](*(self.values[a] for a in s["args"]))

    def item(self, s: dict) -> torch.Tensor:
        return self.values[s["value"]][s["position"]]

    def masked(self, s: dict) -> torch.Tensor:
        mask, outer = self.values[s["mask"]].bool(), self.mask
        self.mask = mask if outer is None else mask & outer
        self.run(s["body"])
        self.mask = outer
        result = self.values[s["result"]]
        return torch.where(mask, result, torch.tensor(float(s["other"]), dtype=F64).to(result.dtype))

    def indirect(self, s: dict) -> None:
        value = self.values[s["value"]].long()
        if s["wrap_negative"]:
            value = torch.where(value < 0, value + self.at(s["size"]), value)
        self.names[s["variable"]] = value

    def reduction(self, s: dict) -> object:
        shapes = [self.values[v].shape for v in s["values"]]
        shape = list(torch.broadcast_shapes(*shapes, [1] * len(self.extents)))
        for axis in self.reduced:
            shape[axis] = self.extents[axis]
        return getattr(self, "reduce_" + s["kind"])(*(self.values[v].expand(shape) for v in s["values"]))

    def reduce_sum(self, x):
        return x.sum(self.reduced, keepdim=True)

    def reduce_prod(self, x):
        for axis in self.reduced:
            x = x.prod(axis, keepdim=True)
        return x

    def reduce_max(self, x):
        return x.amax(self.reduced, keepdim=True)

    def reduce_min(self, x):
        return x.amin(self.reduced, keepdim=True)

    def reduce_any(self, x):
        return (x != 0).any(self.reduced, keepdim=True)

    def _first(self, x, pick):
        flat = x.reshape(*x.shape[: self.reduced[0]], -1)
        return pick(flat, -1).reshape(*x.shape[: self.reduced[0]], *[1] * len(self.reduced))

    def reduce_argmax(self, x):
        return self._first(x, torch.argmax)

    def reduce_argmin(self, x):
        return self._first(x, torch.argmin)

    def reduce_welford_reduce(self, x):
        mean = x.mean(self.reduced, keepdim=True)
        count = torch.tensor(float(math.prod(self.extents[a] for a in self.reduced)), dtype=F64)
        return mean, ((x - mean) ** 2).sum(self.reduced, keepdim=True), count

    def reduce_welford_combine(self, mean, m2, weight):
        total = weight.sum(self.reduced, keepdim=True)
        centre = (mean * weight).sum(self.reduced, keepdim=True) / total
        return centre, (m2 + weight * (mean - centre) ** 2).sum(self.reduced, keepdim=True), total

    def reduce_online_softmax_reduce(self, x):
        greatest = x.amax(self.reduced, keepdim=True)
        return greatest, torch.exp(x - greatest).sum(self.reduced, keepdim=True)
