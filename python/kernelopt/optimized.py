"""`kernelopt.load`: the optimised model as a callable, with the weights that were captured."""

import hashlib
import json
import sqlite3
from pathlib import Path

import torch

from .bundle import MANIFEST, Bundle
from .errors import BadInput, in_short
from .input_sets import CAPTURED
from .interface import Rules
from .runtime import GraphFiles, LoadedGraph, load_graphs

RESULT, JOURNAL, OPTIMIZED = "result.json", "journal.db", "optimized"


class OptimizedModel:
    """A captured model with the code that the search left in place of the compiler's. Called as the model itself was.

    The weights are the captured ones, the shapes those of the capture, and settings of torch that change results were set to the
    captured model's when it was loaded. For inference alone.
    """

    def __init__(self, graph: GraphFiles, loaded: LoadedGraph, rules: Rules, result: dict) -> None:
        self.result = result
        """What the search found: `result.json`."""
        self._call = loaded.module.call
        self._rules = rules
        self._weights = rules.weights(graph.inputs(CAPTURED).values)

    def __call__(self, *arguments: object) -> object:
        """The model's results on `arguments`.

        Raises:
            TypeError: they are of another structure than at capture.
            AssertionError: one has another shape or stride.
        """
        with torch.no_grad():
            return self._rules.call(self._call, self._weights, arguments)


def load(out: str | Path, bundle: str | Path | None = None) -> OptimizedModel:
    """The model that `kernelopt tune ... -o OUT` optimised.

    Args:
        out: the output folder.
        bundle: the bundle that was tuned, where it is no longer at the place that the job remembers.

    Raises:
        BadInput: the job has not ended, the bundle is gone or another one, or the model is not one graph of inference.
        EnvironmentLacks: the model needs a GPU, and there is none.
    """
    out = Path(out)
    result = _result(out)
    place = Path(bundle) if bundle is not None else _remembered(out)
    opened = Bundle(place)
    if manifest_digest(place) != result["bundle"]:
        raise BadInput(f"{place} is not the bundle that was tuned in {out}", "Name that bundle: kernelopt.load(OUT, bundle=PATH).")
    graphs = load_graphs(opened)
    rules = graphs[0].description.get("model")
    if len(graphs) != 1 or rules is None:
        remedy = "Put the files of OUT/optimized in place of the compiler's by hand: each defines `call`."
        raise BadInput(f"{place} holds {len(graphs)} graphs, or one that is not the whole model: it cannot be called in its place", remedy)
    graph = graphs[0]
    path = out / OPTIMIZED / graph.code_name
    try:
        loaded = graph.load(path.read_bytes().decode())
    except Exception as error:
        raise BadInput(f"{path} does not load: {in_short(error)}") from error
    return OptimizedModel(graph, loaded, Rules(rules), result)


def manifest_digest(place: Path) -> str:
    """The bundle's identity: the Rust type `shared::digest::Digest` of its manifest."""
    text = (place / MANIFEST).read_bytes()
    return hashlib.sha256(len(text).to_bytes(8, "little") + text).hexdigest()[:32]


def _result(out: Path) -> dict:
    try:
        return json.loads((out / RESULT).read_text())
    except (OSError, ValueError) as error:
        remedy = "Name the folder that was given to `kernelopt tune -o`; the job must have ended."
        raise BadInput(f"{out / RESULT}: {error}", remedy) from None


def _remembered(out: Path) -> Path:
    """Where the bundle was when the job began, from the journal's first event."""
    remedy = "Name the bundle: kernelopt.load(OUT, bundle=PATH)."
    path = out / JOURNAL
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) as journal:
            (body,) = journal.execute("select body from event where kind = 'opened' order by seq limit 1").fetchone()
        return Path(json.loads(body)["bundle_path"])
    except (sqlite3.Error, TypeError, ValueError, KeyError) as error:
        raise BadInput(f"{path}: {in_short(error)}", remedy) from None
