//! The client's errors, and what they mean to us.

use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};

use crate::broker::BrokerError;

/// The broker's refusal of a request, where that is what an error is: it costs the channel, nothing else.
pub(super) fn refusal(error: &lapin::Error) -> Option<AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(soft) => Some(soft.clone()),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}

/// An error of a request.
pub(super) fn broker(error: &lapin::Error) -> BrokerError {
    match refusal(error) {
        Some(AMQPSoftError::PRECONDITIONFAILED) => BrokerError::Topology(format!(
            "{error}. Something of that name was declared with other arguments: look at it (`rabbitmqctl list_queues name arguments`), let \
             its frames drain and delete it, or choose another prefix"
        )),
        Some(AMQPSoftError::ACCESSREFUSED) => BrokerError::Topology(format!(
            "{error}. Give the user the right to configure, write and read the prefix's names (`rabbitmqctl set_permissions`)"
        )),
        _ => BrokerError::Down(error.to_string()),
    }
}
