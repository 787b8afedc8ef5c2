"""Prints sympy index expressions in the grammar of the Rust parser `shared::meaning::parse`."""

import sympy
from torch.utils._sympy import functions as fn

from .vocabulary import Unsupported

# Functions that keep their name. `Mod` and `PythonMod` agree on the non-negative values that index expressions take.
CALLS = {
    fn.FloorDiv: "FloorDiv",
    fn.CleanDiv: "FloorDiv",
    fn.ModularIndexing: "ModularIndexing",
    fn.CeilDiv: "CeilDiv",
    fn.Mod: "Mod",
    fn.PythonMod: "Mod",
    sympy.Mod: "Mod",
    fn.Max: "Max",
    fn.Min: "Min",
    sympy.Max: "Max",
    sympy.Min: "Min",
}
COMPARISONS = {
    sympy.StrictLessThan: "<",
    sympy.LessThan: "<=",
    sympy.Equality: "==",
    sympy.Unequality: "!=",
    sympy.StrictGreaterThan: ">",
    sympy.GreaterThan: ">=",
}
GREATEST_POWER = 8


def render(expr: "sympy.Expr | int") -> str:
    """Text of an integer expression.

    Raises:
        Unsupported: it holds a function, a fraction or a power outside the grammar.
    """
    expr = sympy.sympify(expr)
    if isinstance(expr, sympy.Add):
        text = " + ".join(render(term) for term in expr.as_ordered_terms())
        return text.replace(" + -", " - ")
    return _factor(expr)


def _factor(expr: sympy.Expr) -> str:
    if isinstance(expr, sympy.Integer):
        return str(int(expr))
    if isinstance(expr, sympy.Symbol):
        return expr.name
    if isinstance(expr, sympy.Mul):
        return _product(expr)
    if isinstance(expr, (sympy.Pow, fn.PowByNatural)):
        return _power(*expr.args)
    if isinstance(expr, fn.Identity):
        return f"({render(expr.args[0])})"
    if isinstance(expr, fn.Where):
        condition, yes, no = expr.args
        return f"Where({_condition(condition)}, {render(yes)}, {render(no)})"
    if type(expr) in CALLS:
        return f"{CALLS[type(expr)]}({', '.join(render(arg) for arg in expr.args)})"
    raise Unsupported(f"the index expression {expr} uses {type(expr).__name__}")


def _product(expr: sympy.Mul) -> str:
    factors = [f"({render(f)})" if isinstance(f, sympy.Add) else _factor(f) for f in expr.as_ordered_factors()]
    if factors[0] == "-1":
        factors = ["-" + factors[1], *factors[2:]]
    return "*".join(factors)


def _power(base: sympy.Expr, exponent: sympy.Expr) -> str:
    if not (isinstance(exponent, sympy.Integer) and 1 <= int(exponent) <= GREATEST_POWER):
        raise Unsupported(f"the index expression {base}**{exponent} has a power outside 1 to {GREATEST_POWER}")
    text = render(base)
    return f"{text}**{int(exponent)}" if isinstance(base, sympy.Symbol) else f"({text})**{int(exponent)}"


def _condition(condition: sympy.Basic) -> str:
    if type(condition) not in COMPARISONS:
        raise Unsupported(f"the index expression uses the condition {condition}")
    return f"{render(condition.args[0])} {COMPARISONS[type(condition)]} {render(condition.args[1])}"
