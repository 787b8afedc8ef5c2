"""Float64 twins: what they widen, what they round, what they refuse, and that they compute the truth."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="no triton in this Python")

from kernelopt.build.order import BuildFault
from kernelopt.build.purity import impurities
from kernelopt.build.screen import parse
from kernelopt.build.twin import twin
from test_build import build, copy_order, fault_of

HEAD = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton.jit
def k(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
"""
TYPES = {"a": "*bf16", "b": "*bf16", "c": "*i64", "n": "i32", "BLOCK": "constexpr"}


def order(body, **changes):
    source = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    signature = tuple((name, kind) for name, kind in TYPES.items() if kind != "constexpr")
    return copy_order(source, entry="k", kind="twin", signature=signature, **changes)


def made(body, rounded=False):
    return twin(parse(order(body).source), "k", TYPES, rounded)


def test_outputs_widen_and_inputs_do_not():
    found = made("x = tl.load(a + i, m, other=0.0)\ntl.store(b + i, x * 2, m)\ntl.store(c + i, i.to(tl.int64), m)")
    assert (found.widened, found.inouts, found.roundings, found.narrows, found.draws) == (["b"], [], 0, False, False)
    assert found.types == {"a": "*bf16", "b": "*fp64", "c": "*i64", "n": "i32", "BLOCK": "constexpr"}


def test_old_contents_of_an_output_are_read_and_not_rounded():
    body = "x = tl.load(b + i, m)\ntl.store(b + i, x + 1, m)"
    found = made(body, rounded=True)
    assert (found.widened, found.inouts, found.roundings) == (["b"], ["b"], 0)
    assert "bfloat16" not in found.text


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(b + i, tl.load(a + i, m), m)\ntl.store(a + i, tl.load(b + i, m) * 2, m)",
        "for j in range(0, n, BLOCK):\n    x = tl.load(b + i + j, m)\n    tl.store(b + i + j + 1, x, m)",
        "x = (tl.load(a + i, m) * 2).to(tl.bfloat16)\ntl.store(b + i, x + 1, m)",
    ],
)
def test_what_is_rounded_on_the_way_has_two_twins(body):
    exact, rounded = made(body), made(body, rounded=True)
    assert exact.roundings == rounded.roundings > 0
    assert "bfloat16" not in exact.text and "bfloat16" in rounded.text
    for way in (False, True):
        assert build(order(body, rounded=way)).facts["twin"]["roundings"] == exact.roundings


def test_a_cast_that_is_only_stored_rounds_nothing():
    found = made("x = tl.load(a + i, m).to(tl.float32)\ny = (x * x).to(tl.bfloat16)\ntl.store(b + i, y, m)", rounded=True)
    assert (found.roundings, "bfloat16" in found.text) == (0, False)


@pytest.mark.parametrize(
    "body",
    [
        "x = libdevice.fast_tanhf(tl.load(a + i, m).to(tl.float32))\ntl.store(b + i, libdevice.rsqrt(x), m)",
        "x = tl.load(a + i, m).to(tl.float32)\ntl.store(b + i, tl.math.div_rn(tl.sqrt_rn(x), tl_math.exp(x)), m)",
        "x = tl.load(a + i, m).to(tl.float32)\nj = x.to(tl.int32, bitcast=True)\ntl.store(c + i, j.to(tl.int64), m)\ntl.store(b + i, x, m)",
        "x = tl.rand(7, i)\nh = tl.full([1], 0.3, tl.float32)\ntl.store(b + i, tl.where(x > h, tl.load(a + i, m), 0.0), m)",
        "x = tl.randn(7, i)\ntl.store(b + i, x * tl.load(a + i, m), m)",
        "tl.atomic_add(b + i, tl.load(a + i, m), m)",
        "x = tl.cast(tl.load(a + i, m), tl.float32)\ntl.store(b + tl.load(c + i, m), triton_helpers.maximum(x, 0.0), m)",
        "x = tl.load(a + i, m).to(tl.float32)\ntl.store(b + i, tl.exp2(x) + tl.log(x) + tl.sigmoid(x) + tl.fma(x, x, x), m)",
        "p = b + i\ntl.store(p, tl.sum(tl.load(a + i, m).to(tl.float32), 0), m)",
    ],
)
def test_constructs_compile_and_are_pure(body):
    for rounded in (False, True):
        assert build(order(body, rounded=rounded)).facts["twin"]["widened"] == ["b"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("x = tl.dot(tl.zeros([16, 16], tl.float32), tl.zeros([16, 16], tl.float32))", "tl.dot"),
        ("x = tl.inline_asm_elementwise('', '=r,r', [i], tl.int32, True, 1)", "inline assembly"),
        ("x = libdevice.float_as_int(tl.load(a + i, m).to(tl.float32))", "float64 form"),
        ("x = tl.load(a + i, m, other=tl.load(b + i))", "masked load"),
        ("x = tl.load(tl.where(m, a, b) + i)", "buffer cannot be told"),
        ("x = tl.rand4x(1, i)", "four draws"),
        ("tl.atomic_cas(b + i, 0.0, 1.0)", "atomic_cas"),
    ],
)
def test_what_has_no_float64_is_named_with_its_line(line, what):
    with pytest.raises(BuildFault) as raised:
        made(f"{line}\ntl.store(b + i, i, m)")
    assert (raised.value.kind, raised.value.line) == ("untwinned", 10)
    assert what in raised.value.reason


def test_arithmetic_that_stays_narrow_is_found():
    # An integer quotient is a float32 in Triton, whatever stands around it.
    fault = fault_of(order("x = i / n\ntl.store(b + i, x, m)"))
    assert fault.kind == "untwinned" and "narrower type" in fault.reason


def test_twins_compute_the_truth():
    script = Path(__file__).parent / "twin_interpreter.py"
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert len(errors) >= 4
    for name, (of_twin, of_kernel) in errors.items():
        assert of_twin < 1e-13, name
        # The control: the kernel itself is off by roundings of float32 or bfloat16, so the comparison can see an error.
        assert 1e-9 < of_kernel < 2e-2, name


@pytest.mark.parametrize(
    ("line", "pure"),
    [
        ("%x = arith.addf %a, %b : tensor<128xf64>", True),
        ("%xf32 = arith.addf %af32, %b : f64", True),
        ("%p = tt.addptr %a, %i : tensor<128x!tt.ptr<f32>>, tensor<128xi32>", True),
        ("%x = tt.load %p : tensor<4x128x!tt.ptr<bf16>>", True),
        ("%x = arith.extf %a : tensor<128xbf16> to tensor<128xf64>", True),
        ("%x = tt.fp_to_fp %a : tensor<8xf8E5M2> -> tensor<8xf32>", True),
        ("%x = arith.addf %a, %b : tensor<128xf32>", False),
        ("%x = arith.addf %a, %b : f32", False),
        ("%x = arith.truncf %a : tensor<1x128xf64> to tensor<1x128xf32>", False),
        ("%x = tt.fp_to_fp %a, rounding = rtne : tensor<8xf64> -> tensor<8xf16>", False),
        ("%x = arith.sitofp %a : tensor<8xi32> to tensor<8xf32>", False),
        ("%x = arith.cmpf olt, %a, %b : tensor<8xf16>", False),
        ('%x = tt.extern_elementwise %a {symbol = "__nv_expf"} : (tensor<8xf32>) -> tensor<8xf32>', False),
        ("}) : (tensor<1x256xf32>) -> tensor<1xf32>", False),
        ("^bb0(%a: f32, %b: f32):", False),
    ],
)
def test_what_a_twin_may_do(line, pure):
    assert (impurities(f"    {line} loc(#loc1)", rounds=False, draws=False) == []) == pure


def test_only_draws_are_reckoned_in_float32():
    draw = "%d = arith.sitofp %i : tensor<8xi32> to tensor<8xf32>\n%e = arith.mulf %d, %d : tensor<8xf32>\n"
    assert impurities(draw, rounds=False, draws=True) == []
    assert len(impurities(draw, rounds=False, draws=False)) == 2
    mixed = draw + "%y = tt.load %p : tensor<8x!tt.ptr<f32>>\n%z = arith.mulf %e, %y : tensor<8xf32>\n"
    assert impurities(mixed, rounds=False, draws=True) == ["%z = arith.mulf %e, %y : tensor<8xf32>"]
