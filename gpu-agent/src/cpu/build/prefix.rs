//! Inductor's prefix header, precompiled once per toolchain.
//!
//! In a model, every kernel is compiled behind `-include` of this header, so a candidate is too, whether it asks for it or
//! not: what does not compile behind it would not compile in the model. Precompiled, a kernel takes 0.45 s of processor time instead
//! of 2.2 s.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use kernelopt_shared::digest::Digest;

use super::{BuildError, BuildLimits, Builder};

const HEADER: &str = "prefix.h";
/// gcc looks for this name beside the header, and checks by itself that it fits the command.
const PRECOMPILED: &str = "prefix.h.gch";

impl Builder {
    /// Path of the header to include; none where the toolchain has none. Without its precompiled form (no space, another compiler than
    /// gcc) the plain one is used, which takes longer and means the same.
    pub(super) fn prefix_header(&self) -> Result<Option<PathBuf>, BuildError> {
        let Some(text) = self.options.toolchain.prefix() else { return Ok(None) };
        let name = Digest::of([self.options.toolchain.identity().to_string().as_bytes(), text.as_bytes()]);
        self.ensure_prefix(&self.options.cache.join(format!("prefix-{name}")), &text).map(Some)
    }

    fn ensure_prefix(&self, folder: &Path, text: &str) -> Result<PathBuf, BuildError> {
        let header = folder.join(HEADER);
        if header.is_file() {
            return Ok(header);
        }
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| BuildError::Io { path, source }
        };
        // Seconds of work and 120 MB: whoever comes meanwhile waits rather than doing the same. The lock goes with the file's descriptor.
        let lock = folder.with_extension("lock");
        let turn = File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(io_error(&lock))?;
        if header.is_file() {
            return Ok(header);
        }
        let work = self.workshop()?;
        let draft = work.path().join("draft");
        fs::create_dir(&draft).map_err(io_error(&draft))?;
        let plain = draft.join(HEADER);
        fs::write(&plain, text).map_err(io_error(&plain))?;
        let words = self.options.toolchain.precompile(&plain, &draft.join(PRECOMPILED));
        let limits = BuildLimits { file_bytes: 1 << 30, ..self.options.limits };
        if let Err(error) = self.run(&words, work.path(), limits) {
            tracing::warn!(%error, "the prefix header was not precompiled: builds take longer");
            // Half a precompiled header would be taken for a whole one.
            match fs::remove_file(draft.join(PRECOMPILED)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&draft)(error)),
                _ => {}
            }
        }
        fs::rename(&draft, folder).map_err(io_error(folder))?;
        drop(turn);
        Ok(header)
    }
}
