//! Server-sent events (HTML standard, section 9.2) as bytes: a stream is cut into events, and every event keeps the bytes it came as.
//!
//! What passes through is never written anew. However a stream arrives in pieces, the same events come out, and together they are the same
//! bytes.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// Most bytes of one event. The longest that a model sends is an answer in one piece.
pub const MOST_EVENT_BYTES: usize = 16 << 20;
/// A comment: it keeps middleboxes from cutting a quiet stream, and clients pass over it.
pub const HEARTBEAT: Bytes = Bytes::from_static(b": still here\n\n");
/// What ends a stream of the OpenAI dialect.
pub const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// An event has more than [`MOST_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {MOST_EVENT_BYTES} bytes")]
pub struct EventTooLong;

/// Cuts a stream into events.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The last piece that came, as far as it is not cut yet. Events that lie within it are slices of it.
    piece: Bytes,
    /// An event that began in an earlier piece; pieces are added until it has been cut off.
    begun: BytesMut,
    scan: Scan,
}

/// How far the event at hand was looked through.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes looked at.
    at: usize,
    /// Its last line, as far as it was looked at, is empty.
    line_is_empty: bool,
    /// It has a line that is not empty. Empty lines before that belong to it and say nothing.
    has_line: bool,
    /// The last byte was a carriage return: a line feed behind it is of the same line's end.
    after_return: bool,
}

impl Splitter {
    /// Takes the next piece. All events must have been taken out before.
    pub fn push(&mut self, piece: Bytes) {
        debug_assert!(self.piece.is_empty(), "events were not taken");
        if self.begun.is_empty() {
            self.piece = piece;
        } else {
            self.begun.extend_from_slice(&piece);
        }
    }

    /// The next whole event, its closing empty line included.
    ///
    /// # Errors
    /// It is too long.
    pub fn next_event(&mut self) -> Result<Option<Bytes>, EventTooLong> {
        let bytes = if self.begun.is_empty() { &self.piece[..] } else { &self.begun[..] };
        let found = self.scan.end_of_event(bytes);
        if self.scan.at > MOST_EVENT_BYTES {
            return Err(EventTooLong);
        }
        if !found {
            if self.begun.is_empty() {
                self.begun.extend_from_slice(&std::mem::take(&mut self.piece));
            }
            return Ok(None);
        }
        let length = std::mem::take(&mut self.scan).at;
        Ok(Some(if self.begun.is_empty() { self.piece.split_to(length) } else { self.begun.split_to(length).freeze() }))
    }

    /// True where the stream ended within an event.
    pub fn is_torn(&self) -> bool {
        self.scan.has_line
    }
}

impl Scan {
    /// Goes on from where it stopped; true once the event ends at [`Scan::at`].
    fn end_of_event(&mut self, bytes: &[u8]) -> bool {
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\n' if self.after_return => {
                    self.after_return = false;
                    self.at += 1;
                }
                b'\n' | b'\r' => {
                    self.at += 1;
                    self.after_return = byte == b'\r';
                    if self.has_line && self.line_is_empty {
                        // The line feed of a closing CR LF belongs here where it has come; else it leads the next event.
                        self.at += usize::from(self.after_return && bytes.get(self.at) == Some(&b'\n'));
                        return true;
                    }
                    self.line_is_empty = true;
                }
                _ => {
                    let rest = &bytes[self.at..];
                    self.at += memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    (self.line_is_empty, self.has_line, self.after_return) = (false, true, false);
                }
            }
        }
        false
    }
}

/// One event, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its `event` field.
    pub name: Option<&'a [u8]>,
    /// Its `data` fields, joined by line feeds; `None` for comments.
    pub data: Option<Cow<'a, [u8]>>,
}

impl<'a> Event<'a> {
    /// Reads the bytes of one event.
    pub fn read(bytes: &'a [u8]) -> Self {
        let mut event = Self::default();
        for line in bytes.split(|byte| matches!(byte, b'\n' | b'\r')) {
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            let (field, value) = match memchr::memchr(b':', line) {
                Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
                None => (line, &b""[..]),
            };
            match field {
                b"event" => event.name = Some(value),
                b"data" => match &mut event.data {
                    None => event.data = Some(Cow::Borrowed(value)),
                    Some(data) => {
                        let data = data.to_mut();
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                },
                _ => {}
            }
        }
        event
    }
}

/// Writes an event. `data` is JSON, which has no line breaks.
pub fn write(name: Option<&str>, data: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(data.len() + name.map_or(0, str::len) + 17);
    if let Some(name) = name {
        bytes.extend_from_slice(b"event: ");
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b"\n");
    }
    bytes.extend_from_slice(b"data: ");
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\n\n");
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Bytes> {
        let (mut splitter, mut events) = (Splitter::default(), Vec::new());
        for piece in pieces {
            splitter.push(Bytes::copy_from_slice(piece));
            while let Some(event) = splitter.next_event().unwrap() {
                events.push(event);
            }
        }
        events
    }

    type Said = (Option<Vec<u8>>, Option<Vec<u8>>);

    fn said(events: &[Bytes]) -> Vec<Said> {
        let owned = |event: &Bytes| {
            let Event { name, data } = Event::read(event);
            (name.map(<[u8]>::to_vec), data.map(Cow::into_owned))
        };
        events.iter().map(owned).collect()
    }

    #[test]
    fn events_end_at_empty_lines_of_any_kind() {
        for (stream, events) in [
            (&b"data: a\n\ndata: b\n\n"[..], 2),
            (b"data: a\r\n\r\ndata: b\r\n\r\n", 2),
            (b"data: a\r\rdata: b\r\r", 2),
            (b"\n\n\ndata: a\n\n\n\n", 1),
            (b"data: a\ndata: b\n", 0),
            (b": comment\n\n", 1),
        ] {
            assert_eq!(cut(&[stream]).len(), events, "{stream:?}");
        }
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        let event = Event::read(b"event: delta\r\nid: 1\r\ndata:{\"a\": 1,\r\ndata:  \"b\": 2}\r\n: comment\r\n\r\n");
        assert_eq!(event.name, Some(&b"delta"[..]));
        assert_eq!(event.data.as_deref(), Some(&b"{\"a\": 1,\n \"b\": 2}"[..]));
        assert_eq!(Event::read(&HEARTBEAT), Event::default());
        assert_eq!(Event::read(&DONE).data.as_deref(), Some(&b"[DONE]"[..]));
        assert_eq!(Event::read(b"data\n\n").data.as_deref(), Some(&b""[..]));
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = write(Some("error"), b"{}");
        assert_eq!(&bytes[..], b"event: error\ndata: {}\n\n");
        assert_eq!(said(&cut(&[&bytes])), [(Some(b"error".to_vec()), Some(b"{}".to_vec()))]);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut splitter = Splitter::default();
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let refused = (0..20).any(|_| {
            splitter.push(piece.clone());
            splitter.next_event().is_err()
        });
        assert!(refused && splitter.is_torn());
    }

    #[test]
    fn a_stream_that_ends_within_an_event_is_torn() {
        let mut splitter = Splitter::default();
        splitter.push(Bytes::from_static(b"data: a\n\ndata: b"));
        assert!(splitter.next_event().unwrap().is_some() && splitter.next_event().unwrap().is_none() && splitter.is_torn());
        splitter.push(Bytes::from_static(b"\n\n\n"));
        assert!(splitter.next_event().unwrap().is_some() && splitter.next_event().unwrap().is_none() && !splitter.is_torn());
    }

    fn streams() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"event: x".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just(b":".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
        ];
        proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(stream in streams(), cuts in proptest::collection::vec(0usize..200, 0..20)) {
            let whole = cut(&[&stream]);
            let bytewise: Vec<&[u8]> = stream.chunks(1).collect();
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).chain([0, stream.len()]).collect();
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
            prop_assert_eq!(said(&cut(&bytewise)), said(&whole));
            let events = cut(&pieces);
            prop_assert_eq!(said(&events), said(&whole));
            prop_assert!(stream.starts_with(&events.concat()), "the same bytes, up to an event that did not end");
        }
    }
}
