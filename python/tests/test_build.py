"""The build worker's parts: what the compiler wrote compiles, as do its twins; what a kernel does not need is refused."""

import concurrent.futures
import dataclasses
import errno
import multiprocessing
import os
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="no triton in this Python")

from triton.runtime.errors import PTXASError

from captured_kernels import captured, captured_kernels
from kernelopt.build import kernel, nvrtc, truth
from kernelopt.build.module import settings, stripped
from kernelopt.build.order import BuildFault, Order
from kernelopt.build.ptxas import resources
from kernelopt.build.purity import impurities
from kernelopt.build.screen import keep, parse

COPY = """\
import triton
import triton.language as tl

@triton.jit
def copy(source, target, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + index, tl.load(source + index, index < n), index < n)
"""


def copy_order(source=COPY, **changes):
    signature = (("in_ptr0", "*bf16"), ("out_ptr0", "*fp32"), ("xnumel", "i32"))
    order = Order("triton", source, 90, "kernel", 60, 60, entry="copy", signature=signature, constants={"BLOCK": 64})
    return dataclasses.replace(order, **changes)


def build(order):
    return (truth if order.kind == "twin" else kernel).build(order)


def fault_of(order):
    with pytest.raises(BuildFault) as raised:
        build(order)
    return raised.value


def _outcome(order):
    try:
        return build(order).facts
    except BuildFault as fault:
        return f"{order.entry} {order.kind}: {fault.kind}, line {fault.line}: {fault.reason}"


def test_every_captured_kernel_and_its_twin_compile():
    kernels = captured_kernels()
    assert len(kernels) >= 70
    orders = [kernel.order(kind) for kernel in kernels for kind in ("kernel", "twin")]
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        facts = list(pool.map(_outcome, orders))
    assert [fact for fact in facts if isinstance(fact, str)] == []
    for order, fact in zip(orders, facts, strict=True):
        twin = fact.get("twin")
        assert (twin is not None) == (order.kind == "twin")
        if twin:
            names = {name: kind for name, kind in order.signature}
            assert set(twin["inouts"]) <= set(twin["widened"])
            assert all(names[name].startswith(("*fp", "*bf")) for name in twin["widened"])
            # What the compiler calls an output and is a float is one.
            outputs = {name for name, kind in names.items() if "out_ptr" in name and kind in ("*fp32", "*bf16", "*fp16")}
            assert outputs <= set(twin["widened"])


def test_the_options_are_inductors_own():
    from torch._inductor.runtime.triton_compat import Config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    for found in captured_kernels()[::9]:
        order = found.order()
        compiler = SimpleNamespace(
            triton_meta={**found.triton_meta, "device": None},
            inductor_meta=found.inductor_meta,
            device_props=SimpleNamespace(type="cuda", cc=90),
            fn=SimpleNamespace(params=(), arg_names=()),
        )
        config = Config({}, num_warps=order.num_warps, num_stages=order.num_stages)
        meta = CachingAutotuner._create_compile_meta(compiler, config)
        theirs = CachingAutotuner._create_compile_options(compiler, config, meta)
        assert kernel._options(order, settings(order.source, order.entry)) == theirs


def test_lines_stay_where_they_were():
    source = captured_kernels()[0].source
    text, _ = stripped(source)
    assert "triton_heuristics" not in text and "set_driver_to_gpu" not in text
    ours, theirs = text.splitlines(), source.splitlines()
    body = next(index for index, line in enumerate(theirs) if line.startswith("def "))
    assert ours[body:] == theirs[body:]
    assert fault_of(copy_order(COPY.replace("tl.program_id(0)", "tl.no_such"))).line == 6


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("import os", 1),
        ("import triton.runtime", 1),
        ("from triton import runtime", 1),
        ("from . import x", 1),
        ("x = __import__('os')", 1),
        ("x = (lambda: 1)()", 1),
        ("x = tl.constexpr.mro()", 1),
        ("def f(): pass", 1),
        ("if True: pass", 1),
        ("del x", 1),
    ],
)
def test_only_imports_constants_and_kernels_stand_in_a_module(line, number):
    with pytest.raises(BuildFault) as raised:
        keep(parse(f"{line}\n{COPY}"))
    assert (raised.value.kind, raised.value.line) == ("refused", number)


@pytest.mark.parametrize(
    "expression",
    ["tl.core", "tl.core.builtin", "triton.runtime", "tl.load.__class__", "eval('1')", "open", "copy.__globals__", "lambda: 0"],
)
def test_names_inside_a_kernel_lead_nowhere(expression):
    with pytest.raises(BuildFault) as raised:
        keep(parse(COPY.replace("tl.program_id(0)", expression)))
    assert (raised.value.kind, raised.value.line) == ("refused", 6)


def test_constants_and_helpers_are_allowed():
    constants = "import math\nSCALE: tl.constexpr = tl.constexpr(1 / math.log(2))\nN = -3 * 2\n"
    helper = "@triton.jit\ndef add(a, b):\n    return a + b * SCALE\n\n"
    source = COPY.replace("@triton.jit\n", f"{constants}\n{helper}@triton.jit\n")
    source = source.replace("tl.load(source + index, index < n)", "add(tl.load(source + index, index < n), 1.0)")
    assert build(copy_order(source)).facts["registers"] > 0


def test_the_same_source_gives_the_same_bytes():
    assert build(copy_order()).cubin == build(copy_order()).cubin


def test_parameters_are_paired_by_position():
    order = copy_order(divisible_by_16=frozenset({"in_ptr0", "out_ptr0"}))
    _, tree = stripped(order.source)
    pairs = kernel.Parameters.of(tree.body[-1], order)
    assert pairs.types == {"source": "*bf16", "target": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert (pairs.constants, pairs.divisible, pairs.names["target"]) == ({"BLOCK": 64}, [0, 1], "out_ptr0")
    fixed = copy_order(COPY.replace(" n,", " xnumel,").replace("< n", "< xnumel"), constants={"BLOCK": 64, "xnumel": 1})
    assert kernel.Parameters.of(stripped(fixed.source)[1].body[-1], fixed).types["xnumel"] == "constexpr"
    assert "has no value" in fault_of(copy_order(constants={})).reason


def test_the_assembler_is_understood():
    log = (
        "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
        "ptxas info    : Function properties for a\n    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers\nptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
        "ptxas info    : Used 99 registers\n"
    )
    assert resources(log, "a") == {"registers": 40, "spill_bytes": 12, "stack_bytes": 8}
    assert resources(log, "c")["registers"] == 0


def test_baselines_are_not_pure():
    flagged = []
    for file, name in (("softmax", "sub_0"), ("bert", "gelu_view_7"), ("bert", "layer_norm_view_6"), ("rms", "rsqrt_0")):
        order = captured(file, name).order()
        text, tree = stripped(order.source)
        parameters = kernel.Parameters.of(tree.body[-1], order)
        compiled = kernel.compile_text(text, parameters, order, settings(order.source, order.entry))
        flagged.append(bool(impurities(compiled.ttir, rounds=True, draws=True)))
    assert all(flagged)


PTXAS = "`ptxas` failed with error code {}\n`ptxas` stderr:\n{}\nRepro command: ptxas ..."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "stopped"),
        (BlockingIOError(errno.EAGAIN, "no process"), "stopped"),
        (PTXASError(PTXAS.format(-9, "")), "stopped"),
        (PTXASError(PTXAS.format(1, "ptxas fatal   : Memory allocation failure")), "stopped"),
        (PTXASError(PTXAS.format(1, "ptxas error   : Entry function uses too much shared data")), "compiler"),
        (RuntimeError("PassManager::run failed"), "compiler"),
    ],
)
def test_what_ran_out_is_no_fault_of_the_source_nor_of_its_twin(monkeypatch, error, kind):
    def spent(*arguments, **options):
        raise error

    monkeypatch.setattr(kernel.triton, "compile", spent)
    found = fault_of(copy_order())
    assert (found.kind, "Repro" in found.reason) == (kind, False)
    assert fault_of(copy_order(kind="twin")).kind == ("stopped" if kind == "stopped" else "untwinned")


def test_cuda_compiles_with_headers_and_names_the_line():
    source = '#include <cuda_bf16.h>\nextern "C" __global__ void k(__nv_bfloat16* x) { x[0] = __float2bfloat16(FACTOR); }\n'
    order = Order("cuda", source, 90, "kernel", 60, 60, entry="k", constants={"FACTOR": 3}, num_warps=8)
    try:
        product = nvrtc.build(order)
    except BuildFault as fault:
        assert fault.kind == "environment"
        pytest.skip(fault.reason)
    assert product.cubin.startswith(b"\x7fELF") and product.facts["threads"] == 256
    with pytest.raises(BuildFault) as raised:
        nvrtc.build(dataclasses.replace(order, source=source.replace("x[0]", "y[0]")))
    assert (raised.value.kind, raised.value.line) == ("compiler", 2)
