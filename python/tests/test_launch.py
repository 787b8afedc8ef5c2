"""Launches are read from Inductor's own objects, made here from real generated kernels, without a GPU."""

import re
from pathlib import Path

import pytest

from kernelopt.launch import NoLaunch, launch_of
from kernelopt.observe import ObservedKernel

CAPTURES = Path(__file__).parents[2] / "tests/fixtures/captures"
LAUNCH = re.compile(r"(\w+)\.run\((.*), stream=")


def _called(capture: str, **sizes: int) -> dict[str, tuple]:
    """What the file passes to each kernel; `object()` stands for a tensor."""
    found = {}
    for name, arguments in LAUNCH.findall((CAPTURES / capture / "output_code_0.py").read_text()):
        words = arguments.split(", ")
        found[name] = tuple(int(w) if w.isdigit() else float(w) if "." in w else sizes.get(w, object()) for w in words)
    return found


def test_a_reduction(autotuners):
    kernels, calls = autotuners("cuda-h200/softmax"), _called("cuda-h200/softmax")
    ((name, kernel),) = kernels.items()
    assert launch_of(kernel, calls[name]) == {
        "entry": "triton_red_fused__softmax_exp_prepare_softmax_online_sub_0",
        "grid": ["4096", "1", "1"],
        "constants": {"XBLOCK": 1, "R0_BLOCK": 2048},
        "divisible_by_16": ["in_ptr0", "out_ptr2", "r0_numel", "xnumel"],
        "num_warps": 16,
        "num_stages": 1,
    }


def test_a_size_of_one_is_a_constant_although_it_is_passed(autotuners):
    kernel = autotuners("cuda-h200/ce")["triton_red_fused__log_softmax_nll_loss_forward_sub_1"]
    launch = launch_of(kernel, _called("cuda-h200/ce")["triton_red_fused__log_softmax_nll_loss_forward_sub_1"])
    assert launch["constants"]["xnumel"] == 1
    assert launch["grid"] == ["1", "1", "1"]
    assert "xnumel" not in launch["divisible_by_16"]


def test_symbolic_sizes_are_evaluated_and_not_taken_for_aligned(autotuners):
    capture, name = "cuda-more/dynamic", "triton_per_fused__softmax_exp_prepare_softmax_online_sub_2"
    kernel = autotuners(capture)[name]
    (block,) = (c.kwargs["XBLOCK"] for c in kernel.configs[-1:])
    launch = launch_of(kernel, _called(capture, s77=100)[name])
    assert launch["grid"] == [str(-(-100 // block)), "1", "1"]
    assert launch["divisible_by_16"] == ["in_out_ptr0", "r0_numel"]


def test_every_kernel_that_was_seen_on_a_gpu_has_a_launch(autotuners):
    seen = 0
    for capture in ("cuda-h200/bert", "cuda-h200/bnlike", "cuda-h200/ce", "cuda-h200/llama", "cuda-h200/rms", "cuda-h200/softmax"):
        calls = _called(capture)
        for name, kernel in autotuners(capture).items():
            launch = launch_of(kernel, calls[name])
            passed = list(kernel.fn.arg_names)
            assert set(launch["constants"]) | set(launch["divisible_by_16"]) <= set(passed)
            assert launch["grid"] != ["0", "0", "0"]
            assert all(kernel.triton_meta["signature"][argument] != "constexpr" for argument in launch["divisible_by_16"])
            seen += 1
    assert seen == 32


def test_a_kernel_that_the_user_wrote_has_a_launch_too(autotuners):
    capture = "cuda-nogpu/user"
    launch = launch_of(autotuners(capture)["scale_kernel_0"], _called(capture)["scale_kernel_0"])
    assert (launch["entry"], launch["grid"], launch["constants"]) == ("scale_kernel", ["32", "1", "1"], {"BLOCK": 1024})


def test_what_is_not_settled_has_no_launch(autotuners):
    kernel = autotuners("cuda-h200/rms").popitem()[1]
    kernel.launchers *= 2
    with pytest.raises(NoLaunch, match="2 configurations are left"):
        launch_of(kernel, ())
    with pytest.raises(NoLaunch, match="it is a function"):
        launch_of(lambda: None, ())


def test_other_arguments_than_described_have_no_launch(autotuners):
    kernel = autotuners("cuda-h200/softmax").popitem()[1]
    with pytest.raises(NoLaunch, match="called with 3 arguments, and 4 are described"):
        launch_of(kernel, (object(), object(), 4096))


def test_a_constant_that_is_no_integer_has_no_launch(autotuners):
    kernel = autotuners("cuda-h200/softmax").popitem()[1]
    kernel.launchers[0].config.kwargs["XBLOCK"] = None
    with pytest.raises(NoLaunch, match="its constant XBLOCK is None"):
        launch_of(kernel, (object(), object(), 4096, 32768))


def test_different_grids_at_different_places_are_no_launch(autotuners):
    name = "triton_per_fused__softmax_exp_prepare_softmax_online_sub_2"
    kernel = autotuners("cuda-more/dynamic")[name]
    kernel.run = lambda *arguments, stream: stream
    entry = {"kernel": name, "meaning": None}
    observed = ObservedKernel(entry, kernel)
    assert observed.run(object(), 64, 256, stream=7) == 7
    assert entry["launch"]["entry"] == name
    observed.run(object(), 64, 256, stream=7)
    assert "launch" in entry
    observed.run(object(), 4096, 256, stream=7)
    assert "launch" not in entry
    assert "different grids" in entry["no_launch"]
