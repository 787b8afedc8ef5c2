//! A captured compiled model on disk, written by `python -m kernelopt capture`.
//!
//! Tensors are read by Python only; here we read the manifest, the generated code and the meanings, each after its
//! hash was compared with the manifest's.
//!
//! Between machines it travels as one file, see [`pack`] and [`unpack`].

mod pack;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use pack::{PackError, pack, unpack};

use crate::digest::Digest;
use crate::exit::{ExitCode, UserError};
use crate::launch::Launch;
use crate::meaning::Meaning;
use crate::target::Distribution;

/// Version of the bundle schema that this program writes and reads.
pub const BUNDLE_SCHEMA_VERSION: u32 = 1;
/// Releases of torch whose generated code this program has been tested with.
pub const TESTED_TORCH: [&str; 1] = ["2.11"];
/// Name of the manifest in a bundle's folder.
pub const MANIFEST: &str = "manifest.json";
/// Greatest size of a text file in a bundle, in bytes; a larger one is not read.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`BUNDLE_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The factory that made the model, `examples/token_loss.py:make`.
    pub model: String,
    /// `torch`, `python`, `kernelopt`, `compiler`.
    pub versions: BTreeMap<String, String>,
    /// Where it was captured.
    pub device: CapturedDevice,
    /// Settings of torch that change results: `float32_matmul_precision`, `flush_denormal`, ...
    pub precision: BTreeMap<String, serde_json::Value>,
    /// Inductor's settings that differ from its defaults.
    pub inductor: BTreeMap<String, serde_json::Value>,
    /// The compiler's own command for one C++ kernel; `{source}` and `{output}` stand for files.
    #[serde(default)]
    pub compile_command: Vec<String>,
    /// Compiled graphs, in order of first call.
    pub graphs: Vec<GraphEntry>,
    /// Every other file of the bundle, by path in it.
    pub files: BTreeMap<String, FileEntry>,
}

/// Where a model was captured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturedDevice {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Processor or GPU, as it names itself.
    pub name: String,
    /// Threads that torch used.
    pub threads: u32,
    /// Compute capability of a GPU, `9.0`; none of a processor, and where the capture had no GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
}

impl CapturedDevice {
    /// The compute capability times ten, 90 for `9.0`; `None` where it is not known.
    pub fn architecture(&self) -> Option<u32> {
        let (major, minor) = self.capability.as_deref()?.split_once('.')?;
        major.parse::<u32>().ok()?.checked_mul(10)?.checked_add(minor.parse().ok()?)
    }
}

/// One compiled graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphEntry {
    /// Number, from zero.
    pub index: u32,
    /// `inference`, `forward` or `backward`.
    pub kind: String,
    /// Path of the generated file.
    pub code: String,
    /// Path of the meanings: a JSON list of [`KernelEntry`].
    pub meanings: String,
    /// Calls of this graph in one call of the model.
    pub calls_per_run: u32,
}

/// What is known of one generated kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// Name in the generated file.
    pub kernel: String,
    /// Its meaning; none when the exporter met something that it does not know.
    #[serde(default)]
    pub meaning: Option<serde_json::Value>,
    /// Why there is no meaning.
    #[serde(default)]
    pub reason: Option<String>,
    /// The launch of a Triton kernel in the configuration that the compiler chose on the capturing device, grid evaluated
    /// (`["4096", "1", "1"]`); none for other languages, and where the capture had no device to choose on.
    #[serde(default)]
    pub launch: Option<Launch>,
    /// What its arguments held at capture, by argument name.
    #[serde(default)]
    pub distributions: BTreeMap<String, Distribution>,
}

impl KernelEntry {
    /// The meaning, decoded and validated; else a sentence that says why the kernel is no target.
    pub fn decoded(&self) -> Result<Meaning, String> {
        let Some(value) = &self.meaning else {
            return Err(self.reason.clone().unwrap_or_else(|| "no meaning was exported".into()));
        };
        let meaning: Meaning = serde_json::from_value(value.clone()).map_err(|e| format!("its meaning does not decode: {e}"))?;
        meaning.validate().map_err(|e| e.to_string())?;
        Ok(meaning)
    }
}

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}

/// An opened bundle.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Folder.
    pub root: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// Hash of the manifest, and so of every file in it: the bundle's identity.
    pub digest: Digest,
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum BundleError {
    #[error("no bundle at {}: {} is missing", path.display(), MANIFEST)]
    Missing { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: not a manifest: {source}", path.display())]
    Manifest { path: PathBuf, source: serde_json::Error },
    #[error("{}: schema_version is {found}, this program reads {BUNDLE_SCHEMA_VERSION}", path.display())]
    Schema { path: PathBuf, found: u64 },
    #[error("{}: versions.torch is {found}; generated code of torch {} is understood", path.display(), TESTED_TORCH.join(", "))]
    Torch { path: PathBuf, found: String },
    #[error("{}: files: {name:?} is not a plain path inside the bundle", path.display())]
    Path { path: PathBuf, name: String },
    #[error("{}: listed in the manifest but missing", path.display())]
    FileMissing { path: PathBuf },
    #[error("{}: {found} bytes, the manifest says {expected}: the bundle is torn", path.display())]
    Size { path: PathBuf, found: u64, expected: u64 },
    #[error("{}: its SHA-256 is not the manifest's: the file was changed after the capture", path.display())]
    Hash { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{}: {detail}", path.display())]
    Content { path: PathBuf, detail: String },
}

impl UserError for BundleError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::BadInput
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Missing { .. } => "Make one with `python -m kernelopt capture MODULE:FACTORY -o BUNDLE`.".into(),
            Self::Schema { .. } => "Capture the model again with this version's Python package.".into(),
            Self::Torch { .. } => format!("Capture the model with torch {}.", TESTED_TORCH.join(" or ")),
            Self::Io { .. } => "Check the path and its permissions.".into(),
            _ => "Capture the model again.".into(),
        })
    }
}

impl Bundle {
    /// Opens the bundle at `root` and checks that every listed file is whole.
    pub fn open(root: &Path) -> Result<Self, BundleError> {
        let path = root.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(BundleError::Missing { path: root.into() });
            }
            Err(source) => return Err(BundleError::Io { path, source }),
        };
        let manifest = parse_manifest(&path, &text)?;
        check_torch(&path, &manifest)?;
        let bundle = Self { root: root.into(), manifest, digest: Digest::of([text.as_slice()]) };
        bundle.manifest.files.iter().try_for_each(|(name, entry)| bundle.check_file(name, entry))?;
        Ok(bundle)
    }

    fn check_file(&self, name: &str, entry: &FileEntry) -> Result<(), BundleError> {
        let path = self.path_of(name)?;
        let mut file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(BundleError::FileMissing { path }),
            Err(source) => return Err(BundleError::Io { path, source }),
        };
        let io_error = |source| BundleError::Io { path: path.clone(), source };
        let found = file.metadata().map_err(io_error)?.len();
        if found != entry.bytes {
            return Err(BundleError::Size { path, found, expected: entry.bytes });
        }
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut HashWriter(&mut hasher)).map_err(io_error)?;
        let hex: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
        if hex != entry.sha256 { Err(BundleError::Hash { path }) } else { Ok(()) }
    }

    fn path_of(&self, name: &str) -> Result<PathBuf, BundleError> {
        let plain = Path::new(name).components().all(|c| matches!(c, std::path::Component::Normal(_)));
        if name.is_empty() || !plain {
            return Err(BundleError::Path { path: self.root.join(MANIFEST), name: name.into() });
        }
        Ok(self.root.join(name))
    }

    /// Text of a file that the manifest lists.
    pub fn text(&self, name: &str) -> Result<String, BundleError> {
        let path = self.path_of(name)?;
        let Some(entry) = self.manifest.files.get(name) else { return Err(BundleError::FileMissing { path }) };
        if entry.bytes > MAX_TEXT_BYTES {
            return Err(BundleError::Content { path, detail: format!("{} bytes; at most {MAX_TEXT_BYTES} are read", entry.bytes) });
        }
        fs::read_to_string(&path).map_err(|source| BundleError::Io { path, source })
    }

    /// A JSON file that the manifest lists.
    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, BundleError> {
        let text = self.text(name)?;
        serde_json::from_str(&text).map_err(|source| BundleError::Json { path: self.root.join(name), source })
    }

    /// What is known of the generated kernels of `graph`.
    pub fn kernels(&self, graph: &GraphEntry) -> Result<Vec<KernelEntry>, BundleError> {
        self.json(&graph.meanings)
    }
}

fn parse_manifest(path: &Path, text: &[u8]) -> Result<Manifest, BundleError> {
    let error = |source| BundleError::Manifest { path: path.into(), source };
    let value: serde_json::Value = serde_json::from_slice(text).map_err(error)?;
    let found = value.get("schema_version").and_then(serde_json::Value::as_u64);
    match found {
        Some(version) if version == u64::from(BUNDLE_SCHEMA_VERSION) => serde_json::from_value(value).map_err(error),
        Some(found) => Err(BundleError::Schema { path: path.into(), found }),
        None => Err(BundleError::Content { path: path.into(), detail: "field schema_version is missing".into() }),
    }
}

fn check_torch(path: &Path, manifest: &Manifest) -> Result<(), BundleError> {
    let found = manifest.versions.get("torch").map_or("missing", String::as_str);
    let tested = |release: &str| found.strip_prefix(release).is_some_and(|rest| rest.starts_with('.'));
    if TESTED_TORCH.iter().any(|release| tested(release)) {
        Ok(())
    } else {
        Err(BundleError::Torch { path: path.into(), found: found.into() })
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
