use std::fmt;

/// Kinds of message. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// [`crate::message::Task`].
    Task = 1,
    /// [`crate::message::Report`].
    Report = 2,
    /// [`crate::message::Pulse`].
    Pulse = 3,
    /// [`crate::message::Control`].
    Control = 4,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Task, Self::Report, Self::Pulse, Self::Control];

    /// The kind with a number.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }

    /// `task`, `report`, `pulse` or `control`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Report => "report",
            Self::Pulse => "pulse",
            Self::Control => "control",
        }
    }

    /// Size of the largest payload. A task holds a candidate's source, a report the samples of a whole model; RabbitMQ 4 takes 16 MiB.
    pub const fn limit_bytes(self) -> usize {
        match self {
            Self::Task => 4 << 20,
            Self::Report => 8 << 20,
            Self::Pulse => 64 << 10,
            // A control may hold a task.
            Self::Control => (4 << 20) + (64 << 10),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
