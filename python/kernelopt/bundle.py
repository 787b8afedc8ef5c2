"""A captured model on disk. The manifest's schema is the Rust type `shared::bundle::Manifest`.

A bundle is written whole or not at all: into a sibling folder, synced, then renamed to its place.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from .errors import BadInput, OutputFailed

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"
CAPTURE_AGAIN = "Capture the model again."


class BundleWriter:
    """Collects the files of a new bundle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, object]] = {}

    def text(self, name: str, text: str) -> None:
        """Writes a text file, byte for byte."""
        with self._created(name) as path:
            path.write_bytes(text.encode())

    def json(self, name: str, value: object) -> None:
        """Writes a JSON file."""
        self.text(name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def tensors(self, name: str, tensors: dict[str, torch.Tensor]) -> None:
        """Writes a safetensors file."""
        with self._created(name) as path:
            save_file(tensors, path)
            path.chmod(0o644)  # safetensors makes it private, and a bundle is to be shared

    def finish(self, manifest: dict[str, object]) -> None:
        """Writes the manifest, last, with the hashes of all other files."""
        whole = {"schema_version": SCHEMA_VERSION, **manifest, "files": dict(sorted(self.files.items()))}
        path = self.folder / MANIFEST
        path.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n")
        _sync(path)

    @contextlib.contextmanager
    def _created(self, name: str) -> Iterator[Path]:
        path = self.folder / name
        yield path
        _sync(path)
        self.files[name] = {"sha256": _sha256(path), "bytes": path.stat().st_size}


@contextlib.contextmanager
def new_bundle(place: Path, force: bool) -> Iterator[BundleWriter]:
    """A writer whose bundle appears at `place` when the block ends without an error, and leaves no trace otherwise.

    Raises:
        OutputFailed: `place` is taken, or cannot be written.
    """
    check_place(place, force)
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        folder.chmod(0o755)
        yield BundleWriter(folder)
        _sync(folder)
        _move(folder, place)
    except OSError as error:
        raise _output_failed(place, error) from error
    except SafetensorError as error:  # safetensors wraps the errors of the file system
        raise OutputFailed(f"cannot write {place}: {error}", "Check the free space and the permissions.") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def check_place(place: Path, force: bool) -> None:
    """Checks, before the long work, that a bundle may be written to `place`.

    Raises:
        OutputFailed: it may not.
    """
    if place.exists() and not (place / MANIFEST).is_file():
        empty = place.is_dir() and not any(place.iterdir())
        if not empty:
            raise OutputFailed(f"{place} exists and is not a bundle", "Choose another path with -o.")
    elif place.exists() and not force:
        raise OutputFailed(f"{place} holds a bundle already", "Give --force to replace it, or another path with -o.")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _output_failed(place, error) from error
    if not os.access(place.parent, os.W_OK):
        raise OutputFailed(f"cannot write {place}: {place.parent} is read-only", "Choose another path with -o.")


def _move(folder: Path, place: Path) -> None:
    old = None
    if place.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old.", dir=place.parent))
        place.rename(old / place.name)
    folder.rename(place)
    _sync(place.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _output_failed(place: Path, error: OSError) -> OutputFailed:
    reason = error.strerror or str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "Make room on the disk." if full else "Choose another path with -o, or check its permissions."
    return OutputFailed(f"cannot write {place}: {reason}", remedy)


class Bundle:
    """A bundle that was checked against its manifest."""

    def __init__(self, root: Path) -> None:
        """Opens the bundle at `root`.

        Raises:
            BadInput: there is none, or it is torn, changed, or of another schema.
        """
        self.root = root
        try:
            text = (root / MANIFEST).read_text()
        except (FileNotFoundError, NotADirectoryError):
            raise BadInput(f"no bundle at {root}: {MANIFEST} is missing", "Make one with `python -m kernelopt capture`.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{root / MANIFEST}: {error}", CAPTURE_AGAIN) from None
        try:
            self.manifest = json.loads(text)
            version = self.manifest["schema_version"]
            if version != SCHEMA_VERSION:
                raise BadInput(f"{root / MANIFEST}: schema_version is {version}, this program reads {SCHEMA_VERSION}", CAPTURE_AGAIN)
            files = self.manifest["files"].items()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{root / MANIFEST}: not a manifest: {type(error).__name__}: {error}", CAPTURE_AGAIN) from None
        for name, entry in files:
            self._check(name, entry)

    def _check(self, name: str, entry: dict[str, object]) -> None:
        path = self.root / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BadInput(f"{self.root / MANIFEST}: files: {name!r} is not a plain path inside the bundle", CAPTURE_AGAIN)
        try:
            whole = path.stat().st_size == entry["bytes"] and _sha256(path) == entry["sha256"]
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}; the manifest lists it", CAPTURE_AGAIN) from None
        if not whole:
            raise BadInput(f"{path}: its content is not the manifest's: the file was changed or torn after the capture", CAPTURE_AGAIN)

    def text(self, name: str) -> str:
        """A text file that the manifest lists."""
        self._listed(name)
        return (self.root / name).read_bytes().decode()

    def json(self, name: str) -> object:
        """A JSON file that the manifest lists."""
        return json.loads(self.text(name))

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """All tensors of a safetensors file that the manifest lists, each in memory of its own."""
        self._listed(name)
        try:
            return {key: tensor.clone() for key, tensor in load_file(self.root / name).items()}
        except (OSError, SafetensorError) as error:
            raise BadInput(f"{self.root / name}: {error}", CAPTURE_AGAIN) from None

    def _listed(self, name: str) -> None:
        if name not in self.manifest["files"]:
            raise BadInput(f"{self.root / name}: not listed in the manifest", CAPTURE_AGAIN)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
