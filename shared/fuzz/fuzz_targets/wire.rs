//! Any bytes: a message or an error, never a crash, and nothing allocated that is not there. What is read can be sent, and is read again.

#![no_main]

use kernelopt_shared::message::{Control, Pulse, Report, Task};
use kernelopt_shared::wire::{self, HEADER_BYTES, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    all(data);
    // A checksum is no secret: with one that fits, everything behind it is reached.
    if data.len() >= HEADER_BYTES {
        let mut sealed = data.to_vec();
        sealed[..6].copy_from_slice(b"KOPT\x01\0");
        let length = (sealed.len() - HEADER_BYTES) as u32;
        sealed[8..12].copy_from_slice(&length.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&sealed[..12]);
        hasher.update(&sealed[HEADER_BYTES..]);
        let sum = hasher.finalize().to_le_bytes();
        sealed[12..16].copy_from_slice(&sum);
        all(&sealed);
    }
});

fn all(data: &[u8]) {
    read::<Task>(data);
    read::<Report>(data);
    read::<Pulse>(data);
    read::<Control>(data);
}

fn read<M: Message + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(message) = wire::decode::<M>(data) else { return };
    // Sentences that are too long are cut when they are sent, once.
    let frame = wire::encode(&message).expect("what was read can be sent");
    let again = wire::decode::<M>(&frame.body).expect("what was sent can be read");
    let frame_again = wire::encode(&again).expect("what was read can be sent");
    assert_eq!(frame_again.body, frame.body);
}
