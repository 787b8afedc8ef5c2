//! Any bytes as an upstream's stream: never a crash, the same events however they are cut, and what passes through is the same bytes.

#![no_main]

use bytes::Bytes;
use kernelopt_llm_gateway::dialect::Dialect;
use kernelopt_llm_gateway::dialect::reading::Reading;
use kernelopt_llm_gateway::dialect::stream::Passage;
use kernelopt_llm_gateway::sse::{Event, Splitter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((cut, stream)) = data.split_first() else { return };
    let whole = events(stream, stream.len());
    let pieces = events(stream, usize::from(*cut % 16) + 1);
    let read = |events: &[Bytes]| events.iter().map(|event| format!("{:?}", Event::read(event))).collect::<Vec<_>>();
    assert_eq!(read(&whole), read(&pieces));
    assert!(stream.starts_with(&whole.concat()));
    for from in [Dialect::Openai, Dialect::Anthropic] {
        for to in [Dialect::Openai, Dialect::Anthropic] {
            let (mut reading, mut passage, mut out) = (Reading::new(from), Passage::new(from, to, true), Vec::new());
            for event in &whole {
                let Ok(said) = reading.read(event) else { break };
                passage.pass(event, &said, reading.usage(), &mut out);
            }
        }
    }
});

fn events(stream: &[u8], piece: usize) -> Vec<Bytes> {
    let (mut splitter, mut events) = (Splitter::default(), Vec::new());
    for piece in stream.chunks(piece.max(1)) {
        splitter.push(Bytes::copy_from_slice(piece));
        while let Ok(Some(event)) = splitter.next_event() {
            events.push(event);
        }
    }
    events
}
