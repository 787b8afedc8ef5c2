//! Constants of a meaning.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number in a constant. JSON has no infinity, so it may be the text `inf`, `-inf` or `nan`; a float always has a point
/// or an exponent, an integer never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// An integer or boolean constant.
    Int(i64),
    /// A floating-point constant.
    Float(f64),
}

impl Scalar {
    /// As a double.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Int(value) => Wire::Int(value),
            Self::Float(value) if value.is_finite() => Wire::Float(value),
            Self::Float(value) if value.is_nan() => Wire::Text("nan".into()),
            Self::Float(value) => Wire::Text(if value > 0.0 { "inf" } else { "-inf" }.into()),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Wire::deserialize(deserializer)? {
            Wire::Bool(value) => Ok(Self::Int(value.into())),
            Wire::Int(value) => Ok(Self::Int(value)),
            Wire::Float(value) => Ok(Self::Float(value)),
            Wire::Text(text) => match text.as_str() {
                "inf" => Ok(Self::Float(f64::INFINITY)),
                "-inf" => Ok(Self::Float(f64::NEG_INFINITY)),
                "nan" => Ok(Self::Float(f64::NAN)),
                other => Err(serde::de::Error::custom(format!("not a number: {other:?}"))),
            },
        }
    }
}
