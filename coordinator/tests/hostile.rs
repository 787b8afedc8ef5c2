//! Text that nobody's compiler wrote: an answer or an error with a place, never a crash, and never long.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kernelopt_coordinator::inductor::dataflow::Dataflow;
use kernelopt_coordinator::inductor::limits::{MAX_BYTES, MAX_INDENT};
use kernelopt_coordinator::inductor::{ModelFile, Replacements};
use kernelopt_coordinator::inspect::Inspection;
use kernelopt_shared::exit::{ExitCode, UserError};
use proptest::prelude::*;

/// Longest that any of these texts may take, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn capture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/captures");
    fs::read_to_string(root.join(name).join("output_code_0.py")).unwrap()
}

/// Everything that is done with an untrusted text. The error, where it is refused.
fn exercise(text: &str) -> Option<String> {
    let started = Instant::now();
    let refused = match ModelFile::parse(text) {
        Ok(file) => {
            let flow = Dataflow::of(&file);
            assert_eq!(flow.kernels.len(), file.kernels().len());
            assert!(file.write(&Replacements::new()).unwrap() == text);
            let table = Inspection::of_text(text).unwrap().table();
            assert!(table.ends_with('\n'));
            None
        }
        Err(error) => {
            let lines = text.lines().count().max(1) as u32;
            assert!(error.at.line >= 1 && error.at.line <= lines + 1 && error.at.column >= 1, "{error}");
            assert_eq!(error.exit_code(), ExitCode::BadInput);
            assert!(error.remedy().is_some_and(|remedy| remedy.ends_with('.')));
            Some(error.to_string())
        }
    };
    assert!(started.elapsed() < PATIENCE, "{:?} for {} bytes: {:.60}", started.elapsed(), text.len(), text);
    refused
}

#[test]
fn texts_that_are_no_model() {
    let no_call = "line 1, column 1: no function `call`: not an output_code.py of TorchInductor";
    assert_eq!(exercise("").as_deref(), Some(no_call));
    assert_eq!(exercise("import torch\nprint('hello')\n").as_deref(), Some(no_call));
    assert_eq!(
        exercise("def call(args:\n    return ()\n").as_deref(),
        Some("line 3, column 1: the end of the file does not fit '(' of line 1")
    );
    assert_eq!(exercise("x = 1\ny = = 2\n").as_deref(), Some("line 2, column 5: not Python: Expected an expression"));
    assert_eq!(exercise("\u{feff}\0\u{202e}").map(|_| ()), Some(()));
    assert_eq!(exercise(&"#".repeat(MAX_BYTES + 1)).as_deref(), Some("line 1, column 1: 16777217 bytes; at most 16777216 are read"));
}

#[test]
fn depth_is_refused_before_it_is_parsed() {
    for deep in [
        "(",
        "[",
        "{",
        "f(",
        "a.",
        "a[0]",
        "-",
        "not ",
        "~",
        "a+",
        "a**",
        "lambda: ",
        "lambda a,: ",
        "a if b else ",
        "await ",
        "a<",
        "f'{",
        "*",
    ] {
        for times in [1_000, 100_000] {
            assert!(exercise(&format!("x = {}", deep.repeat(times))).is_some(), "{deep} {times} times");
        }
    }
    let blocks: String = (0..MAX_INDENT + 2).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
    assert!(exercise(&blocks).is_some());
    for statement in
        ["async ", "if a: ", "with a, b: ", "class A: ", "while 1: ", "for a in b: ", "try: ", "def f(): ", "match a: ", "@a ", "else: "]
    {
        assert!(exercise(&statement.repeat(50_000)).is_some(), "{statement}");
        exercise(&statement.trim_end().split_inclusive(' ').collect::<String>().repeat(3));
        exercise(&format!("{statement}\n").repeat(5_000));
    }
}

#[test]
fn the_deepest_text_that_is_read_does_not_crash() {
    let blocks: String = (0..MAX_INDENT).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
    exercise(&format!("def call(args):\n{}pass\n", blocks.lines().map(|line| format!(" {line}\n")).collect::<String>()));
    for chain in ["a.", "a+", "-", "not ", "a[0].", "lambda: ", "a if a else "] {
        let tokens = match chain {
            "a." | "a+" | "lambda: " => 900,
            "-" | "not " => 1_900,
            _ => 300,
        };
        let text =
            format!("def call(args):\n    a, = args\n    b = {}a\n    c = [({}a)]\n", chain.repeat(tokens), chain.repeat(tokens / 2));
        assert_eq!(exercise(&text), None, "{chain}");
    }
    let nested = format!("def call(args):\n    a, = args\n    b = {}a{}\n", "[".repeat(60), "]".repeat(60));
    assert_eq!(exercise(&nested), None);
}

/// Repetitions that would be slow if anything compared everything with everything.
#[test]
fn long_texts_take_linear_time() {
    let function =
        |body: &str, times: usize| format!("import torch\naten = torch.ops.aten\ndef call(args):\n    x, y = args\n{}", body.repeat(times));
    for body in [
        "    x = torch.ops.mine.f.default(x, y)\n",
        "    x = x[0]\n",
        "    x = torch.ops.mine.f.default(x)[0]\n",
        "    l = [x, y, x]\n    (a, b) = self.partitions[0](l)\n",
        "    unknown(x, y, locals())\n",
        "    x = unknown(x, y)\n",
        "    z = y; y = x; x = z; del z\n",
        "    b = aten.sort.default(x)\n    c = b[1]\n    d = b[2]\n    x.copy_(b)\n",
    ] {
        assert_eq!(exercise(&function(body, 4_000)), None, "{body}");
    }
    let many: String = (0..8_000).map(|n| format!("v{n} = torch.ops.mine.f.default(x)\n    ")).collect();
    let list: String = (0..8_000).map(|n| format!("v{n}, ")).collect();
    let text = format!(
        "import torch\ndef part(args):\n    {list}= args\n    return ({list})\ndef call(args):\n    x, = args\n    {many}l = [{list}]\n"
    );
    let calls = "    ({list}) = part(l)\n    unknown(l)\n    (x, y) = part(l)\n".replace("{list}", &list);
    assert_eq!(exercise(&format!("{text}{calls}")), None);
    assert_eq!(exercise(&format!("{text}{}", "    unknown(l)\n    (x, y) = part(l)\n".repeat(2_000))), None);
    assert_eq!(exercise(&format!("{}def call(args):\n    pass\n", "def f(args):\n    locals()\n".repeat(8_000))), None);
    assert_eq!(exercise(&format!("{}def call(args):\n    pass\n", "import a.b.c as torch\n".repeat(20_000))), None);
    let names = format!("b = {}a.item()", "a.item() + ".repeat(300)).replace("a.item()", &format!("{}.item()", "a".repeat(10_000)));
    assert_eq!(exercise(&format!("def call(args):\n    {}, = args\n    {names}\n", "a".repeat(10_000))), None);
}

/// A part of a capture, cut, doubled, or overwritten.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize, usize),
    Double(usize, usize),
    Splice(usize, String),
    Swap(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let token = prop_oneof![
        "\\PC{0,8}",
        "[(){}\\[\\]'\",:.\\\\#\n ]{1,6}",
        Just("'''".to_owned()),
        Just("\n    ".to_owned()),
        Just("del buf0".to_owned())
    ];
    prop_oneof![
        (any::<usize>(), 1usize..4000).prop_map(|(at, length)| Damage::Cut(at, length)),
        (any::<usize>(), 1usize..4000).prop_map(|(at, length)| Damage::Double(at, length)),
        (any::<usize>(), token).prop_map(|(at, text)| Damage::Splice(at, text)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

/// The text with the damage done; lines are swapped, everything else happens anywhere.
fn damaged(text: &str, damages: &[Damage]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for damage in damages {
        let length = bytes.len().max(1);
        match damage {
            Damage::Cut(at, count) => {
                let at = (at % length).min(bytes.len());
                let end = (at + count).min(bytes.len());
                bytes.drain(at..end);
            }
            Damage::Double(at, count) => {
                let at = (at % length).min(bytes.len());
                let part = bytes[at..(at + count).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            Damage::Splice(at, text) => {
                let at = (at % length).min(bytes.len());
                bytes.splice(at..at, text.bytes());
            }
            Damage::Swap(a, b) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let mut lines: Vec<&str> = text.split('\n').collect();
                let (a, b) = (a % lines.len(), b % lines.len());
                lines.swap(a, b);
                bytes = lines.join("\n").into_bytes();
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn damaged_captures_are_read_or_refused(which in 0usize..6, damages in prop::collection::vec(damage(), 1..6)) {
        let names = ["cpu/mlp_dynamic", "cpu-more/control", "cpu-more/unbacked", "cuda-more/partition", "cuda-nogpu/mempl", "cuda-nogpu/user"];
        exercise(&damaged(&capture(names[which]), &damages));
    }

    /// Statements of real calls in any order: more of these are still Python.
    #[test]
    fn shuffled_calls_are_read(which in 0usize..4, picks in prop::collection::vec((any::<usize>(), any::<usize>()), 1..40)) {
        let names = ["cpu/block_static", "cpu-more/whileloop", "cuda-more/partition", "cpu/conv_train"];
        let text = capture(names[which]);
        let mut lines: Vec<&str> = text.lines().collect();
        let first = lines.iter().position(|line| line.contains("args.clear()")).unwrap() + 1;
        let last = lines.iter().rposition(|line| line.contains("return (")).unwrap();
        for (a, b) in picks {
            let span = last - first;
            lines.swap(first + a % span, first + b % span);
        }
        exercise(&lines.join("\n"));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9 =.,:()\\[\\]{}'\"#\\\\\n\t+*@-]{0,200}") {
        exercise(&text);
        exercise(&format!("def call(args):\n    x, = args\n    {text}\n"));
    }
}
