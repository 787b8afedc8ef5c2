"""Errors that a person reads: what happened, what to do, and the exit code of the Rust enum `shared::exit::ExitCode`."""

import enum


class ExitCode(enum.IntEnum):
    """Why a command ended; the numbers are those of `kernelopt`."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    BAD_INPUT = 3
    ENVIRONMENT = 4
    OUTPUT = 5
    INTERRUPTED = 130


class UserError(Exception):
    """An error to print without a traceback."""

    exit_code = ExitCode.FAILURE

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class BadInput(UserError):
    """The factory, the model or the bundle cannot be used."""

    exit_code = ExitCode.BAD_INPUT


class EnvironmentLacks(UserError):
    """The machine lacks something: torch of the right version, a C++ compiler, a GPU or memory on it."""

    exit_code = ExitCode.ENVIRONMENT


class OutputFailed(UserError):
    """The output cannot be written."""

    exit_code = ExitCode.OUTPUT


def in_short(error: BaseException) -> str:
    """Type and message of an error in one line; of a long message, the first line and the last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = " ... ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class NoReference(Exception):
    """Why a graph has no float64 reference."""
