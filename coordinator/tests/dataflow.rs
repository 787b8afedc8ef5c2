//! Who reads what after a launch, and what a statement that is not understood keeps from being touched.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use kernelopt_coordinator::inductor::ModelFile;
use kernelopt_coordinator::inductor::dataflow::{Dataflow, Later, LeftAlone};

const HEADER: &str = "
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
alloc_from_pool = torch.ops.inductor._alloc_from_pool
async_compile = AsyncCompile()
weight = None
cpp_fused_copy_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''extern \"C\" void kernel(const float* in_ptr0, float* out_ptr0) {}''')
cpp_fused_add_1 = async_compile.cpp_pybinding(['float*'], r'''extern \"C\" void kernel(float* in_out_ptr0) {}''')
";
/// Line of the first statement of a body, after the unpacking of `x` and `y`.
const FIRST: u32 = 19;

fn body(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("        {line}\n")).collect()
}

/// A file whose `call` takes `x` and `y`, and then runs `lines`.
fn text(lines: &[&str]) -> String {
    let runner = "class Runner:\n    def __init__(self, partitions):\n        self.partitions = partitions\n    def call(self, args):\n";
    format!("{HEADER}{runner}        x, y = args\n{}runner = Runner(partitions=[])\n", body(lines))
}

fn flow(lines: &[&str]) -> Dataflow {
    Dataflow::of(&ModelFile::parse(&text(lines)).unwrap())
}

const ALLOCATE: &str = "buf0 = empty_strided_cpu((8, ), (1, ), torch.float32)";
const LAUNCH: &str = "cpp_fused_copy_0(x, buf0)";

/// What becomes of `buf0` after the launch that fills it, when `after` follows.
fn later(after: &[&str]) -> Later {
    let lines: Vec<&str> = [ALLOCATE, LAUNCH].iter().chain(after).copied().collect();
    flow(&lines).launches[0].arguments[1].later
}

/// The line of the statement at `position` of `after`.
fn line(position: u32) -> u32 {
    FIRST + 2 + position
}

#[test]
fn nobody_reads_what_is_freed() {
    assert_eq!(later(&["del buf0", "return (x, )"]), Later::Never);
    assert_eq!(later(&["assert_size_stride(buf0, (8, ), (1, ))", "s0 = buf0.size(0)", "return ()"]), Later::Never);
}

#[test]
fn every_way_to_read_counts() {
    for read in [
        "return (buf0, )",
        "return (reinterpret_tensor(buf0, (2, 4), (4, 1), 0), )",
        "cpp_fused_copy_0(buf0, y)",
        "cpp_fused_add_1(buf0)",
        "cpp_fused_add_1(reinterpret_tensor(buf0, (2, ), (1, ), 4))",
        "extern_kernels.mm(reinterpret_tensor(buf0, (2, 4), (4, 1), 0), y, out=x)",
        "buf1 = torch.ops.aten.cumsum.default(buf0, 0)",
        "aten.index_put_(x, [buf0], y, True)",
        "y.copy_(buf0)",
        "u0 = buf0.item()",
        "assert not buf0.isnan().any().item()",
        "something(buf0)",
        "something(locals())",
        "for t in [buf0]: pass",
    ] {
        assert_eq!(later(&["pass", read]), Later::Read { line: line(1) }, "{read}");
    }
}

#[test]
fn reads_through_other_names_count() {
    assert_eq!(later(&["buf1 = buf0; del buf0", "return (buf1, )"]), Later::Read { line: line(1) });
    assert_eq!(
        later(&["buf1 = reinterpret_tensor(buf0, (4, ), (1, ), 0)", "buf2 = buf1[2:3]", "return (buf2, )"]),
        Later::Read { line: line(2) }
    );
    assert_eq!(later(&["l = [buf0, x]", "buf1 = l[0]", "return (buf1, )"]), Later::Read { line: line(2) });
    assert_eq!(later(&["buf1 = torch.ops.aten.relu_.default(x)", "return (buf1, )"]), Later::Never);
    // An operator of a library that is not known may give back what it was given: the launch after it fills what it gave.
    let lines = [ALLOCATE, "buf1 = torch.ops.mine.pick.default(buf0)", LAUNCH, "return (buf1, )"];
    assert_eq!(flow(&lines).launches[0].arguments[1].later, Later::Read { line: FIRST + 3 });
    let lines = [ALLOCATE, "buf1 = torch.ops.aten.view_as_complex.default(buf0)", "del buf0", "cpp_fused_add_1(buf1)", "return (buf1, )"];
    assert_eq!(flow(&lines).launches[0].arguments[0].buffers, ["buf0"]);
}

#[test]
fn memory_that_is_filled_anew_has_lost_what_it_held() {
    let reused = "buf1 = buf0; del buf0";
    assert_eq!(later(&[reused, "cpp_fused_copy_0(x, buf1)", "return (buf1, )"]), Later::Never);
    assert_eq!(later(&[reused, "extern_kernels.mm(x, y, out=buf1)", "return (buf1, )"]), Later::Never);
    // In place, behind a view, or while another name still reaches it: the old elements may live on.
    assert_eq!(later(&[reused, "cpp_fused_add_1(buf1)", "return ()"]), Later::Read { line: line(1) });
    let half = "cpp_fused_copy_0(x, reinterpret_tensor(buf1, (4, ), (1, ), 0))";
    assert_eq!(later(&[reused, half, "return (buf1, )"]), Later::Read { line: line(2) });
    assert_eq!(later(&["buf1 = buf0", "cpp_fused_copy_0(x, buf1)", "return (buf0, )"]), Later::Read { line: line(2) });
    assert_eq!(later(&["cpp_fused_copy_0(x, buf0)", "return (buf0, )"]), Later::Read { line: line(1) });
    assert_eq!(later(&[reused, "cpp_fused_copy_0(buf1, buf1)", "return ()"]), Later::Read { line: line(1) });
}

#[test]
fn inputs_and_constants_belong_to_the_caller() {
    let lines = ["cpp_fused_copy_0(y, x)", "cpp_fused_copy_0(y, weight)", "buf1 = y; del y", "cpp_fused_copy_0(x, buf1)", "return ()"];
    let outside: Vec<Later> = flow(&lines).launches.iter().map(|launch| launch.arguments[1].later).collect();
    assert_eq!(outside, [Later::Outside; 3]);
}

#[test]
fn buffers_in_one_pool_are_not_told_apart() {
    let pool = ["pool0 = empty_strided_cpu((64, ), (1, ), torch.uint8)", "buf0 = alloc_from_pool(pool0, 0, torch.float32, (8, ), (1, ))"];
    let lines = [pool[0], pool[1], "buf1 = alloc_from_pool(pool0, 32, torch.float32, (8, ), (1, ))", LAUNCH, "return (buf1, )"];
    assert_eq!(flow(&lines).launches[0].arguments[1].later, Later::Read { line: FIRST + 4 });
}

#[test]
fn elements_of_a_result_are_told_apart() {
    let split = ["buf1 = torch.ops.aten.sort.default(x)", "buf2 = buf1[0]", "buf3 = buf1[1]"];
    let with = |end: &'static str| [split[0], split[1], split[2], "cpp_fused_copy_0(x, buf2)", end];
    assert_eq!(flow(&with("return (buf3, )")).launches[0].arguments[1].later, Later::Never);
    assert_eq!(flow(&with("return (buf1, )")).launches[0].arguments[1].later, Later::Read { line: FIRST + 4 });
    assert_eq!(flow(&with("return (buf1[0], )")).launches[0].arguments[1].later, Later::Read { line: FIRST + 4 });
}

fn left_alone(lines: &[&str]) -> [Option<LeftAlone>; 2] {
    let flow = flow(lines);
    ["cpp_fused_copy_0", "cpp_fused_add_1"].map(|name| flow.kernel(name).unwrap().left_alone.clone())
}

fn shares(buffer: &str, line: u32) -> Option<LeftAlone> {
    Some(LeftAlone::SharesBuffer { buffer: buffer.into(), line })
}

#[test]
fn what_is_not_understood_keeps_its_buffers_to_itself() {
    let launches = ["cpp_fused_copy_0(x, buf0)", "cpp_fused_add_1(y)"];
    let with = |before: &[&'static str], after: &[&'static str]| {
        let lines: Vec<&str> = [ALLOCATE].iter().chain(before).chain(&launches).chain(after).copied().collect();
        left_alone(&lines)
    };
    assert_eq!(with(&[], &["return (buf0, )"]), [None, None]);
    // Before or after, by name, through a view, in a container, by what it made, or inside a block.
    assert_eq!(with(&[], &["something(y)"]), [None, shares("y", FIRST + 3)]);
    assert_eq!(with(&["something(buf0)"], &[]), [shares("buf0", FIRST + 1), None]);
    assert_eq!(with(&["l = [y, 1]", "something(l)"], &[]), [None, shares("y", FIRST + 2)]);
    assert_eq!(with(&["l = [None] * 1", "l[0] = y"], &[]), [None, shares("y", FIRST + 2)]);
    assert_eq!(with(&["y = something()"], &[]), [None, shares("y", FIRST + 1)]);
    assert_eq!(with(&["if maybe: y = x"], &[]), [shares("x", FIRST + 1), shares("y", FIRST + 1)]);
    assert_eq!(with(&[], &["x.resize_(3)"]), [shares("x", FIRST + 3), None]);
    assert_eq!(with(&[], &["aten.set_.source_Tensor(y, y)"]), [None, shares("y", FIRST + 3)]);
    // What reaches any local reaches them all.
    for reach in ["something(locals())", "exec('del x')", "something(args)", "something(self)", "global x"] {
        assert_eq!(with(&[reach], &[]), [shares("x", FIRST + 1), shares("y", FIRST + 1)], "{reach}");
    }
    // What touches nothing keeps nothing.
    assert_eq!(with(&["print('hello')"], &[]), [None, None]);
}

#[test]
fn a_launch_that_is_not_what_it_seems_is_not_understood() {
    let mentioned = Some(LeftAlone::Mentioned { line: FIRST });
    assert_eq!(left_alone(&["cpp_fused_add_1(something(x))"])[1], mentioned);
    assert_eq!(left_alone(&["z = cpp_fused_add_1(x)"])[1], mentioned);
    assert_eq!(left_alone(&["cpp_fused_add_1 = y", "cpp_fused_add_1(x)"])[1], Some(LeftAlone::Mentioned { line: FIRST + 1 }));
    assert_eq!(left_alone(&["cpp_fused_add_1(x, y)"])[1], Some(LeftAlone::Signature { line: FIRST }));
    assert_eq!(left_alone(&["while x: cpp_fused_add_1(x)"])[1], mentioned);
    assert_eq!(left_alone(&["return ()"]), [Some(LeftAlone::NeverLaunched), Some(LeftAlone::NeverLaunched)]);
    // A kernel that nothing defines is not understood, so what it is given is left alone.
    assert_eq!(left_alone(&["cpp_fused_add_1(x)", "cpp_fused_mul_7(x)"])[1], shares("x", FIRST + 1));
    // So is one whose arguments hide something.
    for launch in
        ["cpp_fused_add_1(x, stream=something(y))", "aten.view.dtype(x, something(y))", "assert_size_stride(x, (1, ), (1, ), something(y))"]
    {
        assert_eq!(left_alone(&["cpp_fused_copy_0(x, y)", launch])[0], shares("x", FIRST + 1), "{launch}");
    }
    // So is a helper that is not the one of that name.
    let other = text(&[ALLOCATE, LAUNCH, "return (reinterpret_tensor(buf0, (2, ), (1, ), 0), )"])
        .replace("torch._C._dynamo.guards._reinterpret_tensor", "torch.evil");
    let flow = Dataflow::of(&ModelFile::parse(&other).unwrap());
    assert_eq!(flow.kernel("cpp_fused_copy_0").unwrap().left_alone, shares("buf0", FIRST + 2));
}

#[test]
fn a_module_that_may_bind_anything_is_not_understood() {
    for strange in ["from strange import *", "globals()['reinterpret_tensor'] = print", "exec('x = 1')"] {
        let text = format!("{}{strange}\n", text(&[ALLOCATE, LAUNCH, "return (buf0, )"]));
        let flow = Dataflow::of(&ModelFile::parse(&text).unwrap());
        assert!(matches!(flow.kernel("cpp_fused_copy_0").unwrap().left_alone, Some(LeftAlone::Mentioned { .. })), "{strange}");
    }
    let rebound = text(&["cpp_fused_add_1(x)"]) + "runner = Runner(partitions=[])\ncall = strange(runner)\n";
    let flow = Dataflow::of(&ModelFile::parse(&rebound).unwrap());
    assert_eq!(flow.kernel("cpp_fused_add_1").unwrap().left_alone, Some(LeftAlone::ControlFlow { function: "call".into() }));
}

#[test]
fn a_name_defined_twice_is_left_alone() {
    let again = "cpp_fused_add_1 = async_compile.cpp_pybinding(['float*'], r'''extern \"C\" void kernel(float* in_out_ptr0) {}''')\n";
    let text = text(&["cpp_fused_add_1(x)"]) + again;
    let flow = Dataflow::of(&ModelFile::parse(&text).unwrap());
    assert!(matches!(flow.kernel("cpp_fused_add_1").unwrap().left_alone, Some(LeftAlone::DefinedTwice { lines: (13, _) })));
}

/// A file with a partition that doubles its input in place and gives it back.
fn partitioned(part: &[&str], call: &[&str]) -> Dataflow {
    let partition: String = part.iter().map(|line| format!("    {line}\n")).collect();
    let text =
        text(call).replace("class Runner", &format!("def partition_0(args):\n    a, b = args\n    args.clear()\n{partition}class Runner"));
    Dataflow::of(&ModelFile::parse(&text.replace("partitions=[])", "partitions=[partition_0])")).unwrap())
}

const CALL: &str = "(buf1, ) = self.partitions[0](l)";

#[test]
fn partitions_are_followed() {
    let twice = partitioned(
        &["cpp_fused_add_1(a)", "return (a, )"],
        &["l = [x, y]", CALL, "m = [buf1, y]", "(buf2, ) = self.partitions[0](m)", "return (buf2, )"],
    );
    let kernel = twice.kernel("cpp_fused_add_1").unwrap();
    assert_eq!((kernel.calls, &kernel.left_alone), (Some(2), &None));

    // Memory that the caller and the partition share, whoever touches it.
    let touched = |part: &[&str], call: &[&str]| {
        let flow = partitioned(part, call);
        ["cpp_fused_copy_0", "cpp_fused_add_1"]
            .map(|name| matches!(flow.kernel(name).unwrap().left_alone, Some(LeftAlone::SharesBuffer { .. })))
    };
    let part = ["cpp_fused_add_1(a)", "return (a, )"];
    assert_eq!(touched(&part, &["cpp_fused_copy_0(y, y)", "l = [x, y]", CALL, "something(x)"]), [false, true]);
    assert_eq!(touched(&part, &["cpp_fused_copy_0(y, y)", "l = [x, y]", CALL, "something(buf1)"]), [false, true]);
    assert_eq!(touched(&part, &["cpp_fused_copy_0(y, y)", "l = [x, y]", "something(l)", CALL]), [true, true]);
    let made = ["z = empty_strided_cpu((8, ), (1, ), torch.float32)", "cpp_fused_add_1(z)", "return (z, )"];
    assert_eq!(touched(&made, &["cpp_fused_copy_0(y, y)", "l = [x, y]", CALL, "something(buf1)"]), [false, true]);
    let strange = ["something(b)", "cpp_fused_add_1(a)", "return (a, )"];
    assert_eq!(touched(&strange, &["cpp_fused_copy_0(x, x)", "l = [x, y]", CALL]), [false, false]);
    assert_eq!(touched(&strange, &["cpp_fused_copy_0(y, y)", "l = [x, y]", CALL]), [true, false]);
}

#[test]
fn functions_that_run_an_unknown_number_of_times() {
    let part = ["cpp_fused_add_1(a)", "return (a, )"];
    let reason = |call: &[&str]| partitioned(&part, call).kernel("cpp_fused_add_1").unwrap().left_alone.clone();
    let unknown = Some(LeftAlone::ControlFlow { function: "partition_0".into() });
    assert_eq!(reason(&["if x.item(): (y, ) = partition_0([x, y])"]), unknown);
    assert_eq!(reason(&["f = partition_0"]), unknown);
    assert_eq!(reason(&["return ()"]), Some(LeftAlone::NeverLaunched));
}
