//! Large things: bundles up, outputs down.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::JobId;
use reqwest::Method;
use reqwest::header::CONTENT_LENGTH;
use tokio_util::io::ReaderStream;

use super::{Client, ClientError};

/// Size of the pieces of an upload.
const PIECE_BYTES: usize = 256 << 10;
/// Most files of a job's outputs.
const MOST_FILES: usize = 100_000;

impl Client {
    /// Stores the content of `file`, `bytes` long, whose digest is `blob`.
    pub async fn store(&self, blob: Digest, file: File, bytes: u64) -> Result<(), ClientError> {
        let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE_BYTES);
        let request = self.request(&self.sending, Method::PUT, self.url(&["blobs", &blob.to_string()]));
        let request = request.header(CONTENT_LENGTH, bytes).body(reqwest::Body::wrap_stream(pieces));
        self.send(request).await.map(drop)
    }

    /// Fetches the outputs of a finished job into the folder `out`, which appears whole or not at all.
    pub async fn fetch_outputs(&self, id: &JobId, out: &Path) -> Result<(), ClientError> {
        let place = Place::at(out)?;
        let mut response = self.send(self.request(&self.quick, Method::GET, self.url(&["jobs", id.as_str(), "outputs"]))).await?;
        let error = |source| ClientError::Io { path: out.to_owned(), source };
        let mut tar = tempfile::tempfile_in(&place.parent).map_err(error)?;
        while let Some(piece) = response.chunk().await.map_err(|source| ClientError::unreachable(&self.server, source))? {
            tar.write_all(&piece).map_err(error)?;
        }
        tar.rewind().map_err(error)?;
        place.fill(tar).map_err(error)
    }
}

/// Where outputs will be.
struct Place {
    out: PathBuf,
    parent: PathBuf,
}

impl Place {
    /// `out`, where there is nothing yet or an empty folder.
    fn at(out: &Path) -> Result<Self, ClientError> {
        let error = |source| ClientError::Io { path: out.to_owned(), source };
        match fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(ClientError::Occupied(out.to_owned())),
            Ok(false) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(error(e)),
        }
        let out = std::path::absolute(out).map_err(error)?;
        let parent = out.parent().unwrap_or(Path::new("/")).to_owned();
        fs::create_dir_all(&parent).map_err(error)?;
        Ok(Self { out, parent })
    }

    fn fill(&self, tar: File) -> io::Result<()> {
        let fresh = tempfile::TempDir::new_in(&self.parent)?;
        unpack(tar, fresh.path())?;
        set_plain_mode(fresh.path())?;
        // Onto an empty folder a folder may be renamed.
        fs::rename(fresh.path(), &self.out)?;
        let _ = fresh.keep();
        Ok(())
    }
}

/// Unpacks plain files; the tar comes from elsewhere, so nothing else is made of it.
fn unpack(tar: File, folder: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::new(tar));
    archive.set_preserve_mtime(false);
    for (number, entry) in archive.entries()?.enumerate() {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() || number >= MOST_FILES || !entry.unpack_in(folder)? {
            let name = String::from_utf8_lossy(&entry.path_bytes()).escape_debug().to_string();
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("what came is no output of a job: {name}")));
        }
    }
    Ok(())
}

/// Temporary folders are private; outputs are for everybody.
fn set_plain_mode(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(add: impl FnOnce(&mut tar::Builder<File>)) -> File {
        let mut tar = tar::Builder::new(tempfile::tempfile().unwrap());
        add(&mut tar);
        let mut file = tar.into_inner().unwrap();
        file.rewind().unwrap();
        file
    }

    fn file(name: &str) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        // As an attacker would: `set_path` refuses such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(1);
        header.set_mode(0o644);
        header.set_cksum();
        header
    }

    #[test]
    fn outputs_appear_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/out");
        let place = Place::at(&out).unwrap();
        assert!(place.fill(tar_of(|tar| tar.append(&file("../evil"), &b"x"[..]).unwrap())).is_err());
        assert!(!out.exists() && !folder.path().join("new/evil").exists());
        let link = |tar: &mut tar::Builder<File>| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, "link", "/etc/passwd").unwrap();
        };
        assert!(place.fill(tar_of(link)).is_err() && !out.exists());
        place.fill(tar_of(|tar| tar.append(&file("a/b"), &b"x"[..]).unwrap())).unwrap();
        assert_eq!(fs::read(out.join("a/b")).unwrap(), b"x");
        assert!(matches!(Place::at(&out), Err(ClientError::Occupied(_))));
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1, "nothing else is left");
    }
}
