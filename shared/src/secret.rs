//! Passwords and tokens: from the environment or a file, never in a log.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use secrecy::{ExposeSecret, SecretString};

/// Longest secret, in bytes.
const MOST_BYTES: u64 = 64 << 10;

/// Why a secret could not be had. It tells where the secret should be, never what it is.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum SecretError {
    #[error("{0} and {0}_FILE are both set: which one?")]
    Twice(String),
    #[error("{name} is not UTF-8")]
    Text { name: String },
    #[error("{name}: {}: {source}", path.display())]
    File { name: String, path: PathBuf, source: io::Error },
}

/// The secret in the environment variable `name`, or in the file that `name` + `_FILE` names, as container platforms hand them out. A last
/// line break is not part of it. `None` where neither is set, or it is empty.
///
/// # Errors
/// Both are set, the file cannot be read, it is longer than 64 KiB, or is no text.
pub fn from_env(name: &str) -> Result<Option<SecretString>, SecretError> {
    from(name, |name| env::var_os(name))
}

/// The secret in the file at `path`, which the setting `name` named, without a last line break. `None` where the file is empty.
///
/// # Errors
/// The file cannot be read, is longer than 64 KiB, or is no text.
pub fn from_file(name: &str, path: &Path) -> Result<Option<SecretString>, SecretError> {
    read(name, path.to_owned()).map(|text| secret(&text))
}

fn from(name: &str, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Option<SecretString>, SecretError> {
    let file = format!("{name}_FILE");
    let found = |name: &str| lookup(name).filter(|value| !value.is_empty());
    let text = match (found(name), found(&file)) {
        (Some(_), Some(_)) => return Err(SecretError::Twice(name.into())),
        (Some(value), None) => value.into_string().map_err(|_| SecretError::Text { name: name.into() })?,
        (None, Some(path)) => read(&file, PathBuf::from(path))?,
        (None, None) => return Ok(None),
    };
    Ok(secret(&text))
}

fn secret(text: &str) -> Option<SecretString> {
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    Some(text).filter(|text| !text.is_empty()).map(SecretString::from)
}

fn read(name: &str, path: PathBuf) -> Result<String, SecretError> {
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 > MOST_BYTES => {
            Err(SecretError::File { name: name.into(), path, source: io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64 KiB") })
        }
        Ok(_) => Ok(text),
        Err(source) => Err(SecretError::File { name: name.into(), path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Result<Option<String>, String> {
        let lookup = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value));
        let secret = from("TOKEN", lookup).map_err(|e| e.to_string())?;
        Ok(secret.map(|secret| secret.expose_secret().to_owned()))
    }

    #[test]
    fn a_secret_comes_from_a_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "from a file\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&[("TOKEN", "")]), Ok(None));
        assert_eq!(with(&[("TOKEN", "plain")]), Ok(Some("plain".into())));
        assert_eq!(with(&[("TOKEN_FILE", file)]), Ok(Some("from a file".into())));
        assert!(with(&[("TOKEN", "plain"), ("TOKEN_FILE", file)]).unwrap_err().contains("both set"));
        assert!(with(&[("TOKEN_FILE", "/no/such/file")]).unwrap_err().contains("/no/such/file"));
        std::fs::write(file, vec![b'x'; 70 << 10]).unwrap();
        assert!(with(&[("TOKEN_FILE", file)]).unwrap_err().contains("longer"));
    }

    #[test]
    fn a_secret_prints_as_nothing() {
        let secret = from("TOKEN", |_| None).unwrap().unwrap_or_else(|| SecretString::from("hunter2"));
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
