use super::sealed::Payload as _;
use super::*;

#[test]
fn a_frozen_type_has_no_attributes() {
    for source in v1::SOURCES {
        for forbidden in ["#[serde", "serde(", "serde_json", "()>", "PhantomData"] {
            assert!(!source.contains(forbidden), "{forbidden} in a frozen type:\n{source}");
        }
    }
}

/// The documented layout, by hand.
#[test]
fn the_envelope_is_as_documented() {
    let sealed = envelope::seal(1, Kind::Pulse, b"abc");
    assert_eq!(sealed[..12], *b"KOPT\x01\0\x03\0\x03\0\0\0");
    let mut summed = sealed[..12].to_vec();
    summed.extend_from_slice(b"abc");
    assert_eq!(sealed[12..16], crc32fast::hash(&summed).to_le_bytes());
    assert_eq!(&sealed[16..], b"abc");
    assert_eq!(envelope::open(&sealed), Ok((Header { version: 1, kind: 3 }, b"abc".as_slice())));
}

#[test]
fn another_version_and_another_kind_are_told_apart() {
    let frame = encode(&Control::Drain).unwrap();
    let payload = &frame.body[HEADER_BYTES..];
    let later = envelope::seal(2, Kind::Control, payload);
    assert_eq!(decode::<Control>(&later), Err(WireError::Version { version: 2, kind: 4 }));
    assert_eq!(Header::of(&later), Ok(Header { version: 2, kind: 4 }));
    assert_eq!(decode::<Task>(&frame.body), Err(WireError::Unexpected { found: Kind::Control, wanted: Kind::Task }));

    let mut unknown = envelope::seal(1, Kind::Control, payload);
    unknown[6] = 9;
    let sum = {
        let mut summed = unknown[..12].to_vec();
        summed.extend_from_slice(payload);
        crc32fast::hash(&summed).to_le_bytes()
    };
    unknown[12..16].copy_from_slice(&sum);
    assert_eq!(decode::<Control>(&unknown), Err(WireError::Kind { version: 1, kind: 9 }));
}

/// A payload in a true envelope, as only a peer could send it.
fn hostile<M: Message>(payload: &[u8]) -> Result<M, WireError> {
    decode(&envelope::seal(VERSION, M::KIND, payload))
}

#[test]
fn a_length_that_nobody_wrote_is_not_allocated() {
    for length in [1u64 << 20, 1 << 40, u64::MAX / 2, u64::MAX] {
        // Variant 2 of a pulse is `Leaving`, which begins with a string.
        let mut payload = 2u32.to_le_bytes().to_vec();
        payload.extend_from_slice(&length.to_le_bytes());
        assert!(matches!(hostile::<Pulse>(&payload), Err(WireError::Payload { .. })), "{length}");
        // A report begins with a task's hash and the name of a job.
        assert!(hostile::<Report>(&[&[0u8; 16], length.to_le_bytes().as_slice()].concat()).is_err(), "{length}");
    }
}

/// A beat's leases are the only sequence: each costs sixteen bytes, so no count is larger than the payload.
#[test]
fn a_count_of_elements_ends_with_the_payload() {
    let beat = samples::beat(vec![]);
    let payload = beat.write().unwrap();
    let at = payload.len() - 16;
    assert_eq!(payload[at..at + 8], [0; 8], "the count of leases stands before the busy share");
    let mut forged = payload.clone();
    forged[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let begun = std::time::Instant::now();
    assert!(matches!(hostile::<Pulse>(&forged), Err(WireError::Payload { .. })));
    assert!(begun.elapsed() < std::time::Duration::from_secs(1));
}

#[test]
fn nothing_may_follow_or_be_missing() {
    let payload = samples::beat(vec![]).write().unwrap();
    let longer = [payload.as_slice(), &[0]].concat();
    assert!(matches!(hostile::<Pulse>(&longer), Err(WireError::Payload { what, .. }) if what.contains("left over")));
    for end in 0..payload.len() {
        assert!(hostile::<Pulse>(&payload[..end]).is_err(), "{end}");
    }
}

#[test]
fn variants_that_are_not_there_yet_are_refused() {
    assert!(hostile::<Control>(&8u32.to_le_bytes()).is_err());
    assert_eq!(hostile::<Control>(&7u32.to_le_bytes()), Ok(Control::Readmit));
    assert!(hostile::<Pulse>(&3u32.to_le_bytes()).is_err());
}

#[test]
fn a_name_with_a_path_in_it_is_refused() {
    for name in ["../../etc", "", "a b", &"x".repeat(81)] {
        let mut payload = 2u32.to_le_bytes().to_vec();
        payload.extend_from_slice(&(name.len() as u64).to_le_bytes());
        payload.extend_from_slice(name.as_bytes());
        assert!(matches!(hostile::<Pulse>(&payload), Err(WireError::Payload { .. })), "{name:?}");
    }
}

#[test]
fn what_is_too_large_is_neither_sent_nor_read() {
    let lease = crate::message::Lease { epoch: 1, serial: 2 };
    let many = samples::beat(vec![lease; 5000]);
    assert!(matches!(encode(&many), Err(WireError::TooLarge { kind: Kind::Pulse, .. })));
    let mut body = envelope::seal(VERSION, Kind::Pulse, &vec![0; Kind::Pulse.limit_bytes()]);
    assert!(matches!(decode::<Pulse>(&body), Err(WireError::Payload { .. })));
    body = envelope::seal(VERSION, Kind::Report, &vec![0; Kind::Pulse.limit_bytes() + 1]);
    body[6] = Kind::Pulse as u8;
    let sum = crc32fast::hash(&[&body[..12], &body[16..]].concat()).to_le_bytes();
    body[12..16].copy_from_slice(&sum);
    assert!(matches!(decode::<Pulse>(&body), Err(WireError::TooLarge { kind: Kind::Pulse, .. })));
}

#[test]
fn a_number_without_a_word_in_json_is_not_sent() {
    use crate::task::{BandwidthCurve, ModelProfile};
    let bandwidth = BandwidthCurve(vec![(1, f64::NAN)]);
    let report = samples::report(crate::message::Reply::Profiled(ModelProfile { graphs: vec![], bandwidth, device: String::new() }));
    assert!(matches!(encode(&report), Err(WireError::Payload { kind: Kind::Report, .. })));
}

#[test]
fn a_parsers_words_are_bounded() {
    let error = WireError::payload(Kind::Task, "ü".repeat(10_000));
    assert!(error.to_string().len() < 600);
}

mod samples {
    use crate::digest::Digest;
    use crate::message::*;

    fn device() -> DeviceIdentity {
        DeviceIdentity {
            kind: DeviceKind::Cpu,
            uuid: "u".into(),
            product: "p".into(),
            memory_bytes: 0,
            architecture: "x86_64".into(),
            partition: None,
            driver: String::new(),
            threads: 2,
        }
    }

    pub fn beat(holds: Vec<Lease>) -> Pulse {
        Pulse::Beat(Beat {
            agent: AgentId::parse("host/cpu0").unwrap(),
            incarnation: 7,
            version: "0.1.0".into(),
            device: device(),
            epoch: 3,
            mode: AgentMode::Working,
            capacity: 2,
            holds,
            busy: 0.5,
        })
    }

    pub fn report(reply: Reply) -> Report {
        Report {
            task: Digest::of([]),
            job: JobId::parse("j").unwrap(),
            lease: Lease { epoch: 1, serial: 1 },
            agent: AgentId::parse("host/cpu0").unwrap(),
            device: device(),
            reply,
            times: Times::default(),
        }
    }
}
