"""The command line of the Python package: `python -m kernelopt capture | profile | gate | canary`. Data goes to stdout, the rest to stderr."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from .errors import ExitCode, UserError
from .torch_version import require_torch


def main() -> int:
    """Runs a command and returns its exit code."""
    arguments = _parser().parse_args()
    try:
        require_torch()
        _run(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.remedy:
            print(f"  {error.remedy}", file=sys.stderr)
        _leave_lost_gpu(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return ExitCode.INTERRUPTED
    return ExitCode.SUCCESS


def _run(arguments: argparse.Namespace) -> None:
    """Runs the command; what goes wrong on the GPU becomes an error for people."""
    from . import gpu

    try:
        arguments.run(arguments)
    except RuntimeError as error:
        explained = gpu.explained(error)
        if explained is None:
            raise
        raise explained from error


def _leave_lost_gpu(error: UserError) -> None:
    """Ends the process where a kernel's fault is behind `error`."""
    gpu = sys.modules.get(f"{__package__}.gpu")  # nothing faulted where not even this was loaded
    if gpu is not None and gpu.is_fault(error):
        _exit_at_once(error.exit_code)


def _exit_at_once(code: ExitCode) -> None:
    """After a fault nothing on the GPU can be given back, and trying to may abort the process: its exit code would be lost."""
    sys.stderr.flush()
    os._exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kernelopt", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_capture(commands)
    _add_profile(commands)
    _add_gate(commands)
    _add_canary(commands)
    return parser


def _add_capture(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("capture", help="compile a model and write what the search needs into a bundle")
    command.add_argument("model", metavar="MODULE:FACTORY", help="examples/token_loss.py:make, or package.module:factory")
    command.add_argument("-o", dest="place", metavar="BUNDLE", type=Path, required=True, help="folder to write")
    places = "where to run it (default auto: the GPU where torch can use one); CUDA_VISIBLE_DEVICES chooses the GPU"
    command.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help=places)
    command.add_argument("--dynamic", action="store_true", help="sizes of inputs are symbols, not numbers")
    command.add_argument("--train", action="store_true", help="forward and backward, with a loss made of all float outputs")
    command.add_argument("--freeze", action="store_true", help="weights are constants that the compiler may fold and repack")
    command.add_argument("--force", action="store_true", help="replace a bundle that is there")
    command.set_defaults(run=_capture)


def _capture(arguments: argparse.Namespace) -> None:
    from .capture import Options, capture

    names = ("model", "place", "device", "dynamic", "train", "freeze", "force")
    capture(Options(**{name: getattr(arguments, name) for name in names}))


def _add_profile(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("profile", help="time every kernel inside the calls of its graph")
    command.add_argument("place", metavar="BUNDLE", type=Path)
    command.add_argument("--seconds", type=float, default=3.0, help="time to spend on each graph (default 3)")
    command.add_argument("--seed", type=int, default=0, help="of the order of watched and plain calls")
    command.set_defaults(run=_profile)


def _profile(arguments: argparse.Namespace) -> None:
    from .profile import profile

    with _stdout_for_data() as out:
        json.dump(profile(arguments.place, arguments.seconds, arguments.seed), out, allow_nan=False)
        out.write("\n")


def _add_gate(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("gate", help="gather the evidence on an optimised model: outputs against float64, and paired times")
    command.add_argument("place", metavar="BUNDLE", type=Path)
    command.add_argument("--optimized", metavar="DIR", type=Path, required=True, help="folder of output_code_N.py files")
    command.add_argument("--out", metavar="RESULT.json", type=Path, help="write there instead of to stdout")
    length = command.add_mutually_exclusive_group()
    length.add_argument("--rounds", type=int, help="pairs of blocks per input set")
    length.add_argument("--seconds", type=float, default=20.0, help="time to spend on measuring (default 20)")
    command.add_argument("--seed", type=int, default=0, help="of the order of the blocks")
    command.set_defaults(run=_gate)


def _gate(arguments: argparse.Namespace) -> None:
    from .gate import check_result_place, gate, write_result

    if arguments.out is not None:
        check_result_place(arguments.out)
    with _stdout_for_data() as out:
        result = gate(arguments.place, arguments.optimized, arguments.rounds, arguments.seconds, arguments.seed)
        if arguments.out is None:
            json.dump(result, out, allow_nan=False)
            out.write("\n")
    if arguments.out is not None:
        write_result(arguments.out, result)
    if result.get("device_lost"):
        _exit_at_once(ExitCode.SUCCESS)


def _add_canary(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("canary", help="compile something small and see whether it is right")
    command.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="for which device")
    command.set_defaults(run=_canary)


def _canary(arguments: argparse.Namespace) -> None:
    from .canary import canary

    with _stdout_for_data() as out:
        json.dump(canary(arguments.device), out)
        out.write("\n")


@contextlib.contextmanager
def _stdout_for_data() -> Iterator[TextIO]:
    """Keeps stdout for our data: whatever loaded code or a compiler prints goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as data:
        os.dup2(2, 1)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield data
        finally:
            data.flush()
            os.dup2(data.fileno(), 1)


if __name__ == "__main__":
    sys.exit(main())
