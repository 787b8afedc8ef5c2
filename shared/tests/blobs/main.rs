//! Blobs on each backend, and a cache of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod buckets;
mod cache;
mod coordinator;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use coordinator::Fault;
use kernelopt_shared::blobs::{BlobError, BlobOptions, Blobs};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::secret::SecretString;

fn open(address: &str) -> Blobs {
    Blobs::open(&BlobOptions::new(address)).unwrap()
}

fn options(address: &str, token: &str) -> BlobOptions {
    BlobOptions { token: Some(SecretString::from(token)), deadline: Duration::from_secs(2), ..BlobOptions::new(address) }
}

/// Bytes whose pattern does not fit the parts of an upload, so that parts in another order are other bytes.
fn bytes(length: usize) -> Bytes {
    let pattern: Vec<u8> = (0..(1usize << 16) - 7).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut bytes = pattern.repeat(length / pattern.len() + 1);
    bytes.truncate(length);
    bytes.into()
}

fn of(bytes: &[u8]) -> Digest {
    Digest::of([bytes])
}

async fn whole(blobs: &Blobs, of: Digest) -> Bytes {
    blobs.get(of, u64::MAX).await.unwrap()
}

/// What every backend does.
pub async fn conforms(blobs: &Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    // Empty, small, a part and its neighbours, some parts and a rest.
    for length in [0, 1, 1000, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, (20 << 20) + 3] {
        let content = bytes(length);
        let digest = of(&content);
        assert_eq!(blobs.size(digest).await.unwrap(), None, "{length}");
        fs::write(&file, &content).unwrap();
        assert_eq!(blobs.put_file(&file).await.unwrap(), digest);
        assert_eq!(blobs.size(digest).await.unwrap(), Some(length as u64));
        assert!(whole(blobs, digest).await == content, "{length}");
        assert_eq!(blobs.put(content).await.unwrap(), digest, "again");
    }
    let text = Bytes::from_static(b"a target");
    let digest = blobs.put(text.clone()).await.unwrap();
    assert!(blobs.exists(digest).await.unwrap());
    assert_eq!(blobs.get(digest, 8).await.unwrap(), text);
    assert!(matches!(blobs.get(digest, 7).await, Err(BlobError::TooLarge { bytes: 8, most: 7, .. })));
    assert!(matches!(blobs.get(of(b"nobody wrote this"), 100).await, Err(BlobError::Missing(_))));
    assert!(matches!(blobs.put_file(&folder.path().join("none")).await, Err(BlobError::Io { .. })));
}

#[tokio::test]
async fn memory_conforms() {
    conforms(&open("memory:")).await;
}

#[tokio::test]
async fn a_folder_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conforms(&open(folder.path().join("new/blobs").to_str().unwrap())).await;
    let by_url = open(&format!("file://{}", folder.path().join("new/blobs").display()));
    assert_eq!(whole(&by_url, of(b"a target")).await, "a target");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_conforms() {
    let (address, _) = coordinator::start("token").await;
    conforms(&Blobs::open(&options(&address, "token")).unwrap()).await;
}

#[tokio::test]
async fn a_folder_outlives_the_process_and_its_faults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let content = bytes(5000);
    let digest = open(path).put(content.clone()).await.unwrap();
    let blobs = open(path);
    assert_eq!(whole(&blobs, digest).await, content);

    let name = digest.to_string();
    let file = folder.path().join(&name[..2]).join(&name);
    let mut changed = content.to_vec();
    changed[77] ^= 1;
    fs::write(&file, changed).unwrap();
    assert!(matches!(blobs.get(digest, u64::MAX).await, Err(BlobError::Corrupt(of)) if of == digest));
    // Cut by a full disk or a lost one: writing it again mends it.
    fs::write(&file, &content[..100]).unwrap();
    assert!(matches!(blobs.get(digest, u64::MAX).await, Err(BlobError::Corrupt(_))));
    assert_eq!(blobs.put(content.clone()).await.unwrap(), digest);
    assert_eq!(whole(&blobs, digest).await, content);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(blobs.get(digest, u64::MAX).await.is_err());
}

#[tokio::test]
async fn many_write_one_blob() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = open(folder.path().to_str().unwrap());
    let content = bytes(1 << 20);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn({
                let (blobs, content) = (blobs.clone(), content.clone());
                async move { (blobs.put(content.clone()).await.unwrap(), whole(&blobs, of(&content)).await == content) }
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), (of(&content), true));
    }
    // One file and no rest of another.
    let name = of(&content).to_string();
    assert_eq!(fs::read_dir(folder.path().join(&name[..2])).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_coordinator_is_asked_again() {
    let (address, server) = coordinator::start("token").await;
    let blobs = Blobs::open(&options(&address, "token")).unwrap();
    *server.fault.lock().unwrap() = Some(Fault::Busy(3));
    let digest = blobs.put(bytes(100)).await.unwrap();
    assert_eq!(*server.requests.lock().unwrap(), 3 + 2);
    *server.fault.lock().unwrap() = Some(Fault::Busy(100));
    let error = blobs.get(digest, 100).await.unwrap_err();
    assert!(matches!(&error, BlobError::Unavailable(words) if words.contains("503") && words.contains("busy")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final_and_tells_no_secret() {
    let (address, server) = coordinator::start("token").await;
    let wrong = options(&address, "hunter2");
    let blobs = Blobs::open(&wrong).unwrap();
    let error = blobs.put(bytes(100)).await.unwrap_err();
    assert!(matches!(&error, BlobError::Refused(words) if words.contains("401")), "{error}");
    assert!(!error.is_transient());
    assert_eq!(*server.requests.lock().unwrap(), 1);
    assert!(!format!("{wrong:?} {blobs:?} {error} {error:?}").contains("hunter2"));
    let error = Blobs::open(&BlobOptions::new(address.replace("://", "://me:hunter2@"))).unwrap_err();
    assert!(matches!(error, BlobError::Options(_)) && !format!("{error} {error:?}").contains("hunter2"), "{error}");

    *server.fault.lock().unwrap() = Some(Fault::TooLarge);
    let error = Blobs::open(&options(&address, "token")).unwrap().put(bytes(100)).await.unwrap_err();
    assert!(matches!(&error, BlobError::Rejected(words) if words.contains("at most 5 bytes")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_coordinator_says_is_held_against_the_name() {
    let (address, server) = coordinator::start("token").await;
    let blobs = Blobs::open(&options(&address, "token")).unwrap();
    let digest = blobs.put(bytes(100_000)).await.unwrap();
    let told = async |fault| {
        *server.fault.lock().unwrap() = Some(fault);
        blobs.get(digest, u64::MAX).await.unwrap_err()
    };
    assert!(matches!(told(Fault::OtherBytes).await, BlobError::Corrupt(_)));
    let torn = told(Fault::TornAnswer).await;
    assert!(torn.is_transient(), "{torn}");
    assert!(matches!(told(Fault::NoLength).await, BlobError::Unavailable(_)));
    let asked = Instant::now();
    let silent = told(Fault::Silence).await;
    assert!(matches!(silent, BlobError::TimedOut(_)), "{silent}");
    assert!(asked.elapsed() < Duration::from_secs(5));
    *server.fault.lock().unwrap() = None;
    assert_eq!(whole(&blobs, digest).await, bytes(100_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_upload_leaves_nothing() {
    let (address, server) = coordinator::start("token").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, bytes(24 << 20)).unwrap();
    // A network that breaks on the way.
    let port: u16 = address.split(':').nth(2).unwrap().split('/').next().unwrap().parse().unwrap();
    let proxy = kernelopt_test_servers::Proxy::to(port).unwrap();
    let through = address.replace(&port.to_string(), &proxy.port().to_string());
    let blobs = Blobs::open(&options(&through, "token")).unwrap();
    proxy.delay(Duration::from_millis(5));
    let sending = tokio::spawn({
        let (blobs, file) = (blobs.clone(), file.clone());
        async move { blobs.put_file(&file).await }
    });
    while *server.requests.lock().unwrap() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.cut();
    let error = sending.await.unwrap().unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(server.blobs.lock().unwrap().is_empty());
    proxy.delay(Duration::ZERO);
    let digest = blobs.put_file(&file).await.unwrap();
    assert_eq!(server.blobs.lock().unwrap()[&digest.to_string()].len(), 24 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_said_soon() {
    let blobs = Blobs::open(&options("http://127.0.0.1:9/v1/blobs", "token")).unwrap();
    let asked = Instant::now();
    let error = blobs.size(of(b"")).await.unwrap_err();
    assert!(matches!(&error, BlobError::Unavailable(words) if words.contains("refused")), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(4));
}

#[test]
fn an_address_that_is_none_is_said() {
    for address in ["", "ftp://host/x", "s3:///prefix", "gs://", "http://", "file:relative", "file://host/x"] {
        let error = Blobs::open(&BlobOptions::new(address)).err().unwrap_or_else(|| panic!("{address} was opened"));
        assert!(matches!(error, BlobError::Options(_)), "{address}: {error}");
    }
    let error = Blobs::open(&BlobOptions::new("/dev/null/blobs")).unwrap_err();
    assert!(matches!(&error, BlobError::Io { path, .. } if path == Path::new("/dev/null/blobs")), "{error}");
}
