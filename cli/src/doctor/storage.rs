//! Disk: free space, and the folder for builds.

use std::path::Path;

use super::check::Check;

const GIB: f64 = (1u64 << 30) as f64;
/// Free space below which a long search may fill the disk, in GiB.
const LITTLE_GIB: f64 = 2.0;
/// Free space below which not even a short one can be finished, in GiB.
const TOO_LITTLE_GIB: f64 = 0.2;

/// Can builds be kept, and is there room?
pub(super) fn checks(cache: &Path) -> Vec<Check> {
    let written = std::fs::create_dir_all(cache).and_then(|()| tempfile::NamedTempFile::new_in(cache));
    if let Err(error) = written {
        let remedy = "Give yourself the right to write there, or set XDG_CACHE_HOME to another folder.";
        let cannot = Check::missing("cache", format!("{} cannot be written: {error}", cache.display()), remedy);
        return vec![cannot, disk(&std::env::temp_dir())];
    }
    vec![Check::ok("cache", format!("{} can be written", cache.display())), disk(cache)]
}

fn disk(folder: &Path) -> Check {
    match nix::sys::statvfs::statvfs(folder) {
        Ok(found) => judge(folder, found.blocks_available() as f64 * found.fragment_size() as f64 / GIB),
        Err(error) => Check::warn("disk", format!("{}: {error}", folder.display()), "Check that the folder exists."),
    }
}

fn judge(folder: &Path, free_gib: f64) -> Check {
    let detail = format!("{free_gib:.1} GiB free at {}", folder.display());
    let remedy = "Free some space, or set XDG_CACHE_HOME to a folder on another disk.";
    match free_gib {
        _ if free_gib < TOO_LITTLE_GIB => Check::missing("disk", detail, remedy),
        _ if free_gib < LITTLE_GIB => Check::warn("disk", detail, remedy),
        _ => Check::ok("disk", detail),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn space_is_judged_by_what_a_search_needs() {
        let status = |free| judge(Path::new("/"), free).status;
        assert_eq!([status(0.1), status(1.0), status(50.0)], [Status::Missing, Status::Warn, Status::Ok]);
    }

    #[test]
    fn a_cache_that_is_no_folder_cannot_be_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let checks = checks(file.path());
        assert_eq!((checks[0].name, checks[0].status), ("cache", Status::Missing));
        assert_eq!(checks[1].name, "disk");
    }
}
