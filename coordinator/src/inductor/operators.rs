//! What the functions that a graph calls do, by their full names.

/// What an operator does, as far as a graph's dataflow is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// Computes: a vendor call.
    Compute,
    /// Gives another look at the memory of its first argument.
    View,
    /// Moves elements, unchanged but for their type.
    Copy,
    /// Makes memory without computing anything into it.
    Allocate,
    /// Checks something and changes nothing.
    Check,
    /// Changes what memory a tensor stands for: not understood.
    Rebind,
}

/// Name under which the compiler imports its table of library kernels.
const EXTERN_KERNELS: &str = "torch._inductor.select_algorithm.extern_kernels.";

/// Views of ATen (native_functions.yaml: the outputs that alias an input).
const VIEWS: [&str; 36] = [
    "_conj",
    "_neg_view",
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "as_strided",
    "chunk",
    "detach",
    "diagonal",
    "expand",
    "imag",
    "lift_fresh",
    "movedim",
    "narrow",
    "permute",
    "real",
    "reshape",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "swapaxes",
    "t",
    "transpose",
    "unbind",
    "unflatten",
    "unfold",
    "unsafe_chunk",
    "unsafe_split",
    "unsqueeze",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
    "flatten",
];
const COPIES: [&str; 8] = ["_foreach_copy_", "_to_copy", "clone", "contiguous", "copy", "copy_", "device_put", "lift_fresh_copy"];
const ALLOCATIONS: [&str; 6] = ["empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"];
const CHECKS: [&str; 7] = [
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "_functional_assert_async",
    "_functional_assert_scalar",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
];
const REBINDS: [&str; 6] = ["_resize_output_", "resize", "resize_", "resize_as_", "resize_storage_bytes_", "set_"];

/// The name of an operator for people, and what it does; none for a function that is no operator.
pub(super) fn operator(path: &str) -> Option<(String, Operator)> {
    if let Some(name) = path.strip_prefix(EXTERN_KERNELS) {
        return Some((format!("extern_kernels.{name}"), Operator::Compute));
    }
    let mut parts = path.strip_prefix("torch.ops.")?.split('.');
    let (Some(namespace), Some(name)) = (parts.next(), parts.next()) else { return None };
    let own = matches!(namespace, "aten" | "prims" | "inductor");
    let what = match name {
        _ if !own => Operator::Compute,
        name if VIEWS.contains(&name) => Operator::View,
        name if COPIES.contains(&name) => Operator::Copy,
        name if VIEWS.iter().any(|view| name.strip_suffix("_copy") == Some(view)) => Operator::Copy,
        name if ALLOCATIONS.contains(&name) => Operator::Allocate,
        name if CHECKS.contains(&name) => Operator::Check,
        name if REBINDS.contains(&name) => Operator::Rebind,
        _ => Operator::Compute,
    };
    Some((path.to_owned(), what))
}

/// A function of the compiler's run time that the wrapper calls by a short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// `empty_strided_*(size, stride, dtype)`.
    EmptyStrided,
    /// `reinterpret_tensor(base, size, stride, offset)`.
    Reinterpret,
    /// `alloc_from_pool(pool, offset, dtype, size, stride)`.
    AllocFromPool,
    /// `assert_size_stride(tensor, size, stride, ...)`.
    AssertSizeStride,
    /// `assert_alignment(tensor, bytes, ...)`.
    AssertAlignment,
    /// `get_raw_stream(device)`.
    RawStream,
    /// Streams, devices and profiling: no tensor is touched.
    Host,
    /// A context manager that only selects a device or names a region.
    Guard,
}

/// What the wrapper's helpers do, by full name (torch/_inductor/codegen/wrapper.py, `write_header`).
pub(super) fn runtime(path: &str) -> Option<Runtime> {
    let (module, name) = path.rsplit_once('.')?;
    Some(match (module, name) {
        ("torch._C._dynamo.guards", _) if name.starts_with("_empty_strided_") => Runtime::EmptyStrided,
        ("torch", "empty_strided") | ("torch._C._distributed_c10d._SymmetricMemory", "empty_strided_p2p") => Runtime::EmptyStrided,
        ("torch._C._dynamo.guards" | "torch.ops.inductor", "_reinterpret_tensor") => Runtime::Reinterpret,
        ("torch.ops.inductor", "_alloc_from_pool") => Runtime::AllocFromPool,
        ("torch._C._dynamo.guards", "assert_size_stride") => Runtime::AssertSizeStride,
        ("torch._C._dynamo.guards", "assert_alignment") => Runtime::AssertAlignment,
        ("torch._C", "_cuda_getCurrentRawStream" | "_xpu_getCurrentRawStream") => Runtime::RawStream,
        ("torch.cuda" | "torch.xpu", "set_device" | "synchronize") => Runtime::Host,
        ("torch._inductor.runtime.triton_heuristics", "start_graph" | "end_graph") => Runtime::Host,
        ("torch.cuda" | "torch.xpu", "_DeviceGuard" | "device") | ("torch.profiler", "record_function") => Runtime::Guard,
        _ => return None,
    })
}

/// Methods of a tensor that give a view of it.
pub(super) const VIEW_METHODS: [&str; 13] = [
    "as_strided",
    "detach",
    "expand",
    "narrow",
    "permute",
    "reshape",
    "select",
    "squeeze",
    "t",
    "transpose",
    "unsqueeze",
    "view",
    "view_as",
];
/// Methods and attributes of a tensor that ask for its shape or kind, not for its elements.
pub(super) const SHAPE_QUERIES: [&str; 12] =
    ["device", "dim", "dtype", "element_size", "is_contiguous", "itemsize", "layout", "ndim", "numel", "shape", "size", "stride"];
/// Methods of a tensor that reduce it to something a host can ask for.
pub(super) const ELEMENT_QUERIES: [&str; 4] = ["all", "any", "isinf", "isnan"];
/// Functions of Python that compute numbers from numbers.
pub(super) const NUMBER_FUNCTIONS: [&str; 9] = ["abs", "bool", "float", "int", "len", "max", "min", "pow", "round"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_computes_is_a_vendor_call() {
        let what = |path: &str| operator(path).map(|(_, what)| what);
        assert_eq!(what("torch._inductor.select_algorithm.extern_kernels.mm"), Some(Operator::Compute));
        assert_eq!(what("torch.ops.aten.cumsum.default"), Some(Operator::Compute));
        assert_eq!(what("torch.ops.aten.index_put_"), Some(Operator::Compute));
        assert_eq!(what("torch.ops.mkldnn._convolution_pointwise.default"), Some(Operator::Compute));
        assert_eq!(what("torch.ops.mylib.view.default"), Some(Operator::Compute));
        assert_eq!(what("torch.ops.aten.view.dtype"), Some(Operator::View));
        assert_eq!(what("torch.ops.aten.view_as_complex.default"), Some(Operator::View));
        assert_eq!(what("torch.ops.aten.permute_copy.default"), Some(Operator::Copy));
        assert_eq!(what("torch.ops.aten.copy_.default"), Some(Operator::Copy));
        assert_eq!(what("torch.ops.aten.set_.source_Tensor"), Some(Operator::Rebind));
        assert_eq!(what("torch.ops.aten"), None);
        assert_eq!(what("os.system"), None);
    }
}
