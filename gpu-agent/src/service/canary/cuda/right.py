import triton
import triton.language as tl


# Softmax over 256 rows of 1024.
@triton.jit
def softmax(in_ptr0, out_ptr0, xnumel, r0_numel, R0_BLOCK: tl.constexpr):
    row = tl.program_id(0) * r0_numel
    columns = tl.arange(0, R0_BLOCK)
    values = tl.load(in_ptr0 + row + columns, mask=columns < r0_numel, other=float("-inf"))
    exponentials = tl.exp(values - tl.max(values, 0))
    tl.store(out_ptr0 + row + columns, exponentials / tl.sum(exponentials, 0), mask=columns < r0_numel)
