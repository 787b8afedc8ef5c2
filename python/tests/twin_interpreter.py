"""Run by a test with TRITON_INTERPRET=1: kernels and their twins on tensors of the CPU, against float64 formulas of torch. Prints JSON:
{kernel: [greatest error of the twin, of the kernel]}, each over the greatest magnitude."""

import json

import numpy
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from captured_kernels import captured
from kernelopt.build.kernel import Parameters
from kernelopt.build.module import entry_of, load, stripped
from kernelopt.build.twin import twin

DTYPES = {"*bf16": torch.bfloat16, "*fp32": torch.float32, "*fp64": torch.float64, "*i64": torch.int64}


_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_for_numpy_2(tensor, scope):
    """The interpreter's scalars are arrays of one element, which numpy 2.4 no longer takes for a number."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_tensor_for_numpy_2


class Libdevice:
    """Functions of NVIDIA's library, by numpy in the type of the argument."""

    def __getattr__(self, name):
        own = {"rsqrt": lambda x: 1 / numpy.sqrt(x), "erf": lambda x: torch.erf(torch.from_numpy(x)).numpy()}
        function = own.get(name) or getattr(numpy, name)
        return lambda x: tl.tensor(TensorHandle(function(x.handle.data).astype(x.handle.data.dtype), x.handle.dtype), x.type)


def run(kernel, arguments, rows, twinned, **constants):
    """Output of the first program; `arguments` are tensors by name, outputs given by their size."""
    order = kernel.order("twin", XBLOCK=rows, **constants)
    text, tree = stripped(order.source)
    parameters = Parameters.of(entry_of(tree, order.entry), order)
    types = parameters.types
    if twinned:
        made = twin(tree, order.entry, types, rounded=False)
        text, types = made.text, made.types
    tensors = {}
    for name, value in arguments.items():
        dtype = DTYPES[types[name]]
        tensors[name] = value.to(dtype).clone() if isinstance(value, torch.Tensor) else torch.full((value,), float("nan"), dtype=dtype)
    sizes = {name: 1 for name, kind in types.items() if kind == "i32"}
    module = load(text)
    module.libdevice = Libdevice()
    getattr(module, order.entry)[(1,)](**tensors, **sizes, **order.constants)
    return tensors


def errors(kernel, arguments, output, truth, rows=1, **constants):
    found = []
    for twinned in (True, False):
        value = run(kernel, arguments, rows, twinned, **constants)[output].double()[: truth.numel()]
        found.append(float((value - truth).abs().max() / truth.abs().max()))
    return found


def main():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float32)  # noqa: E731
    table = {}

    x, w = draw(8192).bfloat16(), draw(8192).bfloat16()
    d = x.double()
    truth = d * torch.rsqrt((d * d).mean() + 1e-6) * w.double()
    kernel = captured("rms", "rsqrt_0")
    table["rms norm"] = errors(kernel, {"in_ptr0": x, "in_ptr1": w, "out_ptr1": 8192}, "out_ptr1", truth, R0_BLOCK=2048)

    x, w, b = draw(4, 256), draw(256), draw(256)
    truth = torch.nn.functional.layer_norm(x.double(), [256], w.double(), b.double(), 1e-5)
    kernel = captured("cuda_mlp_static", "layer_norm_0")
    arguments = {"in_ptr0": x.flatten(), "in_ptr1": w, "in_ptr2": b, "out_ptr2": 4 * 256}
    table["layer norm"] = errors(kernel, arguments, "out_ptr2", truth.flatten(), rows=4)

    truth = torch.softmax(x.double(), 1)
    kernel = captured("cuda_mlp_static", "online_sub_2")
    table["softmax"] = errors(kernel, {"in_out_ptr0": x.flatten()}, "in_out_ptr0", truth.flatten(), rows=4)

    x, b = draw(1024), draw(1024)
    truth = torch.nn.functional.gelu(x.double() + b.double())
    kernel = captured("cuda_mlp_static", "gelu_1")
    table["gelu"] = errors(kernel, {"in_out_ptr0": x, "in_ptr0": b}, "in_out_ptr0", truth, rows=1024)

    x, y = draw(1024).bfloat16(), draw(1024).bfloat16()
    truth = torch.nn.functional.silu(x.double()) * y.double()
    kernel = captured("llama", "silu_9")
    table["silu"] = errors(kernel, {"in_out_ptr0": x, "in_ptr0": y}, "in_out_ptr0", truth, rows=1024)

    print(json.dumps(table))


if __name__ == "__main__":
    main()
