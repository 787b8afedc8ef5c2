//! The text that stands in the optimised file.

use kernelopt_coordinator::inductor::ModelFile;
use kernelopt_coordinator::inductor::triton::{Definition, TritonError, render};
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::meaning::Expr;
use serde_json::Value;

use super::candidates::portfolio;
use super::fixtures::{names, target};
use super::python::{check, job};

#[test]
fn a_definition_is_read_from_the_compilers_text() {
    let definition = Definition::read(&target("nll_loss_h200").baseline.source).unwrap();
    assert_eq!(definition.name, "triton_red_fused__log_softmax_nll_loss_forward_sub_1");
    assert_eq!(definition.multiprocessors(), Some(132));
    assert_eq!(definition.signature[0], ("in_out_ptr0".into(), "*bf16".into()));
    assert_eq!(definition.signature[5], ("xnumel".into(), "constexpr".into()));
    assert!(definition.inductor_meta.contains(&("mutated_arg_names".into(), "['in_out_ptr0']".into())));
}

#[test]
fn what_is_not_in_the_compilers_form_is_refused() {
    for source in
        ["", "def f(:", "@triton.jit\ndef f(x): pass", "@triton_heuristics.pointwise(triton_meta=3, inductor_meta={})\ndef f(x): pass"]
    {
        assert!(matches!(Definition::read(source), Err(TritonError::NotUnderstood(_))), "{source:?}");
    }
    let target = target("gelu");
    let mut candidate = portfolio("gelu").remove(0);
    candidate.launch = None;
    assert_eq!(render(&candidate, &target), Err(TritonError::NoLaunch));
    let mut renamed = portfolio("gelu").remove(0);
    renamed.source = renamed.source.replace("def kernel(", "def other(");
    assert!(matches!(render(&renamed, &target), Err(TritonError::NotUnderstood(_))));
}

#[test]
fn helpers_and_imports_of_a_candidate_stay() {
    let target = target("gelu");
    let mut candidate = portfolio("gelu").remove(0);
    candidate.source = format!("import math\nHALF = 0.5\n{}", candidate.source);
    candidate.launch.as_mut().unwrap().grid[0] = "(xnumel + XBLOCK - 1) // XBLOCK".parse::<Expr>().unwrap();
    let [text] = <[String; 1]>::try_from(render(&candidate, &target).unwrap()).unwrap();
    assert!(text.contains("\nimport math\n\nHALF = 0.5\n"), "{text}");
    assert_eq!(text.matches("import triton\n").count(), 1);
    let block = candidate.launch.unwrap().constants["XBLOCK"];
    assert!(text.contains(&format!("'fixed_grid': ['((-1 + xnumel + {block}) // {block})', '1', '1']")), "{text}");
}

#[test]
fn the_rendered_text_reads() {
    insta::assert_snapshot!(render(&portfolio("cross_entropy_h200")[0], &target("cross_entropy_h200")).unwrap().concat());
}

#[test]
fn a_rendered_kernel_fits_where_the_compilers_was() {
    let target = target("silu_mul");
    let file = format!(
        "from torch._inductor.async_compile import AsyncCompile\nasync_compile = AsyncCompile()\n\n{} = async_compile.triton('{}', '''{}''', device_str='cuda')\n\n\
         def call(args):\n    return ()\n",
        target.kernel, target.kernel, target.baseline.source
    );
    let model = ModelFile::parse(&file).unwrap();
    let text = render(&portfolio("silu_mul")[0], &target).unwrap().concat();
    let written = model.write(&[(target.kernel.clone(), text.clone())].into()).unwrap();
    let again = ModelFile::parse(&written).unwrap();
    let (before, after) = (model.kernels()[0].source().unwrap(), again.kernels()[0].source().unwrap());
    assert_eq!((&after.text, &after.parameters), (&text, &before.parameters));
}

#[test]
#[ignore = "needs torch and triton: set KERNELOPT_PYTHON"]
fn every_rendered_kernel_is_an_autotuner_of_one_configuration() {
    let rendered = |name: &String| {
        let target = target(name);
        let one = |candidate: Candidate| Candidate { source: render(&candidate, &target).unwrap().concat(), ..candidate };
        let few: Vec<Candidate> = portfolio(name).into_iter().take(2).map(one).collect();
        job(name, &target, &few, &[])
    };
    let jobs: Vec<Value> = names().iter().map(rendered).collect();
    println!("{}", check("load", &jobs).unwrap_or_else(|why| panic!("{why}")));
}
