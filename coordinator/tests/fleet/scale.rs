//! A thousand agents and a hundred jobs.

use std::time::{Duration, Instant};

use kernelopt_shared::message::JobId;

use crate::crew::{Crew, terms};

#[test]
fn a_thousand_agents_share_among_a_hundred_jobs() {
    let mut crew = Crew::new(1000);
    for number in 0..100u32 {
        let weight = if number % 2 == 0 { 10 } else { 20 };
        crew.drill(&format!("job{number:02}"), 100_000, Duration::from_secs(1), terms(weight, 5));
    }
    let started = Instant::now();
    crew.run(Duration::from_secs(60));
    let done = crew.done();
    let count = |number: u32| done.get(&JobId::parse(&format!("job{number:02}")).unwrap()).map_or(0, Vec::len) as f64;
    let total: f64 = (0..100).map(count).sum();
    assert!(total > 1000.0 * 45.0, "{total} tasks in a minute: agents wait");
    for number in 0..100 {
        let fair = total * if number % 2 == 0 { 1.0 } else { 2.0 } / 150.0;
        assert!((count(number) / fair - 1.0).abs() < 0.1, "job {number}: {} tasks, {fair:.0} are its share", count(number));
    }
    assert!(crew.fleet.leases().len() <= 2000);
    println!("{total} tasks in {:?} of the core's time", started.elapsed());
}
