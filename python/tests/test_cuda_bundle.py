"""What a bundle made for a GPU has in place of a processor's: made and read here with the GPU's part played by the processor."""

import json
import operator

import pytest
import torch

import models
from conftest import MODELS
from kernelopt import capture as capture_module
from kernelopt import gate as gate_module
from kernelopt import gpu, runtime
from kernelopt.bundle import Bundle
from kernelopt.capture import Options, capture
from kernelopt.clock import CpuClock
from kernelopt.distributions import GREATEST_SAMPLE, distribution
from kernelopt.gate import gate
from kernelopt.input_sets import scaled
from kernelopt.kernel_times import _totals
from kernelopt.reference import Float64Graph, attention
from kernelopt.runtime import load_graphs
from kernelopt.spread import positions
from kernelopt.tensors import Copies, Digester, TensorStore
from kernelopt.watch import SourceGraph


@pytest.fixture
def played_gpu(monkeypatch):
    """The processor plays the GPU: everything but streams, graphs and Triton."""
    monkeypatch.setattr(gpu, "require_gpu", lambda: None)
    monkeypatch.setattr(gpu, "facts", lambda: {"name": "NVIDIA X1"})
    monkeypatch.setattr(gpu, "versions", lambda: {"triton": "3.6.0", "cuda": "13.0", "driver": "580.159.04"})
    monkeypatch.setattr(capture_module, "load_model", lambda name, device: getattr(models, name.rpartition(":")[2])())
    monkeypatch.setattr(gate_module, "clock_for", lambda kind: CpuClock())
    monkeypatch.setattr(gate_module, "look_at_other_ways", lambda sets, kind: None)


@pytest.fixture
def bundle(played_gpu, tmp_path):
    """`bundle(factory)` captures a model of `models.py` for the GPU."""

    def made(factory: str, **options: bool) -> Bundle:
        capture(Options(f"{MODELS}:{factory}", tmp_path / factory, device="cuda", **options))
        return Bundle(tmp_path / factory)

    return made


def test_the_manifest_names_the_gpu(bundle):
    manifest = bundle("mlp").manifest
    assert (manifest["device"]["kind"], manifest["device"]["name"]) == ("cuda", "NVIDIA X1")
    assert manifest["versions"]["driver"] == "580.159.04"
    assert manifest["compile_command"] == []
    assert "compiler" not in manifest["versions"]


@pytest.mark.parametrize(
    ("factory", "options"), [("mlp", {}), ("many", {"dynamic": True}), ("frozen_conv", {"freeze": True}), ("attention", {})]
)
def test_the_reference_is_a_graph_that_gives_what_a_processor_bundle_holds(bundle, tmp_path, factory, options):
    on_gpu = bundle(factory, **options)
    assert not [name for name in on_gpu.manifest["files"] if name.startswith("reference_0.safe")]
    capture(Options(f"{MODELS}:{factory}", tmp_path / "cpu", **options))
    (computed,), (stored,) = load_graphs(on_gpu), load_graphs(Bundle(tmp_path / "cpu"))
    outputs, changed = computed.references.outputs("captured", computed.inputs("captured").values)
    expected, expected_changed = stored.references.outputs("captured", [])
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(changed, expected_changed, rtol=1e-12, atol=1e-12)


def test_the_gate_computes_the_reference(bundle, tmp_path):
    (tmp_path / "same").mkdir()
    made = bundle("mlp")
    result = gate(made.root, tmp_path / "same", rounds=5, seconds=0, seed=0)
    for input_set in result["input_sets"]:
        assert input_set["outputs"][0]["max_error_baseline"] < 1e-5
        assert input_set["outputs"][0]["equal"]


def test_random_numbers_leave_no_reference(bundle):
    sets = bundle("dropout").json("graph_0.json")["input_sets"]
    assert all(s["reference"] is None and "random" in s["reason"] for s in sets)


def test_a_fault_of_the_optimised_model_is_evidence(bundle, tmp_path, monkeypatch):
    made = bundle("mlp")
    (tmp_path / "out").mkdir()
    fault = "\ndef call(args):\n    raise RuntimeError('Triton Error [CUDA]: an illegal memory access was encountered')"
    (tmp_path / "out" / "output_code_0.py").write_text(made.text("output_code_0.py") + fault)
    result = gate(made.root, tmp_path / "out", rounds=5, seconds=0, seed=0)
    assert [s["name"] for s in result["input_sets"]] == ["captured", "quarter", "fourfold"]
    assert all("the optimised output_code_0.py fails when called" in s["faults"][0] for s in result["input_sets"])
    assert all(s["pairs_us"] == s["control_us"] == s["outputs"] == [] for s in result["input_sets"])


def test_too_little_memory_is_tried_on_the_processor(monkeypatch):
    graph = Float64Graph("def forward(self, x):\n    return (x + 1,)\n", (0,), {})
    tried, run = [], Float64Graph._run

    def short_of_memory(self, inputs, device):
        tried.append(device)
        if device is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(self, inputs, device)

    monkeypatch.setattr(Float64Graph, "_run", short_of_memory)
    outputs, changed = graph.run([torch.ones(2)])
    assert torch.equal(outputs[0], torch.full((2,), 2.0, dtype=torch.float64)) and not changed
    assert tried == [None, torch.device("cpu")]


def test_attention_of_the_libraries_becomes_plain_attention():
    aten = torch.ops.aten
    graph = torch.fx.Graph()
    q, k, v, bias = (graph.placeholder(name) for name in "qkvb")
    made = graph.call_function(aten._scaled_dot_product_efficient_attention.default, (q, k, v, bias, False), {"scale": 0.3})
    graph.output((graph.call_function(operator.getitem, (made, 0)),))
    reference = Float64Graph.of(SourceGraph(torch.fx.GraphModule({}, graph)))
    q, k, v = torch.randn(3, 2, 4, 8, 16).unbind()
    bias = torch.randn(2, 4, 8, 8)
    ((output,), _) = reference.run([q, k, v, bias])
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), bias.double(), scale=0.3)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    with_shared_heads = attention(q.double(), k[:, :2].double(), v[:, :2].double(), None, True)[0]
    repeated = [t[:, :2].double().repeat_interleave(2, dim=1) for t in (k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), *repeated, is_causal=True)
    torch.testing.assert_close(with_shared_heads, expected, rtol=1e-12, atol=1e-12)


# ---- large tensors ----


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 64, 1000, 4096, 99991])
def test_an_even_order_has_every_position_once(length):
    assert torch.equal(positions(length, 0, length, 5, torch.device("cpu")).sort().values, torch.arange(length))
    parts = [positions(length, first, min(first + 13, length), 5, torch.device("cpu")) for first in range(0, length, 13)]
    assert torch.equal(torch.cat(parts), positions(length, 0, length, 5, torch.device("cpu")))


def test_an_even_order_works_for_billions():
    length = (1 << 33) - 9
    last = positions(length, length - 4, length, 1, torch.device("cpu"))
    assert ((last >= 0) & (last < length)).all() and last.unique().numel() == 4


def test_spread_input_sets_are_the_captured_values_in_another_order():
    x = torch.randn(6, 50).t().contiguous().t()
    for recipe in scaled("cuda"):
        derived = recipe.derive(x)
        assert derived.stride() == x.stride()
        assert torch.equal((x * recipe.scale).reshape(-1).sort().values, derived.reshape(-1).sort().values)
        assert (derived == x * recipe.scale).float().mean() < 0.1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.bfloat16])
def test_the_ends_of_large_tensors_are_kept(dtype):
    length = GREATEST_SAMPLE + 12_345
    values = torch.ones(length, dtype=dtype)
    values[length - 1] = 0
    if dtype not in (torch.bool, torch.uint8):
        values[77_777] = 100
        values[77_778] = -100
    quantiles = distribution(values)["quantiles"]
    ends = (0.0, 1.0) if dtype in (torch.bool, torch.uint8) else (-100.0, 100.0)
    assert (quantiles[0], quantiles[-1]) == ends


def test_a_large_tensor_is_sampled_from_all_of_its_columns():
    """A stride that divides the row length would see a few columns only."""
    rows, columns = GREATEST_SAMPLE // 1024 * 2, 1024
    values = torch.arange(columns, dtype=torch.float32).repeat(rows, 1)
    quantiles = distribution(values)["quantiles"]
    expected = torch.linspace(0, columns - 1, len(quantiles))
    assert (torch.tensor(quantiles) - expected).abs().max() < 0.01 * columns


def test_infinities_are_no_ends():
    values = torch.ones(GREATEST_SAMPLE + 1)
    values[5], values[6], values[7] = torch.inf, -torch.inf, torch.nan
    found = distribution(values)
    assert (found["quantiles"][0], found["quantiles"][-1]) == (1.0, 1.0)


# ---- memory ----


def test_equal_tensors_share_memory_only_if_they_did():
    store = TensorStore()
    a, b = store.add(torch.zeros(4), memory=0), store.add(torch.zeros(4), memory=1)
    again = store.add(torch.zeros(4), memory=0)
    assert len(store.storages) == 1
    copies = Copies(store.storages)
    first, second, third = (copies.view(json.loads(json.dumps(view))) for view in (a, b, again))
    assert first.data_ptr() == third.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 4_000_003, (1 << 24) + 6])
def test_any_changed_byte_changes_the_digest(length):
    digester = Digester()
    data = torch.randint(0, 256, (length,), dtype=torch.uint8)
    before = digester.digest(data)
    assert torch.equal(before, digester.digest(data.clone()))
    for place in {0, length // 2, length - 1} if length else ():
        changed = data.clone()
        changed[place] ^= 1
        assert not torch.equal(before, digester.digest(changed))
    if length >= 8:
        swapped = data.clone()
        swapped[:8] = torch.arange(8)
        moved = swapped.clone()
        moved[:4], moved[4:8] = swapped[4:8], swapped[:4]
        assert not torch.equal(digester.digest(swapped), digester.digest(moved))


def test_totals_are_per_call():
    assert _totals([1, 2, 3, 4, 5, 6], launches=2, calls=3) == [3, 7, 11]
    assert _totals([], launches=0, calls=2) == [0, 0]


def test_a_bundle_of_another_gpu_is_used_with_a_warning(bundle, monkeypatch, capsys):
    made = bundle("mlp")
    monkeypatch.setattr(runtime.gpu, "facts", lambda: {"name": "NVIDIA X2"})
    load_graphs(made)
    assert "captured on NVIDIA X1, and this is NVIDIA X2" in capsys.readouterr().err
