//! How long it takes to read real files, the greatest of 0.26 MB: text to graph, graph to dataflow facts, and back to text.

#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kernelopt_coordinator::inductor::dataflow::Dataflow;
use kernelopt_coordinator::inductor::{ModelFile, Replacements};

fn benches(criterion: &mut Criterion) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/captures");
    for name in ["cuda-h200/llama", "cuda-h200/bert", "cpu/block_static"] {
        let path = root.join(name).join("output_code_0.py");
        let Ok(text) = fs::read_to_string(&path) else { panic!("{} cannot be read", path.display()) };
        let Ok(file) = ModelFile::parse(&text) else { panic!("{} does not parse", path.display()) };
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(text.len() as u64)).sample_size(20);
        group.bench_function("parse", |bencher| bencher.iter(|| ModelFile::parse(black_box(&text))));
        group.bench_function("dataflow", |bencher| bencher.iter(|| Dataflow::of(black_box(&file))));
        group.bench_function("write", |bencher| bencher.iter(|| file.write(black_box(&Replacements::new()))));
        group.finish();
    }
}

criterion_group!(parse, benches);
criterion_main!(parse);
