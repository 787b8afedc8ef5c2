"""The build worker: `python -m kernelopt.build`, a warm process that turns Triton and CUDA source into machine code.

It needs no GPU and no driver. The agent starts it behind walls (no network, no files but its scratch folder) and speaks to it
in frames (`protocol.py`). Every order is served by a forked child (`worker.py`), so that what a source's own Python does ends with it.

| module | noun |
|---|---|
| `protocol` | frames: JSON and bytes over two descriptors |
| `order` | what is asked for, and the ways in which it can fail |
| `worker` | the warm process and its children |
| `screen` | what a Triton source may consist of |
| `module` | source to a loaded module, decorators of the compiler left out |
| `kernel` | Triton's compiler, called as Inductor calls it |
| `twin`, `addresses`, `purity` | a kernel's float64 twin, and the check that it is one |
| `nvrtc` | CUDA C++ |
| `ptxas` | what the assembler says of registers and spills |
"""
