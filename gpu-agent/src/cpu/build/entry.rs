//! The translation unit that is really compiled: the candidate's source, and a trampoline that calls its kernel with exact types.

use kernelopt_shared::meaning::{Argument, Role};

/// A type of the signature cannot be written into C++.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("argument {name}: {c_type:?} is not a C type that the runner can pass")]
pub struct SignatureError {
    /// Argument.
    pub name: String,
    /// Its type as given.
    pub c_type: String,
}

/// Appends the trampoline to `source`.
///
/// The declaration of `kernel` makes a mismatch a compile error, twice: with C linkage, other parameter types conflict, and
/// so does a definition with C++ linkage (which the model's own file could not link against).
pub(super) fn compose(source: &str, signature: &[Argument]) -> Result<String, SignatureError> {
    let types = signature.iter().map(c_type).collect::<Result<Vec<_>, _>>()?;
    let (mut pointers, mut integers) = (0, 0);
    let calls: Vec<String> = signature
        .iter()
        .zip(&types)
        .map(|(argument, c_type)| {
            let (array, next) = if argument.role == Role::Size { ("integers", &mut integers) } else { ("pointers", &mut pointers) };
            *next += 1;
            format!("static_cast<{c_type}>({array}[{}])", *next - 1)
        })
        .collect();
    Ok(format!(
        "#include <cstdint>\n#line 1 \"candidate.cpp\"\n{source}\n#line 1 \"entry.cpp\"\n\
         extern \"C\" void kernel({});\n\
         extern \"C\" void kernelopt_entry([[maybe_unused]] void* const* pointers, [[maybe_unused]] const std::int64_t* integers) noexcept {{\n    \
         kernel({});\n}}\n",
        types.join(", "),
        calls.join(", "),
    ))
}

/// The type as written, where it is plain: words, `::`, and one `*` at the end of a pointer.
fn c_type(argument: &Argument) -> Result<&str, SignatureError> {
    let text = argument.c_type.trim();
    let name = if argument.role == Role::Size { Some(text) } else { text.strip_suffix('*') };
    let plain = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_: ".contains(c))
    };
    match name {
        Some(name) if plain(name) => Ok(text),
        _ => Err(SignatureError { name: argument.name.clone(), c_type: argument.c_type.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(c_type: &str, role: Role) -> Argument {
        Argument { name: "a".into(), c_type: c_type.into(), role, buffers: Vec::new(), value: None, number: None }
    }

    #[test]
    fn arguments_keep_their_order_and_types() {
        let signature = [
            argument("const float*", Role::In),
            argument("const int64_t", Role::Size),
            argument("at::BFloat16*", Role::Out),
            argument("int64_t", Role::Size),
        ];
        let text = compose("SOURCE", &signature).unwrap();
        assert!(text.contains("kernel(const float*, const int64_t, at::BFloat16*, int64_t);"));
        assert!(text.contains(
            "kernel(static_cast<const float*>(pointers[0]), static_cast<const int64_t>(integers[0]), \
             static_cast<at::BFloat16*>(pointers[1]), static_cast<int64_t>(integers[1]));"
        ));
    }

    #[test]
    fn types_that_are_more_than_types_are_refused() {
        for (text, role) in
            [("float", Role::In), ("float*) { } void f(int*", Role::In), ("", Role::Size), ("int64_t*", Role::Size), ("*", Role::Out)]
        {
            assert!(compose("", &[argument(text, role)]).is_err(), "{text}");
        }
    }
}
