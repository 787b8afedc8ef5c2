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
            "{error}. The user must configure and read the names that begin with the prefix, and write them and amq.default, by which tasks and \
             reports reach their queues: `rabbitmqctl set_permissions -p VHOST USER '^PREFIX\\.' '^(PREFIX\\.|amq\\.default$)' '^PREFIX\\.'`"
        )),
        _ => BrokerError::Down(error.to_string()),
    }
}
