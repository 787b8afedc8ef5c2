//! Any bytes as a caller's request: an error or a request, never a crash; and what is sent is JSON, with the limit that was reserved.

#![no_main]

use bytes::Bytes;
use kernelopt_llm_gateway::dialect::request::Upstream;
use kernelopt_llm_gateway::dialect::{Dialect, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for from in [Dialect::Openai, Dialect::Anthropic] {
        let Ok(request) = Request::read(from, Bytes::copy_from_slice(data)) else { continue };
        let _ = request.prompt();
        for dialect in [Dialect::Openai, Dialect::Anthropic] {
            let to = Upstream { dialect, model: "theirs", max_output: 7, output_field: "max_tokens" };
            if let Ok(body) = request.for_upstream(to) {
                assert!(std::str::from_utf8(&body).is_ok_and(|body| body.starts_with('{') && body.ends_with('}') && body.contains("max_tokens")));
            }
        }
    }
});
