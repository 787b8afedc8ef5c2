//! What `inspect --json` says of a bundle that was captured on a GPU.

use std::process::Command;

#[test]
fn a_triton_kernel_is_searchable() {
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/bundles/softmax_cuda");
    let done = Command::new(env!("CARGO_BIN_EXE_kernelopt")).args(["inspect", "--json", bundle]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(said["targets"].as_array().map(Vec::len), Some(1));
    assert!(said["targets"][0]["reason"].is_null(), "nothing keeps it from being searched: {said}");
    insta::assert_snapshot!(String::from_utf8(done.stdout).unwrap());
}
