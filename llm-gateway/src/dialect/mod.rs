//! The two ways in which models are spoken to over HTTP, and each as the other.
//!
//! Both are served and both are spoken to upstream. Where caller and upstream speak the same one, bytes pass through: a request has its model's
//! name changed, an answer nothing. Where they do not, requests ([`to_anthropic`], [`to_openai`]), answers ([`answer`]), streams ([`stream`])
//! and errors ([`problem`], [`complaint`]) are translated.

pub mod answer;
pub mod complaint;
pub mod object;
pub mod problem;
pub mod reading;
pub mod request;
pub mod stream;
mod stream_to_anthropic;
mod stream_to_openai;
mod to_anthropic;
mod to_openai;
pub mod usage;

pub use problem::{Fault, Problem};
pub use request::Request;

pub use crate::settings::Dialect;

impl Dialect {
    /// Path of completions under an upstream's address, as the official clients build it.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Openai => "/chat/completions",
            Self::Anthropic => "/v1/messages",
        }
    }
}
