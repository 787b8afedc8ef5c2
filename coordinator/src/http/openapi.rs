//! The OpenAPI document (3.1), derived from the routes and the types that they take and give.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use kernelopt_shared::api::{EventView, JobRow, PROBLEM_JSON, Problem, ProblemKind};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Required, Response, ResponseBuilder, Schema};
use utoipa::{IntoResponses, Modify, OpenApi, PartialSchema, ToSchema};

use super::{agents, blobs, events, frontier, jobs, outputs, probes};

#[derive(OpenApi)]
#[openapi(
    info(title = "KernelOPT coordinator", description = "Jobs, agents and the frontier of a KernelOPT fleet."),
    paths(
        jobs::submit, jobs::drill, jobs::list, jobs::show, jobs::cancel, jobs::explain, events::follow, outputs::fetch,
        blobs::keep, blobs::read, blobs::probe,
        agents::list, agents::drain, agents::quarantine, agents::readmit,
        frontier::list,
        show, probes::health, probes::ready, probes::metrics
    ),
    components(schemas(EventView, JobRow, Problem)),
    modifiers(&BearerToken, &EmptyBlob)
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// A blob may be empty, and an upload without a body is one.
struct EmptyBlob;

impl Modify for EmptyBlob {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let paths = document.paths.paths.values_mut();
        let bodies = paths.filter_map(|path| path.put.as_mut()).filter_map(|put| put.request_body.as_mut());
        for body in bodies {
            if let RefOr::T(body) = body {
                body.required = Some(Required::False);
            }
        }
    }
}

/// The document.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// Shows this document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "probes", operation_id = "openapi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = inline(AnyObject), content_type = "application/json"))
)]
pub async fn show() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_json().unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// Any object.
pub struct AnyObject;

impl PartialSchema for AnyObject {
    fn schema() -> RefOr<Schema> {
        Object::new().into()
    }
}

impl ToSchema for AnyObject {}

/// One server-sent event.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the document alone: axum writes the text")]
pub struct ServerSentEvent {
    /// `event`, `job` or `problem`.
    event: String,
    /// Number of the event in the journal, of those named `event`.
    #[schema(required = false)]
    id: Option<String>,
    /// JSON: `EventView`, `JobRow` or `Problem`.
    data: String,
}

/// Bytes.
pub struct Binary;

impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).content_media_type("application/octet-stream").into()
    }
}

impl ToSchema for Binary {}

/// A set of problems with which a kind of request may be refused.
macro_rules! problems {
    ($($(#[$doc:meta])* $set:ident: $($kind:ident)*;)*) => {
        $(
            $(#[$doc])*
            pub struct $set;

            impl IntoResponses for $set {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    [$(ProblemKind::$kind),*].into_iter().map(described).collect()
                }
            }
        )*
    };
}

problems! {
    /// Of requests that change nothing.
    Asking: Malformed Unauthorized Forbidden NotFound Busy Unavailable;
    /// Of requests that need something to be in some state.
    Changing: Malformed Unauthorized Forbidden NotFound Conflict Refused Busy Unavailable StorageFull;
    /// Of requests with a body of JSON.
    Taking: Malformed Unauthorized Forbidden NotFound TooSlow Conflict TooLarge UnsupportedMediaType Refused Busy Unavailable StorageFull;
    /// Of uploads.
    Receiving: Malformed Unauthorized Forbidden TooSlow TooLarge Refused Busy Unavailable StorageFull;
}

fn described(kind: ProblemKind) -> (String, RefOr<Response>) {
    let content = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let response = ResponseBuilder::new().description(kind.title()).content(PROBLEM_JSON, content);
    (kind.status().to_string(), response.build().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_what_it_uses() {
        let text = document().to_json().unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let known = document["components"]["schemas"].as_object().unwrap();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(known.contains_key(name), "{name}");
        }
    }
}
