//! Parameters of a kernel, read from its own source.
//!
//! The compiler names parameters after their use (`in_ptr0`, `out_ptr1`, `in_out_ptr0`; torch/_inductor/codegen/common.py,
//! `KernelArgs`), and for Triton lists those that change their buffer in place (`mutated_arg_names`). Where a name says
//! nothing, or a user chose it, a pointer counts as read and written.

use super::kernel::{Access, Author, Parameter};
use super::user_kernel::UserKernel;

/// Parameters of `extern "C" void kernel(...)` in `source`; `types` are the C types of the definition, in order.
/// Empty where the two do not agree.
pub(super) fn of_cpp(source: &str, types: &[String]) -> Vec<Parameter> {
    let Some(names) = cpp_names(source) else { return Vec::new() };
    if names.len() != types.len() {
        return Vec::new();
    }
    let adds_in_place = source.contains("atomic_add");
    let parameter = |(name, declared): (&str, &String)| {
        let access = match declared.strip_suffix('*') {
            None => Access::Scalar,
            Some(pointed) if pointed.starts_with("const ") => Access::Read,
            Some(_) if name.starts_with("out_ptr") && !adds_in_place => Access::Write,
            Some(_) => Access::ReadWrite,
        };
        Parameter { name: name.to_owned(), declared: declared.clone(), access }
    };
    names.into_iter().zip(types).map(parameter).collect()
}

fn cpp_names(source: &str) -> Option<Vec<&str>> {
    let after = &source[source.rfind("extern \"C\"")?..];
    let opened = after.find('(')? + 1;
    let list = &after[opened..opened + after[opened..].find(')')?];
    if list.trim().is_empty() {
        return Some(Vec::new());
    }
    list.split(',').map(|item| item.rsplit(|c: char| !is_word(c)).find(|word| !word.is_empty())).collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Who wrote a C++ source. A matrix multiplication from a template calls its own inner function
/// (torch/_inductor/codegen/cpp_micro_gemm.py).
pub(super) fn author_of_cpp(source: &str) -> Author {
    if source.contains("_micro_gemm") { Author::Template } else { Author::Scheduler }
}

/// Who wrote a Triton source, by the decorator that the compiler puts in front (torch/_inductor/runtime/triton_heuristics.py).
pub(super) fn author_of_triton(source: &str) -> Author {
    const SCHEDULED: [&str; 7] =
        ["pointwise", "reduction", "persistent_reduction", "split_scan", "cooperative_reduction", "foreach", "fixed_config"];
    let decorator = source.split("@triton_heuristics.").nth(1).and_then(|rest| rest.split('(').next());
    match decorator {
        Some(name) if SCHEDULED.contains(&name) => Author::Scheduler,
        Some("user_autotune") | None => Author::User,
        Some(_) => Author::Template,
    }
}

/// Parameters of a Triton kernel that are passed at launch, from `'signature': {...}` in its source. Block sizes are not among
/// them; an element count that is known to be one is, although its type is `constexpr`. Empty where the signature is not
/// understood. Then how many numbers follow them: a user's grid may be computed by the caller.
pub(super) fn of_triton(source: &str, author: Author) -> (Vec<Parameter>, usize) {
    if author == Author::User {
        return UserKernel::read(source).map_or_else(|_| (Vec::new(), 0), |kernel| of_user(&kernel));
    }
    let Some(pairs) = dictionary_after(source, "'signature': {") else { return (Vec::new(), 0) };
    let mutated = list_after(source, "'mutated_arg_names': [");
    let parameter = |(name, declared): (&str, &str)| {
        let access = match declared.starts_with('*') {
            false => Access::Scalar,
            true if author != Author::Scheduler || mutated.contains(&name) => Access::ReadWrite,
            true if name.starts_with("in_ptr") => Access::Read,
            true if name.starts_with("out_ptr") => Access::Write,
            true => Access::ReadWrite,
        };
        Parameter { name: name.to_owned(), declared: declared.to_owned(), access }
    };
    let passed = |(name, declared): &(&str, &str)| *declared != "constexpr" || name.ends_with("numel");
    (pairs.into_iter().filter(passed).map(parameter).collect(), 0)
}

/// What a launch passes to a user's kernel: everything but what is declared `tl.constexpr`, a size of one too.
fn of_user(kernel: &UserKernel) -> (Vec<Parameter>, usize) {
    let parameters = kernel.passed.iter().map(|(name, declared)| {
        let access = if declared.starts_with('*') { Access::ReadWrite } else { Access::Scalar };
        Parameter { name: name.clone(), declared: declared.clone(), access }
    });
    (parameters.collect(), kernel.extra_arguments)
}

/// The strings of `'a': 'b', 'c': 'd'}` after `opening`, in pairs.
fn dictionary_after<'a>(source: &'a str, opening: &str) -> Option<Vec<(&'a str, &'a str)>> {
    let start = source.find(opening)? + opening.len();
    let body = &source[start..start + source[start..].find('}')?];
    body.split(", ")
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once(": ").and_then(|(k, v)| Some((unquote(k)?, unquote(v)?))))
        .collect()
}

fn list_after<'a>(source: &'a str, opening: &str) -> Vec<&'a str> {
    let Some(start) = source.find(opening).map(|at| at + opening.len()) else { return Vec::new() };
    let Some(length) = source[start..].find(']') else { return Vec::new() };
    source[start..start + length].split(", ").filter_map(unquote).collect()
}

fn unquote(text: &str) -> Option<&str> {
    text.trim().strip_prefix('\'')?.strip_suffix('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(parameters: &[Parameter]) -> Vec<(&str, Access)> {
        parameters.iter().map(|p| (p.name.as_str(), p.access)).collect()
    }

    #[test]
    fn cpp_parameters_follow_the_prototype() {
        let source =
            "extern \"C\"  void  kernel(float* in_out_ptr0,\n   const at::BFloat16* in_ptr0, float* out_ptr0, const int64_t ks0)\n{";
        let types = ["float*", "const at::BFloat16*", "float*", "const int64_t"].map(String::from);
        let parameters = of_cpp(source, &types);
        assert_eq!(
            brief(&parameters),
            [("in_out_ptr0", Access::ReadWrite), ("in_ptr0", Access::Read), ("out_ptr0", Access::Write), ("ks0", Access::Scalar)]
        );
        assert_eq!(parameters[1].element(), Some("bfloat16"));
        assert_eq!(parameters[3].element(), None);
        assert_eq!(of_cpp(source, &types[1..]), []);
        assert_eq!(of_cpp("void kernel(", &types), []);
    }

    #[test]
    fn an_output_that_is_added_to_is_read_too() {
        let parameters = of_cpp("extern \"C\" void kernel(float* out_ptr0) { atomic_add(&out_ptr0[0], 1); }", &["float*".into()]);
        assert_eq!(brief(&parameters), [("out_ptr0", Access::ReadWrite)]);
    }

    #[test]
    fn a_matrix_multiplication_from_a_template_is_told() {
        assert_eq!(author_of_cpp("inline void cpp_fused_addmm_0_micro_gemm(const float* A) {}"), Author::Template);
        assert_eq!(author_of_cpp("extern \"C\" void kernel(float* out_ptr0) {}"), Author::Scheduler);
    }

    #[test]
    fn triton_parameters_follow_the_signature() {
        let source = "@triton_heuristics.pointwise(\n triton_meta={'signature': {'in_ptr0': '*i64', 'out_ptr0': '*fp32', 'out_ptr1': '*fp32', \
                      'xnumel': 'constexpr', 'XBLOCK': 'constexpr'}}, inductor_meta={'mutated_arg_names': ['out_ptr1']})";
        assert_eq!(author_of_triton(source), Author::Scheduler);
        assert_eq!(
            brief(&of_triton(source, Author::Scheduler).0),
            [("in_ptr0", Access::Read), ("out_ptr0", Access::Write), ("out_ptr1", Access::ReadWrite), ("xnumel", Access::Scalar)]
        );
        assert_eq!(author_of_triton("@triton_heuristics.template("), Author::Template);
        assert_eq!(author_of_triton("@triton.jit"), Author::User);
        assert_eq!(of_triton("'signature': {'a'", Author::Scheduler), (Vec::new(), 0));
    }

    #[test]
    fn a_users_launch_passes_what_is_no_constexpr_and_then_the_grid() {
        let source = "@triton_heuristics.user_autotune(configs=[], inductor_meta={'extra_launcher_args': ['_grid_0', '_grid_1', '_grid_2']}, \
                      triton_meta={'signature': {'x': '*fp32', 'stride': 'constexpr', 'eps': 'fp64', 'BLOCK': 'constexpr'}})\n@triton.jit\n\
                      def kernel(x, stride, eps, BLOCK: tl.constexpr):\n    pass\n";
        assert_eq!(author_of_triton(source), Author::User);
        let (parameters, extra) = of_triton(source, Author::User);
        assert_eq!(brief(&parameters), [("x", Access::ReadWrite), ("stride", Access::Scalar), ("eps", Access::Scalar)]);
        assert_eq!(extra, 3);
        assert_eq!(of_triton("@triton.jit\ndef kernel(x): pass", Author::User), (Vec::new(), 0));
    }
}
