//! A cache on the agent's disk.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kernelopt_shared::blobs::{BlobCache, BlobError, Blobs};
use kernelopt_shared::digest::Digest;

use super::{bytes, coordinator, of, open, options};

/// Blobs in `folder`, apart from what is being fetched.
fn held(folder: &Path) -> Vec<Digest> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut held: Vec<_> = names.filter_map(|name| Digest::parse(&name)).collect();
    held.sort();
    held
}

fn sorted(mut digests: Vec<Digest>) -> Vec<Digest> {
    digests.sort();
    digests
}

/// As if last used so long ago.
fn age(folder: &Path, digest: Digest, seconds: u64) {
    let file = fs::File::open(folder.join(digest.to_string())).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[tokio::test]
async fn the_least_recently_used_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = open("memory:");
    let mut stored = Vec::new();
    for length in [400, 401, 402, 403] {
        stored.push(blobs.put(bytes(length)).await.unwrap());
    }
    let cache = BlobCache::open(blobs, folder.path(), 1300).unwrap();
    for (digest, seconds) in stored.iter().zip([30, 20, 10]) {
        drop(cache.file(*digest, 1000).await.unwrap());
        age(folder.path(), *digest, seconds);
    }
    assert_eq!(held(folder.path()), sorted(stored[..3].to_vec()));
    // The oldest is used again: the second goes.
    drop(cache.file(stored[0], 1000).await.unwrap());
    drop(cache.file(stored[3], 1000).await.unwrap());
    assert_eq!(held(folder.path()), sorted(vec![stored[0], stored[2], stored[3]]));
    assert!(matches!(cache.file(stored[3], 402).await, Err(BlobError::TooLarge { bytes: 403, most: 402, .. })));
    assert!(matches!(cache.file(of(b"none"), 402).await, Err(BlobError::Missing(_))));
}

#[tokio::test]
async fn what_is_in_use_stays() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = open("memory:");
    let (one, other) = (blobs.put(bytes(600)).await.unwrap(), blobs.put(bytes(700)).await.unwrap());
    let large = blobs.put(bytes(2000)).await.unwrap();
    let cache = BlobCache::open(blobs.clone(), folder.path(), 1000).unwrap();
    let used = cache.file(one, 1000).await.unwrap();
    drop(cache.file(other, 1000).await.unwrap());
    assert_eq!(held(folder.path()), sorted(vec![one, other]), "over the limit rather than without a file in use");
    // By another process too: its cache is another value.
    let elsewhere = BlobCache::open(blobs, folder.path(), 1000).unwrap();
    drop(elsewhere.file(other, 1000).await.unwrap());
    assert_eq!(fs::read(used.path()).unwrap(), bytes(600));
    drop(used);
    let third = elsewhere.file(other, 1000).await.unwrap();
    let mut text = Vec::new();
    third.file().read_to_end(&mut text).unwrap();
    assert_eq!(text, bytes(700));
    assert!(matches!(cache.file(large, 5000).await, Err(BlobError::TooLarge { bytes: 2000, most: 1000, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_want_few() {
    let folder = tempfile::tempdir().unwrap();
    let (address, server) = coordinator::start("token").await;
    let blobs = Blobs::open(&options(&address, "token")).unwrap();
    let mut stored = Vec::new();
    for length in 0..6 {
        stored.push(blobs.put(bytes(10_000 + length)).await.unwrap());
    }
    *server.requests.lock().unwrap() = 0;
    // Room for half of them, and two caches on one folder, as two processes have.
    let caches = [0, 1].map(|_| BlobCache::open(blobs.clone(), folder.path(), 30_010).unwrap());
    let tasks: Vec<_> = (0..16usize)
        .map(|task| {
            let (cache, stored) = (caches[task % 2].clone(), stored.clone());
            tokio::spawn(async move {
                for step in 0..20 {
                    let which = (task + step * 7) % stored.len();
                    let cached = cache.file(stored[which], 20_000).await.unwrap();
                    assert_eq!(of(&fs::read(cached.path()).unwrap()), stored[which]);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let total: u64 = held(folder.path()).iter().map(|digest| fs::metadata(folder.path().join(digest.to_string())).unwrap().len()).sum();
    assert!(total <= 6 * 10_010, "{total}");
    assert_eq!(fs::read_dir(folder.path().join("parts")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (address, server) = coordinator::start("token").await;
    let blobs = Blobs::open(&options(&address, "token")).unwrap();
    let digest = blobs.put(bytes(100_000)).await.unwrap();
    let cache = BlobCache::open(blobs, folder.path(), 1 << 20).unwrap();
    for fault in [coordinator::Fault::TornAnswer, coordinator::Fault::OtherBytes] {
        *server.fault.lock().unwrap() = Some(fault);
        assert!(cache.file(digest, 1 << 20).await.is_err());
        assert_eq!(held(folder.path()), []);
        assert_eq!(fs::read_dir(folder.path().join("parts")).unwrap().count(), 0);
    }
    *server.fault.lock().unwrap() = None;
    assert_eq!(fs::read(cache.file(digest, 1 << 20).await.unwrap().path()).unwrap(), bytes(100_000));

    // What a killed process left; one that is still being written is locked.
    let (dead, live) = (folder.path().join("parts/dead"), folder.path().join("parts/live"));
    fs::write(&dead, "half").unwrap();
    let writing = fs::File::create(&live).unwrap();
    writing.lock_shared().unwrap();
    BlobCache::open(open("memory:"), folder.path(), 1 << 20).unwrap();
    assert!(!dead.exists() && live.exists());
}
