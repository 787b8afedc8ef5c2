//! What crosses crates: helpers of the end-to-end tests.
