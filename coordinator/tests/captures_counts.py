"""Counts what each captured output_code.py holds, independently of the parser in Rust.

Standard library only. It follows the contract of `kernelopt inspect --json` (docs) and shares no code with the parser:
`ast` here, another parser there; text patterns here, names resolved through imports there.

    python3 coordinator/tests/captures_counts.py --write    writes tests/fixtures/captures/expected.json
    python3 coordinator/tests/captures_counts.py --check    exits with 1 where that file differs from what is counted now
"""

import ast
import json
import pathlib
import re
import sys

CAPTURES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "captures"

VIEW_OPS = {"view", "view_as_complex", "view_as_real", "reshape", "permute", "transpose", "as_strided", "select", "slice", "unfold", "expand"}
COPY_OPS = {"copy_", "copy", "clone", "_to_copy", "contiguous"}
VIEW_METHODS = {"as_strided", "view", "permute", "expand", "t", "transpose", "reshape", "select", "squeeze", "unsqueeze"}

# Statements that the wrapper writes, one line each as `ast.unparse` prints them. Order does not matter.
SHAPE = r"\(.*\)"
KNOWN = [
    r"\(?[\w, ]+\)? = args",
    r"args\.clear\(\)",
    r"[suz]\w*\d+ = [\w.()]+",  # s77 = arg2_1, u0 = buf0.item(), u1 = buf7.size(0)
    r"\w+numel = [\w*+\-/() ]+",
    rf"assert_(size_stride|alignment)\(.*\)",
    rf"\w+ = empty_strided_(cpu|cuda){SHAPE}",
    rf"\w+ = alloc_from_pool{SHAPE}",
    rf"\w+ = reinterpret_tensor{SHAPE}",
    r"\w+ = \w+",  # reuse
    r"\w+ = \w+\[\d+\]",  # one of several results
    r"\w+ = \[None\] \* \d+",
    r"\w+ = \[[\w, \[\]]*\]",  # arguments of a partition or subgraph
    r"\(?[\w, ]+\)? = self\.partitions\[\d+\]\(\w+\)",
    r"\(?[\w, ]+\)? = \w+_graph_\d+\(\w+\)",
    r"del [\w, ]+",
    r"(\w+ = )?(extern_kernels|aten|torch\.ops)\.[\w.]+\(.*\)",
    r"\w+\.copy_\(.*\)",
    r"stream\d+ = get_raw_stream\(\d+\)",
    r"torch\.cuda\.set_device\(\d+\)",
    r"(cpp_fused_\w+)\(.*\)",
    r"\w+\.run\(.*\)",
    r"return \(.*\)",
]
KNOWN_MODULE = [
    r"(from|import) .*",
    r"\w+ = [\w.]+",
    r"async_compile = AsyncCompile\(\)",
    r"\w+ = async_compile\.\w+\((?s:.*)\)",
    r"async_compile\.wait\(globals\(\)\)",
    r"del async_compile",
    r"runner = Runner\(partitions=\[.*\]\)",
    r"arg_index = \{.*\}",
    r"cpp_wrapper_src = '(?s:.*)'",
    r"class Runner:(?s:.*)",
    r"def (get_args|benchmark_compiled_module)\((?s:.*)",
    r"def \w+\(args\):(?s:.*)",
    r"if __name__ == (?s:.*)",
]


def flat(body):
    """Statements in order; the bodies of device guards in line."""
    for statement in body:
        if isinstance(statement, ast.With) and "_DeviceGuard" in ast.unparse(statement.items[0]):
            yield from flat(statement.body)
        else:
            yield statement


def is_check(statement):
    return isinstance(statement, ast.If) and len(statement.body) == 1 and isinstance(statement.body[0], ast.Raise) and not statement.orelse


def functions(tree):
    """Every function over `args`: (name, statements)."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == ["args"]:
            yield node.name, list(flat(node.body))
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "call":
                    yield "call", list(flat(method.body))


def calls_in(statement):
    return [node for node in ast.walk(statement) if isinstance(node, ast.Call)]


def operator_name(call):
    """('aten', 'view') for aten.view.dtype(...), ('extern_kernels', 'mm') for extern_kernels.mm(...); None for what is no operator."""
    parts = ast.unparse(call.func).split(".")
    if parts[0] == "extern_kernels":
        return parts[0], parts[1]
    if parts[0] == "aten":
        return parts[0], parts[1]
    if parts[:2] == ["torch", "ops"]:
        return parts[2], parts[3]
    return None


def count(path):
    tree = ast.parse(path.read_text())
    kernels = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = ast.unparse(node.value.func)
            # A multi-kernel chooses between kernels; it is none itself.
            if maker.startswith("async_compile.") and "multi_kernel" not in maker:
                language = {"cpp_pybinding": "cpp", "triton": "triton"}.get(maker.split(".")[1])
                kernels[node.targets[0].id] = language
    graph = dict.fromkeys(["vendor_calls", "kernel_launches", "buffers", "views", "inputs", "outputs"], 0)
    graph["generated_kernels"] = len(kernels)
    symbols, opaque, launched = set(), [], {name: 0 for name in kernels}
    bodies = dict(functions(tree))
    runs = {name: 0 for name in bodies}
    for name, body in bodies.items():
        for statement in body:
            text = ast.unparse(statement)
            known = is_check(statement) or (not isinstance(statement, (ast.If, ast.While, ast.For, ast.With)) and any(re.fullmatch(k, text) for k in KNOWN))
            if not known:
                opaque.append(statement.lineno)
                for function in bodies:
                    if re.search(rf"\b{function}\b", text):
                        runs[function] = None
                continue
            for call in calls_in(statement):
                callee = ast.unparse(call.func)
                operator = operator_name(call)
                if operator and operator[1] in VIEW_OPS:
                    graph["views"] += 1
                elif operator and operator[1] not in COPY_OPS:
                    graph["vendor_calls"] += 1
                elif callee == "reinterpret_tensor" or callee.split(".")[-1] in VIEW_METHODS:
                    graph["views"] += 1
                elif callee.startswith("empty_strided"):
                    # A pool is memory; the buffers in it are counted where they get their place.
                    graph["buffers"] += not text.startswith("pool")
                elif callee == "alloc_from_pool":
                    graph["buffers"] += 1
                kernel = callee.removesuffix(".run")
                if kernel in kernels or kernel.startswith("multi_kernel_"):
                    graph["kernel_launches"] += 1
                for function in bodies:
                    partition = re.fullmatch(r"self\.partitions\[(\d+)\]", callee)
                    if callee == function or (partition and function == f"partition_{partition[1]}"):
                        if name == "call" and runs[function] is not None:
                            runs[function] += 1
            if match := re.match(r"((s|u|zf|zuf)\d+) = ", text):
                symbols.add(match[1])
            if name == "call" and text.endswith("= args"):
                graph["inputs"] = len(statement.targets[0].elts)
            if name == "call" and isinstance(statement, ast.Return):
                graph["outputs"] = len(statement.value.elts)
    runs["call"] = 1
    for name, body in bodies.items():
        for statement in body:
            for call in calls_in(statement):
                kernel = ast.unparse(call.func).removesuffix(".run")
                if kernel in launched and not isinstance(statement, (ast.If, ast.While)):
                    known = launched[kernel] is not None and runs[name] is not None
                    launched[kernel] = launched[kernel] + runs[name] if known else None
    for node in tree.body:
        text = ast.unparse(node)
        if not any(re.fullmatch(k, text) for k in KNOWN_MODULE):
            opaque.append(node.lineno)
    graph["symbols"] = len(symbols)
    graph["opaque"] = sorted(opaque)
    targets = [{"name": name, "language": language, "calls": launched[name]} for name, language in kernels.items()]
    return {"graphs": [graph], "targets": targets}


def main():
    counted = {str(path.relative_to(CAPTURES)): count(path) for path in sorted(CAPTURES.rglob("output_code_*.py"))}
    text = json.dumps(counted, indent=1, sort_keys=True) + "\n"
    expected = CAPTURES / "expected.json"
    if sys.argv[1:] == ["--write"]:
        expected.write_text(text)
    elif sys.argv[1:] == ["--check"]:
        if not expected.exists() or expected.read_text() != text:
            sys.exit(f"{expected} is not what is counted now; look at the difference, then run with --write")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
