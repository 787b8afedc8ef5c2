"""Frames between the agent and a worker: two little-endian lengths of 32 bits, a JSON object, bytes."""

import json
import os
import struct

HEAD = struct.Struct("<II")
MAX_JSON_BYTES = 16 << 20
MAX_PAYLOAD_BYTES = 64 << 20


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """One side of a conversation over two descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing

    @classmethod
    def take_over_standard_streams(cls) -> "Channel":
        """Moves stdin and stdout to descriptors that no library knows; what anybody prints from now on goes to stderr."""
        channel = cls(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return channel

    @property
    def reading(self) -> int:
        """Descriptor that orders come from; its hang-up is the agent's end."""
        return self._reading

    def close(self) -> None:
        """Forgets both descriptors: a build's process must not be able to speak for the worker."""
        os.close(self._reading)
        os.close(self._writing)

    def receive(self) -> dict:
        """The next message.

        Raises:
            Closed: there will be none.
        """
        json_bytes, payload_bytes = HEAD.unpack(self._read(HEAD.size))
        if json_bytes > MAX_JSON_BYTES or payload_bytes:
            raise Closed
        return json.loads(self._read(json_bytes))

    def send(self, message: dict, payload: bytes = b"") -> None:
        """Sends a message with bytes.

        Raises:
            Closed: nobody reads.
        """
        text = json.dumps(message, allow_nan=False).encode()
        rest = memoryview(HEAD.pack(len(text), len(payload)) + text + payload)
        try:
            while rest:
                rest = rest[os.write(self._writing, rest) :]
        except BrokenPipeError:
            raise Closed from None

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self._reading, min(count, 1 << 20))
            if not part:
                raise Closed
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
