"""Builds a twin: the transform, the compiler, the check, and a smaller block where the twin's values do not fit."""

import dataclasses
from collections.abc import Iterator

from .kernel import Compiled, Parameters, compile_text
from .module import entry_of, is_users, settings, stripped
from .order import BuildFault, Order, Product
from .purity import impurities
from .twin import Twin, twin

REDUCTION_BLOCKS = ("R0_BLOCK", "RBLOCK")
"""Blocks of a looped reduction: the grid does not depend on them. That of any other block does, so those stay."""
LEAST_BLOCK = 64
MOST_WARPS = 16
BEARABLE_STACK_BYTES = 128
"""Local memory of a thread that costs little; a baseline's own twin has none as a rule."""
MOST_TRIES = 5


def build(order: Order) -> Product:
    """The twin of an order's kernel: with the least local memory among a few blocks, the baseline's own first.

    Raises:
        BuildFault: the kernel has none.
    """
    _, tree = stripped(order.source)
    parameters = Parameters.of(entry_of(tree, order.entry), order)
    made = twin(tree, order.entry, parameters.types, order.rounded)
    best: tuple[Compiled, Order] | None = None
    fault: BuildFault | None = None
    for tried, smaller in enumerate(_smaller(order)):
        if tried == MOST_TRIES:
            break
        try:
            compiled = _compile(made, smaller)
        except BuildFault as error:
            if error.kind == "stopped":
                raise
            fault = fault or error
            continue
        if best is None or compiled.stack_bytes < best[0].stack_bytes:
            best = compiled, smaller
        if compiled.stack_bytes <= BEARABLE_STACK_BYTES:
            break
    if best is None:
        raise BuildFault("untwinned", f"the twin does not compile: {fault.reason if fault else 'no block'}")
    return _described(*best, made, parameters)


def _compile(made: Twin, order: Order) -> Compiled:
    parameters = dataclasses.replace(Parameters.of(entry_of(stripped(order.source)[1], order.entry), order), types=made.types)
    compiled = compile_text(made.text, parameters, order, settings(order.source, order.entry))
    narrow = impurities(compiled.ttir, made.narrows, made.draws)
    if narrow:
        raise BuildFault("untwinned", f"the twin computes in a narrower type: {narrow[0]}")
    return compiled


def _smaller(order: Order) -> Iterator[Order]:
    """The order as it is, then with smaller blocks, then with more warps for the same block."""
    yield order
    generated = not is_users(order.source, order.entry)  # what a block of the author's is for, nobody says
    block = next((name for name in REDUCTION_BLOCKS if generated and name in order.constants), None)
    size = order.constants.get(block, 0) if block else 0
    while block and size > LEAST_BLOCK:
        size //= 2
        yield dataclasses.replace(order, constants=order.constants | {block: size})
    warps = order.num_warps
    while not block and warps < MOST_WARPS:
        warps *= 2
        yield dataclasses.replace(order, num_warps=warps)


def _described(compiled: Compiled, order: Order, made: Twin, parameters: Parameters) -> Product:
    facts = {
        "widened": [parameters.names[name] for name in made.widened],
        "inouts": [parameters.names[name] for name in made.inouts],
        "roundings": made.roundings,
        "constants": order.constants,
    }
    return dataclasses.replace(compiled.product, facts=compiled.product.facts | {"twin": facts})
