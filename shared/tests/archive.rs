//! Archives: what we make comes back, and what others make cannot leave its folder.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kernelopt_shared::archive::{self, ArchiveError, Limits};
use kernelopt_shared::bundle::{self, Bundle, BundleError, PackError};
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bundles/softmax_cuda")
}

/// An archive in `folder` of what `fill` puts in.
fn archive(folder: &Path, fill: impl FnOnce(&mut Builder<File>)) -> PathBuf {
    let path = folder.join("hostile.tar");
    let mut builder = Builder::new(File::create(&path).unwrap());
    fill(&mut builder);
    builder.into_inner().unwrap();
    path
}

/// A header with whatever name and kind, as no honest program writes them.
fn header(name: &[u8], kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

fn add(builder: &mut Builder<File>, name: &str, bytes: &[u8]) {
    builder.append(&header(name.as_bytes(), EntryType::Regular, bytes.len() as u64), bytes).unwrap();
}

fn unpack(from: &Path, to: &Path, limits: Limits) -> Result<(), ArchiveError> {
    archive::unpack(from, to, limits, |_| Ok(()))
}

/// Unpacking fails and leaves nothing, neither the folder nor a half of it.
fn refused(folder: &TempDir, from: &Path, limits: Limits) -> ArchiveError {
    let before: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let error = unpack(from, &folder.path().join("out"), limits).unwrap_err();
    let after: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after, "{error}");
    error
}

#[test]
fn a_bundle_travels() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.tar"), folder.path().join("other.tar"));
    let bytes = bundle::pack(&fixture(), &one).unwrap();
    assert_eq!(fs::metadata(&one).unwrap().len(), bytes);

    let there = bundle::unpack(&one, &folder.path().join("there"), 1 << 30).unwrap();
    assert_eq!(there.digest, Bundle::open(&fixture()).unwrap().digest);
    assert_eq!(there.root, folder.path().join("there"));
    assert!(there.kernels(&there.manifest.graphs[0]).is_ok());

    // The same bytes from another place, with other times and a file that is none of it.
    fs::write(there.root.join("notes.txt"), "not in the manifest").unwrap();
    bundle::pack(&there.root, &other).unwrap();
    assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap());

    let again = bundle::unpack(&one, &folder.path().join("there"), 1 << 30).unwrap_err();
    assert!(matches!(again, PackError::Archive(ArchiveError::There(_))), "{again}");
    let small = bundle::unpack(&one, &folder.path().join("small"), 1000).unwrap_err();
    assert!(matches!(small, PackError::Archive(ArchiveError::Limit { what: "bytes", most: 1000, .. })), "{small}");
    assert!(!folder.path().join("small").exists());
}

#[test]
fn a_torn_or_changed_bundle_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("bundle.tar");
    bundle::pack(&fixture(), &packed).unwrap();
    let whole = fs::read(&packed).unwrap();
    let torn = folder.path().join("torn.tar");
    for cut in [0, 100, 512, 700, whole.len() / 2, whole.len() - 1024 - 512] {
        fs::write(&torn, &whole[..cut]).unwrap();
        assert!(bundle::unpack(&torn, &folder.path().join("out"), 1 << 30).is_err(), "cut at {cut}");
        assert!(!folder.path().join("out").exists());
    }
    // One bit of the last file's contents: the hash in the manifest finds it.
    let mut changed = whole.clone();
    let last = whole.iter().rposition(|byte| *byte != 0).unwrap();
    changed[last] ^= 1;
    fs::write(&torn, &changed).unwrap();
    let error = bundle::unpack(&torn, &folder.path().join("out"), 1 << 30).unwrap_err();
    assert!(matches!(error, PackError::Bundle(BundleError::Hash { .. })), "{error}");
    // No bundle at all.
    let plain = archive(folder.path(), |builder| add(builder, "a", b"a"));
    assert!(matches!(bundle::unpack(&plain, &folder.path().join("out"), 1 << 30), Err(PackError::Bundle(BundleError::Missing { .. }))));
    assert!(matches!(bundle::pack(folder.path(), &folder.path().join("x.tar")), Err(PackError::Bundle(BundleError::Missing { .. }))));
    assert!(!folder.path().join("x.tar").exists());
}

#[test]
fn names_stay_below_the_folder() {
    let names: [&[u8]; 13] = [
        b"../up",
        b"/etc/passwd",
        b"a/../../up",
        b"a/./b",
        b"a//b",
        b"a/",
        b"..",
        b".",
        b"a\nb",
        b"a\x1b[2J",
        b"\xff\xfe",
        b"./a",
        b"a/..",
    ];
    for name in names {
        let folder = tempfile::tempdir().unwrap();
        let hostile = archive(folder.path(), |builder| builder.append(&header(name, EntryType::Regular, 1), &b"x"[..]).unwrap());
        let error = refused(&folder, &hostile, Limits::default());
        assert!(matches!(error, ArchiveError::Entry { .. }), "{name:?}: {error}");
    }
}

#[test]
fn only_plain_files_come_out() {
    use EntryType as Kind;
    let kinds = [
        Kind::Symlink,
        Kind::Link,
        Kind::Char,
        Kind::Block,
        Kind::Fifo,
        Kind::Directory,
        Kind::GNUSparse,
        Kind::GNULongName,
        Kind::XHeader,
    ];
    for kind in kinds {
        let folder = tempfile::tempdir().unwrap();
        let hostile = archive(folder.path(), |builder| {
            add(builder, "first", b"fine");
            let mut header = header(b"second", kind, 4);
            header.set_link_name("first").unwrap();
            header.set_cksum();
            builder.append(&header, &b"evil"[..]).unwrap();
        });
        let error = refused(&folder, &hostile, Limits::default());
        assert!(matches!(error, ArchiveError::Entry { why: "not a plain file", .. }), "{kind:?}: {error}");
    }
}

#[test]
fn limits_hold_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    // Claims more than there is on any disk, and has nothing.
    let huge = archive(folder.path(), |builder| {
        let file = builder.get_mut();
        std::io::Write::write_all(file, header(b"huge", EntryType::Regular, u64::MAX / 2).as_bytes()).unwrap();
    });
    assert!(matches!(refused(&folder, &huge, Limits::default()), ArchiveError::Limit { what: "bytes", .. }));

    let limits = Limits { bytes: 10, files: 3, depth: 2 };
    let many = archive(folder.path(), |builder| ["a", "b", "c", "d"].iter().for_each(|name| add(builder, name, b"")));
    assert!(matches!(refused(&folder, &many, limits), ArchiveError::Limit { what: "files", most: 3, .. }));
    let sum = archive(folder.path(), |builder| ["a", "b"].iter().for_each(|name| add(builder, name, b"123456")));
    assert!(matches!(refused(&folder, &sum, limits), ArchiveError::Limit { what: "bytes", most: 10, .. }));
    let deep = archive(folder.path(), |builder| add(builder, "a/b/c", b"x"));
    assert!(matches!(refused(&folder, &deep, limits), ArchiveError::Entry { why: "too deep", .. }));
    let twice = archive(folder.path(), |builder| ["a", "a"].iter().for_each(|name| add(builder, name, b"x")));
    assert!(matches!(refused(&folder, &twice, limits), ArchiveError::Entry { why: "there twice", .. }));
    // A file where a folder must be.
    let both = archive(folder.path(), |builder| ["a", "a/b"].iter().for_each(|name| add(builder, name, b"x")));
    assert!(matches!(refused(&folder, &both, limits), ArchiveError::Io { .. }));

    let fine = archive(folder.path(), |builder| ["a", "b/c", "b/d"].iter().for_each(|name| add(builder, name, b"123")));
    unpack(&fine, &folder.path().join("out"), limits).unwrap();
    assert_eq!(fs::read(folder.path().join("out/b/c")).unwrap(), b"123");
}

#[test]
fn what_cannot_be_packed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out.tar");
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    let long = format!("{}/file", "sub/".repeat(80));
    for name in ["../file", "/etc/passwd", "missing", "sub", "", &long] {
        assert!(archive::pack(folder.path(), [name], &to).is_err(), "{name}");
        assert!(!to.exists());
    }
    // A name of two hundred bytes still fits.
    let name = format!("sub/{}/{}", "d".repeat(100), "f".repeat(90));
    fs::create_dir(folder.path().join("sub").join("d".repeat(100))).unwrap();
    fs::write(folder.path().join(&name), "x").unwrap();
    archive::pack(folder.path(), [name.as_str()], &to).unwrap();
    unpack(&to, &folder.path().join("out"), Limits::default()).unwrap();
    assert!(folder.path().join("out").join(name).exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the bytes are: an answer, no panic, nothing outside the folder.
    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..4096), changes in prop::collection::vec((0usize..3000, any::<u8>()), 0..12)) {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let random = inner.join("random.tar");
        fs::write(&random, &bytes).unwrap();
        let _ = unpack(&random, &inner.join("out"), Limits { bytes: 1 << 20, ..Limits::default() });
        // An honest one with some bytes changed.
        let honest = archive(&inner, |builder| ["a", "b/c"].iter().for_each(|name| add(builder, name, b"0123456789")));
        bytes = fs::read(honest).unwrap();
        changes.iter().filter(|(at, _)| *at < bytes.len()).collect::<Vec<_>>().into_iter().for_each(|(at, byte)| bytes[*at] = *byte);
        fs::write(&random, &bytes).unwrap();
        let _ = unpack(&random, &inner.join("out2"), Limits { bytes: 1 << 20, ..Limits::default() });
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
