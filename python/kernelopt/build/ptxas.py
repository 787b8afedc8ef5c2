"""What `ptxas -v` says of a kernel: registers of a thread, and bytes of its local memory."""

import re

_FUNCTION = re.compile(r"(?:Compiling entry function|Function properties for) '?([^\s']+)'?")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def resources(log: str, entry: str) -> dict[str, int]:
    """`registers`, `spill_bytes` (of what is spilled, read or written, whichever is more) and `stack_bytes` of `entry`; zeros where the
    assembler did not say."""
    found = {"registers": 0, "spill_bytes": 0, "stack_bytes": 0}
    current = ""
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            current = match[1]
        if current != entry:
            continue
        if match := _REGISTERS.search(line):
            found["registers"] = int(match[1])
        if match := _STACK.search(line):
            found["stack_bytes"] = int(match[1])
            found["spill_bytes"] = max(int(match[2]), int(match[3]))
    return found
