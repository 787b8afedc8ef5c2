//! Any message comes back; any bytes are an error or a message, quickly and without a panic.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{
    AgentId, AgentMode, Beat, Control, DeviceIdentity, DeviceKind, Failure, FailureKind, JobId, Lease, Pulse, Reply, Report, Task, Times,
    Work,
};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::Verdict;
use kernelopt_shared::wire::{self, HEADER_BYTES, Message, WireError};
use proptest::prelude::*;

use super::samples;

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 16]>().prop_map(Digest::from_bytes)
}

fn lease() -> impl Strategy<Value = Lease> {
    (any::<u64>(), any::<u64>()).prop_map(|(epoch, serial)| Lease { epoch, serial })
}

fn agent() -> impl Strategy<Value = AgentId> {
    "[a-zA-Z0-9_-]{1,60}/cuda[0-9]".prop_map(|name| AgentId::parse(&name).unwrap())
}

fn job() -> impl Strategy<Value = JobId> {
    "[a-z0-9]{1,40}".prop_map(|name| JobId::parse(&name).unwrap())
}

fn device() -> impl Strategy<Value = DeviceIdentity> {
    let kind = prop_oneof![Just(DeviceKind::Cpu), Just(DeviceKind::Cuda)];
    (kind, ".*", ".*", any::<u64>(), ".*", proptest::option::of(".*"), ".*", any::<u32>()).prop_map(
        |(kind, uuid, product, memory_bytes, architecture, partition, driver, threads)| DeviceIdentity {
            kind,
            uuid,
            product,
            memory_bytes,
            architecture,
            partition,
            driver,
            threads,
        },
    )
}

fn candidate() -> impl Strategy<Value = Candidate> {
    (".*", any::<bool>()).prop_map(|(source, launched)| {
        let sample = samples::candidate();
        Candidate { source, launch: sample.launch.clone().filter(|_| launched), ..sample }
    })
}

fn work() -> impl Strategy<Value = Work> {
    let depth = prop_oneof![Just(Depth::Screen), Just(Depth::Full), Just(Depth::Confirm)];
    prop_oneof![
        Just(Work::Profile),
        (digest(), candidate(), depth).prop_map(|(target, candidate, depth)| Work::Evaluate { target, candidate, depth }),
        digest().prop_map(|optimized| Work::CheckModel { optimized }),
        any::<u64>().prop_map(|busy_us| Work::Nothing { busy_us }),
    ]
}

fn task() -> impl Strategy<Value = Task> {
    (digest(), job(), lease(), any::<u64>(), digest(), work(), any::<u64>(), any::<u64>()).prop_map(
        |(id, job, lease, epoch, bundle, work, seed, run_limit_ms)| Task { id, job, lease, epoch, bundle, work, seed, run_limit_ms },
    )
}

fn reply() -> impl Strategy<Value = Reply> {
    let finite = || (-1e300..1e300f64).prop_map(|value| value);
    let judged = (finite(), finite(), finite()).prop_map(|(estimate, low, high)| {
        Reply::Judged(Box::new(samples::outcome(Verdict::Accepted { speedup: Interval { estimate, low, high } })))
    });
    let kind =
        prop_oneof![Just(FailureKind::Environment), Just(FailureKind::Baseline), Just(FailureKind::TimedOut), Just(FailureKind::Internal)];
    let failed = (kind, ".*", ".*").prop_map(|(kind, what, remedy)| Reply::Failed(Failure { kind, what, remedy }));
    prop_oneof![Just(Reply::Nothing), judged, ".*".prop_map(|reason| Reply::HandedBack { reason }), failed]
}

fn report() -> impl Strategy<Value = Report> {
    (digest(), job(), lease(), agent(), device(), reply(), any::<[u64; 3]>()).prop_map(
        |(task, job, lease, agent, device, reply, [waited_ms, fetch_ms, run_ms])| Report {
            task,
            job,
            lease,
            agent,
            device,
            reply,
            times: Times { waited_ms, fetch_ms, run_ms },
        },
    )
}

fn pulse() -> impl Strategy<Value = Pulse> {
    let mode = prop_oneof![Just(AgentMode::Working), Just(AgentMode::Draining), ".*".prop_map(|reason| AgentMode::Quarantined { reason })];
    let beat = (agent(), any::<u64>(), ".*", device(), any::<u64>(), mode, proptest::collection::vec(lease(), 0..50), 0.0..1.0f64)
        .prop_map(|(agent, incarnation, version, device, epoch, mode, holds, busy)| {
            Pulse::Beat(Beat { agent, incarnation, version, device, epoch, mode, capacity: incarnation as u32, holds, busy })
        });
    let started = (agent(), digest(), lease()).prop_map(|(agent, task, lease)| Pulse::Started { agent, task, lease });
    prop_oneof![beat, started, agent().prop_map(|agent| Pulse::Leaving { agent })]
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        any::<u64>().prop_map(|epoch| Control::Leading { epoch }),
        (digest(), lease()).prop_map(|(task, lease)| Control::Accepted { task, lease }),
        task().prop_map(|task| Control::Assigned(Box::new(task))),
        lease().prop_map(|lease| Control::Cancel { lease }),
        job().prop_map(|job| Control::CancelJob { job }),
        Just(Control::Drain),
        ".*".prop_map(|reason| Control::Quarantine { reason }),
        Just(Control::Readmit),
    ]
}

fn comes_back<M: Message + PartialEq + std::fmt::Debug>(message: &M) -> Result<(), TestCaseError> {
    let frame = wire::encode(message).unwrap();
    let back = wire::decode::<M>(&frame.body);
    prop_assert_eq!(back.as_ref(), Ok(message));
    Ok(())
}

/// One place of a message's bytes, changed.
fn flipped(body: &[u8], at: usize, bit: u8) -> Vec<u8> {
    let mut bytes = body.to_vec();
    let at = at % bytes.len();
    bytes[at] ^= 1 << bit;
    bytes
}

/// The bytes with a checksum that fits: what a peer could send, not what a wire does.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= HEADER_BYTES {
        let length = (bytes.len() - HEADER_BYTES) as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[HEADER_BYTES..]);
        let sum = hasher.finalize().to_le_bytes();
        bytes[12..16].copy_from_slice(&sum);
    }
    bytes
}

/// Whatever is read is a message that can be sent.
fn read_as_anything(bytes: &[u8]) {
    fn sendable<M: Message>(message: Result<M, WireError>) {
        if let Ok(message) = message {
            wire::encode(&message).unwrap();
        }
    }
    sendable(wire::decode::<Task>(bytes));
    sendable(wire::decode::<Report>(bytes));
    sendable(wire::decode::<Pulse>(bytes));
    sendable(wire::decode::<Control>(bytes));
}

proptest! {
    #[test]
    fn any_task_comes_back(task in task()) {
        comes_back(&task)?;
    }

    #[test]
    fn any_report_comes_back(report in report()) {
        comes_back(&report)?;
    }

    #[test]
    fn any_pulse_comes_back(pulse in pulse()) {
        comes_back(&pulse)?;
    }

    #[test]
    fn any_control_comes_back(control in control()) {
        comes_back(&control)?;
    }

    #[test]
    fn any_bytes_are_an_error_or_a_message(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read_as_anything(&bytes);
    }

    /// Random bytes never have the magic: here they have everything but sense.
    #[test]
    fn any_payload_is_an_error_or_a_message(kind in 1u8..=5, payload in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = b"KOPT\x01\0".to_vec();
        bytes.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&payload);
        read_as_anything(&resealed(bytes));
    }

    /// Any single bit that changes on the way is seen.
    #[test]
    fn a_flipped_bit_is_seen(report in report(), at in any::<usize>(), bit in 0u8..8) {
        let frame = wire::encode(&report).unwrap();
        prop_assert!(wire::decode::<Report>(&flipped(&frame.body, at, bit)).is_err());
    }

    /// And one that a peer changed and sealed is an error or another message.
    #[test]
    fn a_forged_bit_is_harmless(task in task(), at in any::<usize>(), bit in 0u8..8) {
        let frame = wire::encode(&task).unwrap();
        read_as_anything(&resealed(flipped(&frame.body, at, bit)));
    }

    #[test]
    fn a_torn_message_is_seen(control in control(), at in any::<usize>()) {
        let frame = wire::encode(&control).unwrap();
        let at = at % frame.body.len();
        let torn = matches!(wire::decode::<Control>(&frame.body[..at]), Err(WireError::Length { .. } | WireError::Foreign));
        prop_assert!(torn);
        let longer = [&frame.body[..], b"\0"].concat();
        let torn = matches!(wire::decode::<Control>(&longer), Err(WireError::Length { .. }));
        prop_assert!(torn);
    }
}
