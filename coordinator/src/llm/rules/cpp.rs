//! C++: the entry is there, and no word that every agent's screen refuses. What is in a comment or a string is the agent's to tell.

use super::super::answer::Refusal;

/// Words that no kernel needs, whatever stands around them.
const FORBIDDEN: [&str; 6] = ["asm", "__asm", "__asm__", "_Pragma", "__has_include", "__has_embed"];
/// The linkage by which the model's file calls a kernel.
const LINKAGE: &str = "extern \"C\"";

pub(super) fn check(source: &str) -> Result<(), Refusal> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = || source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut words = code().flat_map(|line| line.split(|c| !is_part(c)));
    if !source.contains(LINKAGE) || !words.clone().any(|word| word == "kernel") {
        return Err(Refusal::new("the source defines no extern \"C\" void kernel(...)"));
    }
    match words.find(|word| FORBIDDEN.contains(word)) {
        Some(word) => Err(Refusal::new(format!("{word} is not allowed in a kernel"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn the_entry_is_there_and_no_assembly() {
        assert_eq!(check("extern \"C\" void kernel(float* x) {} // asm"), Ok(()));
        assert!(check("void kernel(float* x) {}").unwrap_err().to_string().contains("defines no"));
        assert!(check("extern \"C\" void kernels(float* x) {}").unwrap_err().to_string().contains("defines no"));
        assert!(check("extern \"C\" void kernel() { asm(\"\"); }").unwrap_err().to_string().starts_with("asm "));
    }
}
