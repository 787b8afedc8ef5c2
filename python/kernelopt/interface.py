"""How a model's own arguments and results lie in the inputs and outputs of its compiled graph.

The compiler flattens both, orders the inputs by first use and adds the weights; to call the graph in the model's place, that has to
be undone. It is found by identity: an argument *is* an input, a result *is* an output.
"""

import math
from collections.abc import Callable

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten, treespec_dumps, treespec_loads

from .graph_record import GraphRecord, Identity


class Interface:
    """What the model was called with and what it returned."""

    def __init__(self, arguments: tuple) -> None:
        self._arguments, self._argument_tree = tree_flatten(arguments)
        self._results: list = []
        self._result_tree: TreeSpec | None = None

    def returns(self, results: object) -> None:
        """Takes down what the model returned."""
        self._results, self._result_tree = tree_flatten(results)

    def to_json(self, graph: GraphRecord) -> dict | None:
        """The rules of `Rules`; none where something is neither an argument nor a weight, or no input and no output.

        `arguments` and `results` are the shapes of the two trees; `inputs` says of each graph input `{"argument": leaf}` or
        `{"weight": true}`, and `outputs` of each leaf of the results `{"output": position}`, `{"input": position}` or `{"value"}`;
        `constants` are the leaves of the arguments that are no tensors, which the compiler made part of the code.
        """
        arguments = [GraphRecord.identity(value) for value in self._arguments]
        inputs = [self._input(graph, position, identity, arguments) for position, identity in enumerate(graph.inputs)]
        outputs = [self._output(graph, value) for value in self._results]
        constants = {str(i): value for i, value in enumerate(self._arguments) if not isinstance(value, torch.Tensor)}
        if None in inputs or None in outputs or not all(_is_plain(value) for value in constants.values()):
            return None
        try:
            trees = [treespec_dumps(tree) for tree in (self._argument_tree, self._result_tree)]
        except (NotImplementedError, TypeError, ValueError):  # a class that torch cannot write down
            return None
        return {"arguments": trees[0], "results": trees[1], "inputs": inputs, "outputs": outputs, "constants": constants}

    @staticmethod
    def _input(graph: GraphRecord, position: int, identity: Identity | None, arguments: list) -> dict | None:
        if identity is not None and identity in arguments:
            return {"argument": arguments.index(identity)}
        return {"weight": True} if graph.weight(position) else None

    @staticmethod
    def _output(graph: GraphRecord, value: object) -> dict | None:
        if not isinstance(value, torch.Tensor):
            return {"value": value} if _is_plain(value) else None
        identity = GraphRecord.identity(value)
        if identity in graph.outputs:
            return {"output": graph.outputs.index(identity)}
        return {"input": graph.inputs.index(identity)} if identity in graph.inputs else None


def _is_plain(value: object) -> bool:
    """Whether JSON gives a value back as it was."""
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


class Rules:
    """Calls a graph as its model was called."""

    def __init__(self, rules: dict) -> None:
        self._arguments, self._results = treespec_loads(rules["arguments"]), treespec_loads(rules["results"])
        self._inputs, self._outputs = rules["inputs"], rules["outputs"]
        self._constants: dict[int, object] = {int(leaf): value for leaf, value in rules["constants"].items()}

    def weights(self, inputs: list) -> list:
        """The inputs with what is no weight left out."""
        return [value if "weight" in rule else None for rule, value in zip(self._inputs, inputs, strict=True)]

    def call(self, graph: Callable[[list], tuple], weights: list, arguments: tuple) -> object:
        """Results of the model on `arguments`.

        Args:
            weights: the weights at their places among the inputs of the graph.

        Raises:
            TypeError: the arguments are not of the structure of those at capture.
            ValueError: one that is no tensor has another value.
        """
        leaves, tree = tree_flatten(arguments)
        if tree != self._arguments:
            raise TypeError(f"the model was captured with arguments of the form {self._arguments}, not {tree}")
        for leaf, value in self._constants.items():
            if leaves[leaf] != value:
                what = f"{value!r} as argument {leaf}, which is part of its code; {leaves[leaf]!r} was given"
                raise ValueError(f"the model was captured with {what}")
        inputs = [leaves[rule["argument"]] if "argument" in rule else weight for rule, weight in zip(self._inputs, weights, strict=True)]
        outputs = graph(list(inputs))
        return tree_unflatten([self._result(rule, outputs, inputs) for rule in self._outputs], self._results)

    @staticmethod
    def _result(rule: dict, outputs: tuple, inputs: list) -> object:
        if "value" in rule:
            return rule["value"]
        return outputs[rule["output"]] if "output" in rule else inputs[rule["input"]]
