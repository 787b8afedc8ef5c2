//! Bytes of version 1, as some program has sent them: every later program reads them, for ever.
//!
//! A sample without a file gets one with `KERNELOPT_GOLDEN=write`; a file is never written over.

use std::fmt::Debug;
use std::path::PathBuf;
use std::{env, fs};

use kernelopt_shared::wire::{self, HEADER_BYTES, Message};

use super::samples;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.bin"))
}

fn golden(name: &str, now: &[u8]) -> Vec<u8> {
    let path = file(name);
    if !path.exists() && env::var_os("KERNELOPT_GOLDEN").is_some_and(|word| word == "write") {
        fs::write(&path, now).unwrap();
    }
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every sample is read from its file. What holds no document is also written as it was, bit for bit.
fn check<M: Message + PartialEq + Debug>(samples: Vec<(&'static str, M)>, holds_document: impl Fn(&str) -> bool) {
    for (name, sample) in samples {
        let now = wire::encode(&sample).unwrap();
        let then = golden(name, &now.body);
        assert_eq!(wire::decode::<M>(&then).as_ref(), Ok(&sample), "{name}");
        assert_eq!(wire::decode::<M>(&now.body).as_ref(), Ok(&sample), "{name}");
        if !holds_document(name) {
            assert_eq!(now.body, then, "{name}: the frozen version is written in another way");
        }
        assert_eq!(now.kind, M::KIND.name());
    }
}

#[test]
fn tasks_are_read_for_ever() {
    check(samples::tasks(), |name| ["task-screen", "task-full", "task-confirm"].contains(&name));
}

#[test]
fn reports_are_read_for_ever() {
    check(samples::reports(), |name| ["profiled", "judged", "checked"].iter().any(|word| name.contains(word)));
}

#[test]
fn pulses_are_read_for_ever() {
    check(samples::pulses(), |_| false);
}

#[test]
fn controls_are_read_for_ever() {
    check(samples::controls(), |name| name == "control-assigned");
}

/// The number of a variant stands first in a pulse and in a control: variants are appended only.
#[test]
fn variants_keep_their_numbers() {
    let number = |name: &str| {
        let bytes = fs::read(file(name)).unwrap();
        u32::from_le_bytes(bytes[HEADER_BYTES..HEADER_BYTES + 4].try_into().unwrap())
    };
    let controls: Vec<u32> = samples::controls().iter().map(|(name, _)| number(name)).collect();
    assert_eq!(controls, (0..8).collect::<Vec<_>>());
    let pulses = ["pulse-beat-working", "pulse-started", "pulse-leaving"].map(number);
    assert_eq!(pulses, [0, 1, 2]);
}

#[test]
fn every_golden_file_has_its_sample() {
    let names = |list: Vec<&'static str>| list;
    let mut known = names(samples::tasks().into_iter().map(|(name, _)| name).collect());
    known.extend(samples::reports().into_iter().map(|(name, _)| name));
    known.extend(samples::pulses().into_iter().map(|(name, _)| name));
    known.extend(samples::controls().into_iter().map(|(name, _)| name));
    for entry in fs::read_dir(file("").parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(known.contains(&name), "{name} is decoded by no test");
    }
}
