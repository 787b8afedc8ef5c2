//! Names of jobs, keys, models, upstreams and credentials: short, printable, and never mixed up.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest name, in bytes.
pub const MOST_NAME_BYTES: usize = 100;

/// A name that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {what} is 1 to 100 of a-z, A-Z, 0-9 and - _ . : @ +{and}")]
pub struct NameError {
    what: &'static str,
    and: &'static str,
}

fn check(what: &'static str, slash: bool, text: &str) -> Result<(), NameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+".contains(&byte) || (slash && byte == b'/');
    let fits = (1..=MOST_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain);
    fits.then_some(()).ok_or(NameError { what, and: if slash { " and /" } else { "" } })
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $what:literal, slash: $slash:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes a name from outside.
            ///
            /// # Errors
            /// It is empty, too long, or has other characters than a name has.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                check($what, $slash, text).map(|()| Self(text.into()))
            }

            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

names! {
    /// A job, as the caller names it. Two keys' jobs of one name are two jobs.
    JobName = "job's name", slash: true;
    /// Who calls: the name of an inbound key.
    KeyName = "key's name", slash: false;
    /// A model, by the name that callers use.
    ModelName = "model's name", slash: true;
    /// A provider's end point.
    UpstreamName = "upstream's name", slash: false;
    /// One of the keys that an upstream has given us.
    CredentialName = "credential's name", slash: false;
}

/// One way to a model: an upstream's model by one of its credentials. Prints as `UPSTREAM/CREDENTIAL/MODEL`, where the last is the
/// upstream's own name of the model.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeploymentId(Arc<str>);

impl DeploymentId {
    /// The way to `model` by `credential` of `upstream`.
    pub fn new(upstream: &UpstreamName, credential: &CredentialName, model: &str) -> Self {
        Self(format!("{upstream}/{credential}/{model}").into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeploymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DeploymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        assert_eq!(JobName::parse("tune/softmax-1").unwrap().as_str(), "tune/softmax-1");
        for bad in ["", "a b", "a\n", "ä", &"x".repeat(101)] {
            assert!(JobName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(KeyName::parse("a/b").unwrap_err().to_string().contains("key's name"));
    }
}
