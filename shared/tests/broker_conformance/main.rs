//! One suite for every broker: in memory, with bad luck, RabbitMQ; and what only one of them can show.
//!
//! RabbitMQ's tests start private servers of their own. `KERNELOPT_TESTS_WITHOUT_RABBITMQ=1` leaves them out, and nothing else does.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod faults;
mod link;
mod memory;
mod rabbit;
mod stand;
mod suite;
