//! Domain types, contracts and traits that the services meet through.
//!
//! Nothing here knows about a GPU or Python: this crate is the vocabulary, and the ways in which it travels.
//!
//! | module | noun |
//! |---|---|
//! | [`meaning`] | what a generated kernel computes, as the compiler fused it |
//! | [`target`] | one generated kernel with everything needed to search it |
//! | [`candidate`] | source and launch offered for a target |
//! | [`launch`] | how a GPU kernel is launched |
//! | [`verdict`] | what an agent says of a candidate, with its evidence |
//! | [`task`] | one piece of work for an agent |
//! | [`message`] | what coordinator and agents say to each other |
//! | [`wire`] | messages as bytes |
//! | [`broker`] | how messages travel |
//! | [`language_model`] | what a search asks of a language model, and what it hears |
//! | [`api`] | the JSON of the coordinator's HTTP API |
//! | [`frontier`] | the best candidate known for each kernel and class of device |
//! | [`telemetry`] | what a process says of itself: metrics, alive, ready |
//! | [`blobs`] | bytes by their hash, in a folder, a bucket or a coordinator |
//! | [`archive`] | folders as one file |
//! | [`bundle`] | a captured compiled model on disk |
//! | [`result`] | `result.json`, the contract that others build on |
//! | [`stats`] | paired ratios and their bootstrap intervals |
//! | [`http_server`] | what every HTTP server here has in common |
//! | [`secret`] | passwords and tokens, from the environment or a file |
//! | [`stop`] | a request to stop |
//! | [`tls`] | the cryptography of every TLS connection |
//! | [`exit`] | documented exit codes |

pub mod api;
pub mod archive;
pub mod blobs;
pub mod broker;
pub mod bundle;
pub mod candidate;
pub mod digest;
pub mod dtype;
pub mod exit;
pub mod frontier;
pub mod http_server;
pub mod language_model;
pub mod launch;
pub mod meaning;
pub mod message;
pub mod result;
pub mod secret;
pub mod stats;
pub mod stop;
pub mod target;
pub mod task;
pub mod telemetry;
pub mod tls;
pub mod verdict;
pub mod wire;
