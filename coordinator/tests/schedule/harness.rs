//! Builds a meaning's naive evaluation and candidates as the compiler would, runs them on the same inputs and compares.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Argument, Expr, Meaning, Operation, Role, Statement};

use super::compiler::{FLAGS, compile};
use super::naive;

/// C++ type of a memory type.
pub fn c_type(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float64 => "double",
        Dtype::Float32 => "float",
        Dtype::Float16 => "at::Half",
        Dtype::Bfloat16 => "at::BFloat16",
        Dtype::Int64 => "int64_t",
        Dtype::Int32 => "int32_t",
        Dtype::Int16 => "int16_t",
        Dtype::Int8 => "int8_t",
        Dtype::Uint8 => "uint8_t",
        Dtype::Bool => "bool",
    }
}

/// A source, what is said of it and what it promises.
pub struct Candidate {
    /// The schedule in words.
    pub note: String,
    /// C++.
    pub source: String,
    /// Infinities and NaN come out as written; identities of real numbers do not promise that.
    pub keeps_specials: bool,
    /// Tolerance over that of a plain float32 evaluation.
    pub slack: f64,
}

/// Compares every candidate with the naive evaluation; panics with what differs.
pub fn check(meaning: &Meaning, scratch: &BTreeSet<String>, candidates: &[Candidate]) {
    let directory = tempfile::tempdir().unwrap();
    let headers = directory.path().join("c10/util");
    std::fs::create_dir_all(&headers).unwrap();
    std::fs::write(headers.join("BFloat16.h"), "#pragma once\n#include <cstdint>\nnamespace at { struct BFloat16 { uint16_t x; }; }\n")
        .unwrap();
    let main = compile(directory.path(), "main", &main_source(meaning, scratch), "-O1 -std=c++17 -fopenmp -rdynamic");
    for (number, Candidate { note, source, keeps_specials, slack }) in candidates.iter().enumerate() {
        let library = compile(directory.path(), &format!("candidate{number}.so"), source, FLAGS);
        let regimes = if *keeps_specials { "4" } else { "3" };
        let output = Command::new(&main).arg(&library).args([regimes, &slack.to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.ends_with("done\n"), "{}: {note}: {:?}\n{text}\n{source}", meaning.kernel, output.status);
    }
}

fn pointers(meaning: &Meaning) -> impl Iterator<Item = &Argument> {
    meaning.arguments.iter().filter(|argument| argument.role != Role::Size)
}

/// The buffer that owns the storage of `name`, and where `name` begins in it.
fn root(meaning: &Meaning, name: &str) -> (String, Expr) {
    let Some(buffer) = meaning.buffers.get(name) else { return (name.to_owned(), Expr::Int(0)) };
    if let Some(of) = &buffer.mutates {
        return root(meaning, of);
    }
    match &buffer.alias {
        Some(alias) => {
            let (of, offset) = root(meaning, &alias.of);
            (of, Expr::add(vec![offset, alias.offset.clone()]))
        }
        None => (name.to_owned(), Expr::Int(0)),
    }
}

/// Elements from the pointer's start to the end of the buffer.
fn elements(meaning: &Meaning, name: &str) -> String {
    let Some(buffer) = meaning.buffers.get(name) else { return "0".into() };
    let reach =
        buffer.size.iter().zip(&buffer.stride).map(|(size, stride)| format!("({} - 1) * {}", naive::index(size), naive::index(stride)));
    [naive::index(&buffer.offset)].into_iter().chain(reach).collect::<Vec<_>>().join(" + ") + " + 1"
}

/// Bound of the indices that the kernel reads from `buffer`, if it does.
fn index_bound(body: &[Statement], buffer: &str) -> Option<Expr> {
    let loads = |id: u32| body.iter().any(|s| s.id == id && matches!(&s.operation, Operation::Load { buffer: b, .. } if b == buffer));
    body.iter().find_map(|statement| match &statement.operation {
        Operation::Indirect { value, size, .. } if loads(*value) => Some(size.clone()),
        Operation::Masked { body, .. } => index_bound(body, buffer),
        _ => None,
    })
}

fn main_source(meaning: &Meaning, scratch: &BTreeSet<String>) -> String {
    let mut out = String::from(include_str!("main_head.hpp"));
    out.push_str(&naive::source(meaning));
    let types = meaning.arguments.iter().map(|a| a.c_type.as_str()).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, "using Kernel = void (*)({types});\nint main(int, char** argv) {{");
    out.push_str("  Kernel kernel = reinterpret_cast<Kernel>(load(argv[1]));\n");
    for (name, value) in &meaning.symbols {
        let _ = writeln!(out, "  const int64_t {name} = {value}; (void){name};");
    }
    out.push_str("  bool good = true;\n  for (int regime = 0; regime < std::atoi(argv[2]); ++regime) {\n");
    out.push_str("    std::map<std::string, Block> blocks; std::map<std::string, std::vector<double>> values; std::map<std::string, double*> memory;\n");
    for argument in pointers(meaning) {
        let entry = &argument.buffers[0];
        let (owner, offset) = root(meaning, entry);
        let dtype = meaning.buffers.get(entry).map_or(Dtype::Float32, |b| b.dtype);
        let bound = meaning.nodes.iter().find_map(|node| index_bound(&node.body, entry)).map_or("0".into(), |size| naive::index(&size));
        let reaches = argument.buffers.iter().chain([&owner]).map(|b| elements(meaning, b)).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            out,
            "    blocks[\"{owner}\"].reserve<{}>({} + std::max({{{reaches}, int64_t(0)}}), {bound}, regime, {});",
            c_type(dtype),
            naive::index(&offset),
            argument.role != Role::Out
        );
    }
    for name in meaning.buffers.keys() {
        let (owner, offset) = root(meaning, name);
        let own = if owner == *name { elements(meaning, name) } else { "0".into() };
        let _ = writeln!(
            out,
            "    if (values[\"{owner}\"].empty()) values[\"{owner}\"] = blocks.count(\"{owner}\") ? blocks[\"{owner}\"].doubles() : std::vector<double>({}, NAN);",
            elements(meaning, &owner)
        );
        let _ = writeln!(out, "    memory[\"{name}\"] = values[\"{owner}\"].data() + {}; (void)({own});", naive::index(&offset));
    }
    out.push_str("    naive(memory);\n    kernel(");
    let call = meaning.arguments.iter().map(|argument| match argument.role {
        Role::Size => naive::index(argument.value.as_ref().unwrap()),
        _ => {
            let (owner, offset) = root(meaning, &argument.buffers[0]);
            let entry = meaning.buffers.get(&argument.buffers[0]).map_or(Dtype::Float32, |b| b.dtype);
            format!("blocks[\"{owner}\"].pointer<{}>() + {}", c_type(entry), naive::index(&offset))
        }
    });
    out.push_str(&call.collect::<Vec<_>>().join(", "));
    out.push_str(");\n");
    for argument in pointers(meaning) {
        let (owner, offset) = root(meaning, &argument.buffers[0]);
        let (last, last_offset) = root(meaning, argument.buffers.last().unwrap());
        if argument.role == Role::In {
            let _ = writeln!(out, "    good &= blocks[\"{owner}\"].guarded(\"{}\");", argument.name);
        } else if !scratch.contains(&argument.name) {
            let _ = writeln!(
                out,
                "    good &= blocks[\"{owner}\"].compare(\"{}\", regime, std::atof(argv[3]), {}, values[\"{last}\"].data() + {}, {});",
                argument.name,
                naive::index(&offset),
                naive::index(&last_offset),
                elements(meaning, argument.buffers.last().unwrap())
            );
        }
    }
    out.push_str("  }\n  std::puts(good ? \"done\" : \"bad\");\n  return good ? 0 : 1;\n}\n");
    out
}
