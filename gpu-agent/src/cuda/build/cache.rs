//! Answers by content: machine code, and failures that would come again.
//!
//! One file per key, `ab/abcdef...`: a digest of the rest, the length of the JSON part, the JSON part, the machine code. Files appear
//! whole (rename), one that does not match its digest is as good as none, and one that is removed while it is read stays readable: so
//! several processes may share a folder.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use kernelopt_shared::digest::Digest;

use super::wire::Answer;

const DIGEST_BYTES: usize = 32;
const HEAD_BYTES: usize = DIGEST_BYTES + 4;
/// What is left of the limit after an eviction: the next one is then some time off.
const KEPT_PERCENT: u64 = 75;

/// A folder of answers.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    most_bytes: u64,
    /// Written by this process since it last looked at the folder's size.
    unseen_bytes: AtomicU64,
}

impl Cache {
    /// Opens the folder, which is made if it is not there, and brings it below its limit.
    pub(super) fn open(folder: &Path, most_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let cache = Self { folder: folder.canonicalize()?, most_bytes, unseen_bytes: AtomicU64::new(0) };
        cache.evict()?;
        Ok(cache)
    }

    /// What is known under a key. What cannot be read is not known.
    pub(super) fn get(&self, key: Digest) -> Option<(Answer, Vec<u8>)> {
        let path = self.path(key);
        let mut file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let found = decode(&bytes);
        match found {
            // The time of last use, which eviction goes by.
            Some(_) => drop(file.set_modified(SystemTime::now())),
            None => drop(fs::remove_file(&path)),
        }
        found
    }

    /// Keeps an answer.
    pub(super) fn put(&self, key: Digest, answer: &Answer, payload: &[u8]) -> io::Result<()> {
        let json = serde_json::to_vec(answer)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)?;
        let mut draft = tempfile::Builder::new().prefix(".draft-").tempfile_in(folder)?;
        draft.write_all(Digest::of([&json[..], payload]).to_string().as_bytes())?;
        draft.write_all(&length.to_le_bytes())?;
        draft.write_all(&json)?;
        draft.write_all(payload)?;
        draft.persist(path).map_err(|e| e.error)?;
        let written = (HEAD_BYTES + json.len() + payload.len()) as u64;
        if self.unseen_bytes.fetch_add(written, Ordering::Relaxed) + written > self.most_bytes / 16 {
            self.unseen_bytes.store(0, Ordering::Relaxed);
            self.evict()?;
        }
        Ok(())
    }

    fn path(&self, key: Digest) -> PathBuf {
        let name = key.to_string();
        self.folder.join(&name[..2]).join(name)
    }

    /// Removes what was used least recently where the folder has grown beyond its limit. Another process may do the same at the same
    /// time: a file that is gone is what was wanted.
    fn evict(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for folder in fs::read_dir(&self.folder)?.flatten() {
            for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let Ok(facts) = file.metadata() else { continue };
                files.push((facts.modified().unwrap_or(SystemTime::UNIX_EPOCH), facts.len(), file.path()));
            }
        }
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.most_bytes {
            return Ok(());
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.most_bytes / 100 * KEPT_PERCENT {
                break;
            }
            drop(fs::remove_file(path));
            total -= bytes;
        }
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> Option<(Answer, Vec<u8>)> {
    let (digest, rest) = bytes.split_at_checked(DIGEST_BYTES)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (json, payload) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (Digest::of([json, payload]).to_string().as_bytes() == digest).then_some(())?;
    Some((serde_json::from_slice(json).ok()?, payload.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wire::Facts;
    use super::*;

    fn key(number: u8) -> Digest {
        Digest::of([&[number][..]])
    }

    fn built() -> Answer {
        Answer::Built(Facts { entry: "k".into(), registers: 12, ..Facts::default() })
    }

    #[test]
    fn answers_come_back_and_torn_files_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(cache.get(key(1)), None);
        cache.put(key(1), &built(), b"code").unwrap();
        assert_eq!(cache.get(key(1)), Some((built(), b"code".to_vec())));
        assert_eq!(Cache::open(folder.path(), 1 << 20).unwrap().get(key(1)), Some((built(), b"code".to_vec())));
        let path = cache.path(key(1));
        let whole = fs::read(&path).unwrap();
        for torn in [&whole[..whole.len() - 1], &whole[..10], &[]] {
            fs::write(&path, torn).unwrap();
            assert_eq!(cache.get(key(1)), None);
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1 << 20).unwrap();
        for number in 0..8 {
            cache.put(key(number), &built(), &vec![number; 10_000]).unwrap();
            let age = Duration::from_secs(100 - u64::from(number));
            File::open(cache.path(key(number))).unwrap().set_modified(SystemTime::now() - age).unwrap();
        }
        assert!(cache.get(key(0)).is_some(), "a use makes it the youngest");
        let small = Cache::open(folder.path(), 60_000).unwrap();
        let left: Vec<u8> = (0..8).filter(|number| small.get(key(*number)).is_some()).collect();
        assert_eq!(left, [0, 5, 6, 7]);
    }
}
