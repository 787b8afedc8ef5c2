//! The JSON of the coordinator's HTTP API, the same for the server and its clients.
//!
//! What clients send ([`JobSpec`], [`QuarantineOrder`]) is taken strictly: unknown fields are refused, every string and number has bounds, and
//! the types cannot hold anything else. What they get is read loosely: under `/v1` fields and kinds of event are only ever added, and a
//! client passes over those that it does not know.
//!
//! Schemas are derived from these types, so that the OpenAPI document says what the program does.

mod agent;
mod bounded;
mod drill;
mod event;
mod frontier;
mod job;
mod problem;
mod spec;

pub use agent::{AgentAvailability, AgentList, AgentView, HeldTask, QuarantineOrder};
pub use bounded::{
    BudgetSeconds, BusyMs, DrillLimitMs, DrillTasks, EventNumber, JobName, MaxCandidates, MaxCostMicroUsd, MaxTokens, ModelName,
    OutOfBounds, PageSize, Priority, ProposerName, Reason, Seed, Weight,
};
pub use drill::DrillSpec;
pub use event::{EventView, SSE_EVENT, SSE_JOB, SSE_PROBLEM};
pub use frontier::{FrontierPage, FrontierRow};
pub use job::{Best, Budget, Explanation, JobPage, JobRow, JobView, ModelVerdictView, Phase, TargetPhase, TargetView};
pub use problem::{PROBLEM_JSON, Problem, ProblemKind};
pub use spec::{JobSpec, Proposers};

pub use probe::{Readiness, ReadinessCheck};

mod probe;

/// Where a coordinator listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 7117;
/// Header that names a request, in logs of both sides.
pub const REQUEST_ID: &str = "x-request-id";

/// Schema of a string of `shortest` to `longest` characters that match `pattern` (ECMA 262).
pub(crate) fn text_schema(
    what: &str,
    shortest: usize,
    longest: usize,
    pattern: &str,
) -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .description(Some(what))
        .min_length(Some(shortest))
        .max_length(Some(longest))
        .pattern(Some(pattern))
        .into()
}
