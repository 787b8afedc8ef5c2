//! Identity of a meaning: names left out.
