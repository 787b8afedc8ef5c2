"""Names that a meaning may use: the variants of `Function`, `ReductionKind` and `Dtype` in the Rust crate `shared`."""

import torch


class Unsupported(Exception):
    """The meaning cannot express a construct; the message is a sentence for people."""


DTYPES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}

UNARY = frozenset(
    "logical_not bitwise_not neg abs sign square reciprocal relu sigmoid identity sqrt rsqrt exp exp2 expm1 log log2 log10 log1p "
    "sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc floor ceil trunc round isnan isinf signbit".split()
)
BINARY = frozenset(
    "add sub mul truediv floordiv truncdiv mod fmod remainder pow atan2 copysign hypot maximum minimum eq ne lt gt le ge "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()
)
TERNARY = frozenset(["where", "fma"])

ARITY = dict.fromkeys(UNARY, 1) | dict.fromkeys(BINARY, 2) | dict.fromkeys(TERNARY, 3)
"""Function name to its number of arguments."""

PREDICATES = frozenset("eq ne lt gt le ge logical_and logical_or logical_xor logical_not isnan isinf signbit".split())
"""Functions whose result is a bool."""

SYNONYMS = {
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "int_truediv": "truediv",
    "mul_rn": "mul",
}
"""Inductor's other spellings. `mul_rn` only forbids a fusion of the multiplication with what follows."""

ROUNDINGS = {"trunc_to_int": "trunc", "floor_to_int": "floor", "ceil_to_int": "ceil", "round_to_int": "round"}
"""Operations that are a rounding followed by a conversion to an integer."""

REDUCTIONS = {
    "sum": 1,
    "prod": 1,
    "max": 1,
    "min": 1,
    "any": 1,
    "argmax": 1,
    "argmin": 1,
    "welford_reduce": 1,
    "welford_combine": 3,
    "online_softmax_reduce": 1,
}
"""Reduction kind to the number of values that it takes per element."""


def dtype_name(dtype: torch.dtype) -> str:
    """Name of `dtype` in a meaning."""
    if dtype not in DTYPES:
        raise Unsupported(f"the element type {str(dtype).removeprefix('torch.')} is not supported")
    return DTYPES[dtype]
