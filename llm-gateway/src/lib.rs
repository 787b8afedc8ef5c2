//! The metered door to language models.
