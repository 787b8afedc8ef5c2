//! What kernels look like, and how they are launched.

use std::collections::BTreeSet;

use kernelopt_coordinator::schedule::space::Statistics;
use kernelopt_coordinator::schedule::triton::space::{Schedule, Shape, Softmax};
use kernelopt_coordinator::schedule::triton::{Kernel, kernel};
use kernelopt_shared::meaning::Expr;

use super::fixtures::load;

fn under(name: &str, schedule: &Schedule) -> Result<Kernel, String> {
    kernel(&load(name).meaning, &BTreeSet::new(), schedule).map_err(|why| why.to_string())
}

fn sized(shape: Shape, x_block: u32, r_block: u32, warps: u32) -> Schedule {
    Schedule { shape, x_block, r_block, warps, ..Schedule::default() }
}

#[test]
fn softmax_of_whole_rows() {
    insta::assert_snapshot!(under("softmax_h200", &sized(Shape::Row, 1, 32768, 16)).unwrap().source);
}

#[test]
fn log_sum_exp_in_one_pass() {
    let schedule = Schedule { stages: 3, ..sized(Shape::Loop, 1, 2048, 16) };
    insta::assert_snapshot!(under("cross_entropy_h200", &schedule).unwrap().source);
}

#[test]
fn running_statistics_of_parts_of_rows() {
    let schedule = Schedule { statistics: Statistics::Running, ..sized(Shape::Loop, 1, 4096, 8) };
    insta::assert_snapshot!(under("group_norm_parts_h200", &schedule).unwrap().source);
}

#[test]
fn layer_norm_by_running_statistics() {
    let schedule = Schedule { statistics: Statistics::Running, ..sized(Shape::Loop, 1, 1024, 4) };
    insta::assert_snapshot!(under("layer_norm_long", &schedule).unwrap().source);
}

#[test]
fn rotary_embedding_once_for_all_heads() {
    insta::assert_snapshot!(under("rope_queries_h200", &sized(Shape::Tile(0), 32, 64, 2)).unwrap().source);
}

#[test]
fn layer_norm_of_several_rows() {
    insta::assert_snapshot!(under("layer_norm", &sized(Shape::Row, 2, 512, 4)).unwrap().source);
}

#[test]
fn one_program_per_block() {
    let programs = |name: &str, schedule: &Schedule| under(name, schedule).unwrap().programs;
    assert_eq!(programs("silu_mul_h200", &sized(Shape::Flat, 1024, 1, 4)), Expr::Int(4096 * 5632 / 1024));
    assert_eq!(programs("gelu", &sized(Shape::Flat, 256, 1, 4)), Expr::Int(4));
    assert_eq!(programs("softmax_h200", &sized(Shape::Loop, 1, 4096, 8)), Expr::Int(4096));
    assert_eq!(programs("masked_softmax_h200", &sized(Shape::Row, 4, 512, 4)), Expr::Int(32 * 12 * 512 / 4));
    assert_eq!(programs("transpose_h200", &sized(Shape::Tile(0), 32, 64, 4)), Expr::Int(32 * 768 / 32 * 512 / 64));
    let resident = Schedule { resident: Some(264), ..sized(Shape::Flat, 1024, 1, 4) };
    let kernel = under("silu_mul_h200", &resident).unwrap();
    assert_eq!(kernel.programs, Expr::Int(264));
    assert!(kernel.source.contains("for tile in tl.range(tl.program_id(0), 22528, tl.num_programs(0)):"), "{}", kernel.source);
}

#[test]
fn bounds_are_checked_only_where_they_cut_a_block() {
    let masks = |schedule: &Schedule| under("softmax", schedule).unwrap().source.matches("mask").count();
    assert!(masks(&sized(Shape::Row, 1, 4096, 8)) > 0);
    assert!(!under("softmax_h200", &sized(Shape::Loop, 1, 4096, 8)).unwrap().source.contains("mask"));
    assert!(!under("gelu", &sized(Shape::Flat, 2, 1, 1)).unwrap().source.contains("mask"));
}

#[test]
fn offsets_beyond_32_bits_are_computed_in_64() {
    let mut meaning = load("softmax_h200").meaning;
    let text = serde_json::to_string(&meaning).unwrap().replace("\"4096\"", "\"131072\"");
    let narrow = kernel(&meaning, &BTreeSet::new(), &sized(Shape::Loop, 1, 4096, 8)).unwrap();
    meaning = serde_json::from_str(&text).unwrap();
    let wide = kernel(&meaning, &BTreeSet::new(), &sized(Shape::Loop, 1, 4096, 8)).unwrap();
    assert!(!narrow.source.contains("int64"));
    assert!(wide.source.contains("xindex = tl.program_id(0).to(tl.int64)"), "{}", wide.source);
}

#[test]
fn a_maximum_and_its_sum_take_one_pass_or_two() {
    let passes = |softmax| {
        under("softmax_h200", &Schedule { softmax, ..sized(Shape::Loop, 1, 4096, 8) }).unwrap().source.matches("for offset").count()
    };
    assert_eq!([Softmax::Lanes, Softmax::Block, Softmax::TwoPass].map(passes), [2, 2, 3]);
}

#[test]
fn what_suits_no_block_is_refused() {
    let refused = |name: &str, schedule: &Schedule| under(name, schedule).unwrap_err();
    assert!(refused("softmax_h200", &sized(Shape::Flat, 1024, 1, 4)).contains("loops"));
    assert!(refused("gelu", &sized(Shape::Row, 1, 1024, 4)).contains("loops"));
    assert!(refused("softmax_h200", &sized(Shape::Row, 1, 16384, 4)).contains("longer"));
    assert!(refused("softmax_h200", &sized(Shape::Row, 2, 32768, 4)).contains("registers"));
    assert!(refused("softmax_h200", &sized(Shape::Loop, 1, 3000, 4)).contains("power of two"));
    assert!(refused("masked_softmax", &sized(Shape::Loop, 1, 64, 1)).contains("one iteration"));
    assert!(refused("gelu", &sized(Shape::Flat, 64, 1, 32)).contains("more threads"));
    assert!(refused("gelu", &sized(Shape::Flat, 4096, 1, 8)).contains("more than all"));
}

#[test]
fn a_value_in_place_is_read_before_it_is_written() {
    for (name, schedule) in [
        ("gelu_in_place", sized(Shape::Flat, 512, 1, 4)),
        ("layer_norm_in_place", sized(Shape::Row, 2, 512, 4)),
        ("softmax_in_place", sized(Shape::Loop, 1, 1024, 4)),
    ] {
        let source = under(name, &schedule).unwrap().source;
        let last_load = source.rfind("tl.load(in_out_ptr0").unwrap();
        let first_store = source.find("tl.store(in_out_ptr0").unwrap();
        // The rest of a row comes after its whole blocks: other elements.
        let rest = source.rfind("# The rest of the row.").unwrap_or(source.len());
        assert!(last_load < first_store || first_store < rest && rest < last_load, "{name}: {source}");
    }
}

#[test]
fn what_all_rows_share_is_loaded_once() {
    let source = under("rope_keys_h200", &sized(Shape::Tile(0), 4, 512, 2)).unwrap().source;
    // Heads that repeat one another differ in where they go only.
    assert_eq!(source.lines().filter(|line| line.contains("xindex")).count(), 2, "{source}");
}
