"""What a worker is asked for, and the ways in which it can fail."""

import dataclasses
from typing import Literal

Kind = Literal["kernel", "twin", "module"]


@dataclasses.dataclass(frozen=True)
class Order:
    """One piece of work, as the agent's `Order`.

    Attributes:
        signature: (name, Triton's type) of the target's arguments, in call order.
        constants: compile-time constants; a name that the signature has too is no argument of the machine code.
        divisible_by_16: arguments that may be taken for multiples of 16, by the signature's names.
        rounded: of a twin: values are rounded to the types of memory wherever the baseline rounds them within the kernel.
        architecture: compute capability times ten.
        cpu_seconds, wall_seconds: bounds on the build.
    """

    language: Literal["triton", "cuda"]
    source: str
    architecture: int
    kind: Kind
    cpu_seconds: int
    wall_seconds: float
    entry: str = ""
    signature: tuple[tuple[str, str], ...] = ()
    constants: dict[str, int] = dataclasses.field(default_factory=dict)
    divisible_by_16: frozenset[str] = frozenset()
    num_warps: int = 4
    num_stages: int = 1
    rounded: bool = False

    @classmethod
    def decode(cls, message: dict) -> "Order":
        """From a message; unknown fields are an error, as are missing ones."""
        message = dict(message)
        message["signature"] = tuple((name, kind) for name, kind in message.get("signature", ()))
        message["divisible_by_16"] = frozenset(message.get("divisible_by_16", ()))
        return cls(**message)


@dataclasses.dataclass(frozen=True)
class Product:
    """Machine code with what its launch needs; `facts` is the answer's JSON."""

    cubin: bytes
    facts: dict


class BuildFault(Exception):
    """Why there is no machine code.

    `kind` says whose fault it is: `refused` and `compiler` are the source's; `untwinned` says that this kernel has no
    twin; `environment` that this machine lacks something. `stopped` says that the build ran out of something, which another one
    may have again: it is never kept.
    """

    def __init__(
        self, kind: Literal["refused", "compiler", "untwinned", "environment", "stopped"], reason: str, line: int | None = None
    ) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.line = kind, reason, line

    def message(self) -> dict:
        """The answer's JSON."""
        return {"outcome": self.kind, "reason": self.reason[-MOST_REASON_CHARACTERS:], "line": self.line}


MOST_REASON_CHARACTERS = 4000
MAX_SOURCE_BYTES = 512 << 10


def refused(reason: str, line: int | None = None) -> BuildFault:
    """The source breaks a rule."""
    return BuildFault("refused", reason, line)
