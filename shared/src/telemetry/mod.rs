//! What every process says of itself to Prometheus: each metric of each process is declared here and nowhere else.
//!
//! A process makes one [`Registry`], registers the groups that it needs and hands them to those who know the figures. Their methods take
//! domain types; names, labels and units are this module's matter alone.
//!
//! | group | says | in |
//! |---|---|---|
//! | [`ProcessMetrics`] | which program, since when, ready or not | every process |
//! | [`CoordinatorMetrics`] | lanes, leases, tasks, jobs, journal, queues | coordinator |
//! | [`AgentMetrics`] | tasks, devices, canaries | agent |
//! | [`BrokerMetrics`] | connection, publications, frames nobody could read | coordinator, agent |
//! | [`FrontierMetrics`] | Redis, offers, rebuilds | coordinator |
//! | [`GatewayMetrics`] | requests, attempts, tokens, money, queue, cache | gateway |
//! | [`HttpMetrics`] | requests | coordinator, gateway |
//!
//! The number of series is bounded by construction: a label's values are a closed set, or the first few of an open one with
//! [`OTHER`] for the rest ([`labels`]). Identities of tasks and candidates are never labels; those of jobs only of the fifty jobs
//! that are shown, and only while they run.
//!
//! [`health`] is the other half: whether the process lives and whether it can do its work. [`server`] serves both.

mod agent;
mod broker;
mod coordinator;
mod device;
mod frontier;
mod gateway;
pub mod health;
mod http;
mod jobs;
mod journal;
mod kinds;
mod labels;
mod lanes;
mod leases;
mod metric;
mod process;
mod queues;
mod registry;
pub mod server;
mod tasks;

pub use agent::AgentMetrics;
pub use broker::BrokerMetrics;
pub use coordinator::CoordinatorMetrics;
pub use device::{DeviceMetrics, DeviceNow};
pub use frontier::{FrontierMetrics, Offered};
pub use gateway::{GatewayMetrics, Settled};
pub use http::HttpMetrics;
pub use jobs::{JobMetrics, JobNow, MOST_JOBS};
pub use journal::JournalMetrics;
pub use labels::{MOST_CLASSES, MOST_DEVICES, MOST_HOSTS, MOST_MODELS, MOST_ROUTES, MOST_UPSTREAMS, OTHER};
pub use lanes::{AgentCounts, LaneNow};
pub use leases::{Charge, Expiry, LeaseMetrics};
pub use metric::{Declared, Kind, Unit};
pub use process::ProcessMetrics;
pub use queues::QueueMetrics;
pub use registry::{Registry, TelemetryError};
pub use tasks::{Done, TaskMetrics};
