//! Large things: bundles up, outputs down.

use std::io::Write;
use std::path::Path;

use kernelopt_shared::archive::{self, ArchiveError, Limits};
use kernelopt_shared::blobs::{BlobOptions, Blobs};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::JobId;
use reqwest::Method;

use super::{Client, ClientError};

impl Client {
    /// Stores the content of the file at `path`, unless the coordinator has it: its name there.
    pub async fn store(&self, path: &Path) -> Result<Digest, ClientError> {
        let options = BlobOptions { token: self.token.clone(), ..BlobOptions::new(self.url(&["blobs"])) };
        Ok(Blobs::open(&options)?.put_file(path).await?)
    }

    /// Fetches the outputs of a finished job into the new folder `out`, which appears whole or not at all.
    pub async fn fetch_outputs(&self, id: &JobId, out: &Path) -> Result<(), ClientError> {
        if out.exists() {
            return Err(ArchiveError::There(out.to_owned()).into());
        }
        let mut response = self.send(self.request(Method::GET, self.url(&["jobs", id.as_str(), "outputs"]))).await?;
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let error = |source| ClientError::Io { path: parent.to_owned(), source };
        std::fs::create_dir_all(parent).map_err(error)?;
        let mut tar = tempfile::NamedTempFile::new_in(parent).map_err(error)?;
        while let Some(piece) = response.chunk().await.map_err(|source| ClientError::unreachable(&self.server, source))? {
            tar.write_all(&piece).map_err(error)?;
        }
        archive::unpack(tar.path(), out, Limits::default(), |_| Ok::<_, ArchiveError>(()))?;
        set_plain_mode(out).map_err(error)
    }
}

/// The folder was a temporary one, which are private; outputs are for everybody.
fn set_plain_mode(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
