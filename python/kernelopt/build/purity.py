"""Is a twin one? Its intermediate representation must do no arithmetic in anything narrower than float64.

The check is a list of what *may* touch a narrower float: memory, moves and widening. Rounding is among it only where the twin's
transform has put it, and arithmetic only among values that a random generator draws, which are data.
"""

import re

_POINTER = re.compile(r"!tt\.ptr<[^>]*>")
_NARROW = re.compile(r"(?:\b|\dx)(?:f32|f16|bf16|f8E\w+)\b")
_STATEMENT = re.compile(r"^(?:(%[\w#:]+(?:, %[\w#:]+)*) = )?\"?([a-z_]+\.[\w.]+|\}\)|\^bb\d+)")
_VALUE = re.compile(r"%[\w#]+")
_LOCATION = re.compile(r" loc\(.*\)$")
# Moving and widening change no value.
_HARMLESS = frozenset(
    "arith.bitcast arith.constant arith.extf arith.select tt.bitcast tt.broadcast tt.expand_dims tt.func tt.fp_to_fp tt.load "
    "tt.reshape tt.splat tt.trans".split()
)
_WIDENING = frozenset({"arith.extf", "tt.fp_to_fp"})
_DRAWS = frozenset({"arith.sitofp", "arith.uitofp"})
_ARITHMETIC_OF_DRAWS = frozenset(
    "arith.addf arith.cmpf arith.divf arith.maximumf arith.maxnumf arith.mulf arith.subf math.cos math.log math.sin math.sqrt".split()
)


def impurities(ttir: str, rounds: bool, draws: bool) -> list[str]:
    """Operations of a twin's TTIR that it must not have, each as its own text; none where it is a twin.

    Args:
        rounds: the transform has asked for roundings to a narrower type.
        draws: the kernel draws random numbers.
    """
    found, drawn = [], set()
    for line in ttir.splitlines():
        text = _LOCATION.sub("", line.strip())
        match = _STATEMENT.match(text)
        if match is None:
            continue
        results, operation = match[1] or "", match[2]
        operands = _VALUE.findall(text[match.end() :])
        if operation in ("arith.constant", *_DRAWS):
            drawn.update(_VALUE.findall(results))
        if not _NARROW.search(_VALUE.sub("", _POINTER.sub("", text))):
            continue
        if operation in _HARMLESS and not (operation == "tt.fp_to_fp" and not _widens(text)):
            # What is moved stays what it was.
            if operation not in _WIDENING and operation != "tt.load" and operands and drawn.issuperset(operands):
                drawn.update(_VALUE.findall(results))
            continue
        if rounds and operation in ("arith.truncf", "tt.fp_to_fp"):
            continue
        if draws and (operation in _DRAWS or (operation in _ARITHMETIC_OF_DRAWS and drawn.issuperset(operands))):
            drawn.update(_VALUE.findall(results))
            continue
        found.append(text)
    return found


def _widens(text: str) -> bool:
    """Of `tt.fp_to_fp ... : A -> B`: B is the wider."""
    types = re.findall(r"(?:\dx|: |-> )(f64|f32|f16|bf16|f8E\w+)\b", text)
    widths = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
    return len(types) >= 2 and widths.get(types[-2], 8) < widths.get(types[-1], 8)
