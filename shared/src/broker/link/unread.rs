use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::warn;

use crate::wire::{Kind, WireError};

/// Is told of every frame that cannot be read.
pub type OnUnread = Arc<dyn Fn(Unread<'_>) + Send + Sync>;

/// A frame that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct Unread<'a> {
    /// What was to come.
    pub expected: Kind,
    /// Why it is none; [`WireError::reason`] is a bounded label.
    pub error: &'a WireError,
}

/// Kinds and versions that people are told of before it falls silent; the count goes on.
const TOLD_MOST: usize = 64;

/// Tells people once per kind and version, and the counter each time.
pub(super) struct UnreadLog {
    on_unread: OnUnread,
    told: Mutex<HashSet<News>>,
}

/// What was to come, why it is none, and the version and kind that it has.
type News = (&'static str, &'static str, Option<(u16, u16)>);

impl UnreadLog {
    pub(super) fn new(on_unread: OnUnread) -> Self {
        Self { on_unread, told: Mutex::default() }
    }

    pub(super) fn note(&self, expected: Kind, error: &WireError) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = told.len() < TOLD_MOST && told.insert((expected.name(), error.reason(), error.version_and_kind()));
        drop(told);
        if news {
            warn!(%expected, %error, "a frame that cannot be read goes to the dead letters; more of its kind are only counted");
        }
        (self.on_unread)(Unread { expected, error });
    }
}
