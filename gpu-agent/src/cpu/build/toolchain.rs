//! The compiler and its command: Inductor's own where a bundle has it, so that a candidate is measured as it will run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::stop::Stop;

use super::compile::{self, Outcome};

/// Stands for the source file in a template.
pub const SOURCE: &str = "{source}";
/// Stands for the library in a template.
pub const OUTPUT: &str = "{output}";
/// What Inductor includes before every kernel, through a precompiled header.
const PREFIX_HEADER: &str = "torch/csrc/inductor/cpp_prefix.h";
/// Also says which torch the headers belong to.
const VERSION_HEADERS: [&str; 2] = ["torch/headeronly/version.h", "torch/version.h"];
/// Asking a compiler for its version takes no longer.
const ASKING: Duration = Duration::from_secs(20);

/// Why there is no compiler to use.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// The template has no place for the files.
    #[error("compile_command: {detail}")]
    Template {
        /// What is wrong with it.
        detail: String,
    },
    /// The compiler is not there, or does not run.
    #[error("the compiler {compiler:?} does not run: {detail}")]
    NoCompiler {
        /// As the command names it.
        compiler: String,
        /// What happened.
        detail: String,
    },
}

impl UserError for ToolchainError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Template { .. } => ExitCode::BadInput,
            Self::NoCompiler { .. } => ExitCode::Environment,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Template { .. } => "Capture the model again.".into(),
            Self::NoCompiler { .. } => "Install a C++ compiler (Debian: apt-get install g++), or set CXX before the capture.".into(),
        })
    }
}

/// A compiler with its command.
#[derive(Clone, Debug)]
pub struct Toolchain {
    words: Vec<String>,
    version: String,
    prefix: bool,
    identity: Digest,
}

impl Toolchain {
    /// From a bundle's `compile_command`. Libraries are left out: a kernel's are preloaded by the runner, as torch has them loaded
    /// in the model. Warnings are switched off, which changes no code and saves megabytes of text.
    pub fn from_template(template: &[String]) -> Result<Self, ToolchainError> {
        for place in [SOURCE, OUTPUT] {
            if !template.iter().any(|word| word.contains(place)) {
                return Err(ToolchainError::Template { detail: format!("{place} is missing") });
            }
        }
        let mut words = without_libraries(template);
        words.extend(["-w", "-fdiagnostics-color=never", "-fmax-errors=10"].map(String::from));
        Self::identified(words)
    }

    /// For kernels that need nothing of torch: Inductor's flags for g++, without its headers.
    pub fn plain() -> Result<Self, ToolchainError> {
        let native = if cfg!(target_arch = "x86_64") { "-march=native" } else { "-mcpu=native" };
        let flags = "-O3 -DNDEBUG -fno-trapping-math -fno-math-errno -fno-signed-zeros -ffp-contract=off -fexcess-precision=fast \
                     -fno-tree-loop-vectorize -shared -fPIC -std=c++17 -fopenmp";
        let words = ["g++", SOURCE].into_iter().chain(flags.split_ascii_whitespace()).chain([native, "-o", OUTPUT]);
        Self::from_template(&words.map(String::from).collect::<Vec<_>>())
    }

    fn identified(words: Vec<String>) -> Result<Self, ToolchainError> {
        let version = compiler_version(&words[0])?;
        let headers: Vec<Vec<u8>> =
            [PREFIX_HEADER].into_iter().chain(VERSION_HEADERS).map(|name| find_header(&words, name).unwrap_or_default()).collect();
        let prefix = !headers[0].is_empty() && !words.iter().any(|word| word == "-include");
        let processor = processor();
        let parts = words.iter().map(|word| word.as_bytes()).chain([version.as_bytes(), processor.as_bytes()]);
        let identity = Digest::of(parts.chain(headers.iter().map(Vec::as_slice)));
        Ok(Self { words, version, prefix, identity })
    }

    /// First line of the compiler's `--version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Hash of everything that decides what a source becomes: command, compiler, processor, torch's headers.
    pub fn identity(&self) -> Digest {
        self.identity
    }

    /// The line that Inductor has included before every kernel; none without torch's headers.
    pub(super) fn prefix(&self) -> Option<String> {
        self.prefix.then(|| format!("#include <{PREFIX_HEADER}>\n"))
    }

    /// The command for one source; `prefix` is included before it.
    pub(super) fn command(&self, source: &Path, output: &Path, prefix: Option<&Path>) -> Vec<String> {
        let mut words = self.fill(source, output, &[]);
        if let Some(prefix) = prefix {
            words.extend(["-include".into(), prefix.display().to_string()]);
        }
        words
    }

    /// The command that precompiles a header.
    pub(super) fn precompile(&self, header: &Path, output: &Path) -> Vec<String> {
        self.fill(header, output, &["-x", "c++-header"])
    }

    /// The template with its files, and `before` right before the source.
    fn fill(&self, source: &Path, output: &Path, before: &[&str]) -> Vec<String> {
        let (source, output) = (source.display().to_string(), output.display().to_string());
        let mut words = Vec::with_capacity(self.words.len() + 4);
        for word in &self.words {
            if word.contains(SOURCE) {
                words.extend(before.iter().map(|&word| word.to_owned()));
            }
            words.push(word.replace(SOURCE, &source).replace(OUTPUT, &output));
        }
        words
    }
}

/// The words without `-lNAME`, `-l NAME`, `-LFOLDER`, `-L FOLDER`.
fn without_libraries(template: &[String]) -> Vec<String> {
    let mut words = Vec::with_capacity(template.len());
    let mut rest = template.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-l" | "-L" => drop(rest.next()),
            word if word.starts_with("-l") || word.starts_with("-L") => {}
            word => words.push(word.to_owned()),
        }
    }
    words
}

fn compiler_version(compiler: &str) -> Result<String, ToolchainError> {
    let failed = |detail: String| ToolchainError::NoCompiler { compiler: compiler.into(), detail };
    let mut command = std::process::Command::new(compiler);
    command.arg("--version");
    match compile::run(&mut command, ASKING, compile::Stream::Output, &Stop::default()).map_err(|e| failed(e.to_string()))? {
        Outcome { status: Some(status), text, .. } if status.success() => Ok(text.lines().next().unwrap_or_default().to_owned()),
        Outcome { status: Some(status), text, .. } => Err(failed(format!("{status} {text}"))),
        Outcome { status: None, .. } => Err(failed(format!("no answer within {} s", ASKING.as_secs()))),
    }
}

/// Contents of a header of the command's include folders.
fn find_header(words: &[String], name: &str) -> Option<Vec<u8>> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match word.strip_prefix("-I").or_else(|| word.strip_prefix("-isystem")) {
            Some("") => folders.extend(words.get(index + 1).map(PathBuf::from)),
            Some(folder) => folders.push(folder.into()),
            None => {}
        }
    }
    folders.iter().find_map(|folder| fs::read(folder.join(name)).ok())
}

/// What `-march=native` depends on: a cache may be shared by unlike machines.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.lines().filter(|line| ["model name", "flags", "Features", "CPU part"].iter().any(|key| line.starts_with(key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn libraries_are_left_to_the_runner() {
        let found = without_libraries(&words("g++ {source} -ltorch -l c10 -L/x -L /y -fopenmp -o {output}"));
        assert_eq!(found, words("g++ {source} -fopenmp -o {output}"));
    }

    #[test]
    fn a_template_needs_places_for_its_files() {
        assert!(Toolchain::from_template(&words("g++ {source}")).unwrap_err().to_string().contains("{output}"));
        assert!(Toolchain::from_template(&[]).is_err());
    }

    #[test]
    fn a_missing_compiler_is_named_with_a_remedy() {
        let error = Toolchain::from_template(&words("no-such-compiler {source} -o {output}")).unwrap_err();
        assert!(error.to_string().contains("no-such-compiler"));
        assert_eq!(error.exit_code(), ExitCode::Environment);
        assert!(error.remedy().is_some());
    }

    #[test]
    fn identity_follows_the_command() {
        let one = Toolchain::from_template(&words("g++ {source} -O2 -o {output}")).unwrap();
        let other = Toolchain::from_template(&words("g++ {source} -O3 -o {output}")).unwrap();
        assert_ne!(one.identity(), other.identity());
        assert!(one.version().contains("g++") || one.version().contains("clang"), "{}", one.version());
        assert_eq!(one.prefix(), None);
    }
}
