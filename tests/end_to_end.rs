//! A compiled model goes in, a faster and verified one comes out, or the compiler's own.

use std::fs;
use std::path::Path;

use kernelopt_coordinator::journal::Journal;
use kernelopt_tests::{bundle, command, kernelopt, python, result};

/// `tune` of `model` into `out` with a short budget; stdout is `result.json`.
fn tune(model: &Path, out: &Path, more: &[&str]) -> std::process::Output {
    let mut args = vec!["tune", model.to_str().expect("utf-8"), "-o", out.to_str().expect("utf-8"), "--json"];
    args.extend_from_slice(more);
    kernelopt(&args)
}

#[test]
fn layer_norm_gets_faster_and_the_claim_holds() {
    let model = bundle("layer_norm");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let done = tune(&model, &out, &["--budget", "90s", "--max-candidates", "16"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found = result(&out);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&done.stdout).expect("stdout is JSON"), found);
    assert_eq!(found["model"]["verdict"], "improved", "{found:#}");
    assert!(found["model"]["ci95"][0].as_f64() > Some(1.2), "{}", found["model"]);
    assert!(found["targets"][0]["winner"]["note"].is_string());
    assert!(fs::read_to_string(out.join("report.html")).expect("the page").contains("cpp_fused"));

    runs_without_kernelopt(&model, &out);

    let verified = kernelopt(&["verify", out.to_str().expect("utf-8")]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));

    let before = Journal::read_only(&out).expect("the journal").len();
    let again = tune(&model, &out, &["--resume"]);
    assert!(again.status.success());
    assert_eq!(Journal::read_only(&out).expect("the journal").len(), before, "a finished job measures nothing more");

    let refused = tune(&model, &out, &[]);
    assert_eq!(refused.status.code(), Some(5), "without --resume a job is not written over");

    // A claim that is no longer true is found out.
    let optimized = out.join("optimized/output_code_0.py");
    let text = fs::read_to_string(&optimized).expect("the optimised file");
    fs::write(&optimized, text.replacen("#include", "// touched\n#include", 1)).expect("it can be written");
    assert_eq!(kernelopt(&["verify", out.to_str().expect("utf-8")]).status.code(), Some(6));
}

/// Original and optimised files in a Python that cannot import `kernelopt`: the same outputs.
fn runs_without_kernelopt(model: &Path, out: &Path) {
    let script = "
import importlib.util, sys, torch
def load(path):
    spec = importlib.util.spec_from_file_location('m' + str(abs(hash(path))), path)
    module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
    return module
try:
    import kernelopt
    raise SystemExit('kernelopt can be imported')
except ImportError:
    pass
torch.manual_seed(1)
x, w, b = torch.randn(4096, 256), torch.randn(256), torch.randn(256)
original, optimized = load(sys.argv[1]), load(sys.argv[2])
order = [(4096, 256) if '(4096, 256)' in line else (256,) for line in open(sys.argv[1]) if 'assert_size_stride(arg' in line]
pool = {(4096, 256): [x], (256,): [w, b]}
args = [pool[shape].pop(0) for shape in order]
one, other = original.call(list(args))[0], optimized.call(list(args))[0]
assert torch.allclose(one, other, rtol=1e-5, atol=1e-5), (one - other).abs().max()
assert not torch.equal(x, one)
";
    let done = command(&python())
        .env_remove("PYTHONPATH")
        .current_dir(out)
        .args(["-c", script])
        .arg(model.join("output_code_0.py"))
        .arg(out.join("optimized/output_code_0.py"))
        .output()
        .expect("Python starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_model_of_vendor_calls_is_kept_byte_for_byte() {
    let model = bundle("matmul");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let done = tune(&model, &out, &["--budget", "60s"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(result(&out)["model"]["verdict"], "kept");
    let name = "output_code_0.py";
    assert_eq!(fs::read(out.join("optimized").join(name)).expect("ours"), fs::read(model.join(name)).expect("the compiler's"));
    assert!(kernelopt(&["verify", out.to_str().expect("utf-8")]).status.success());
}
