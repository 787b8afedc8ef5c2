//! Whose turn it is among jobs of one priority: fair share by weight.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng 1996): every job has a virtual time that rises by what its tasks cost over its weight;
//! the job that is furthest behind is served. A job that comes, or comes back, starts where the others are, so that idleness earns nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use kernelopt_shared::message::{DeviceClass, JobId};

/// Tasks of one job in a row: an agent that stays with a target keeps its inputs and truth, which take a second to make.
const BURST: u32 = 4;
/// What a task of unknown cost is taken to cost, in milliseconds.
const GUESS_MS: f64 = 500.0;

/// Virtual times of the jobs.
#[derive(Debug, Default)]
pub struct Shares {
    jobs: BTreeMap<JobId, Account>,
    lines: BTreeMap<DeviceClass, Line>,
}

#[derive(Debug)]
struct Account {
    virtual_ms: f64,
    weight: f64,
    /// Running mean of what a task cost.
    mean_ms: f64,
    /// It had nothing to be done when it was last asked.
    idle: bool,
}

/// The jobs that wait for devices of one class.
#[derive(Debug, Default)]
struct Line {
    /// Virtual time at which the last one was served.
    now_ms: f64,
    /// Who may go on, and for how many tasks.
    turn: Option<(JobId, u32)>,
}

impl Shares {
    /// A job with this weight takes part.
    pub fn join(&mut self, job: &JobId, weight: u32) {
        self.jobs.entry(job.clone()).or_insert(Account {
            virtual_ms: 0.0,
            weight: f64::from(weight.max(1)),
            mean_ms: GUESS_MS,
            idle: true,
        });
    }

    /// It takes part no more.
    pub fn leave(&mut self, job: &JobId) {
        self.jobs.remove(job);
        for line in self.lines.values_mut() {
            line.turn.take_if(|(turn, _)| turn == job);
        }
    }

    /// Orders jobs that wait for devices of `class`: the first is served first.
    pub fn order(&mut self, class: &DeviceClass, jobs: &mut [JobId]) {
        let line = self.lines.entry(class.clone()).or_default();
        for job in &*jobs {
            if let Some(account) = self.jobs.get_mut(job).filter(|account| account.idle) {
                (account.virtual_ms, account.idle) = (account.virtual_ms.max(line.now_ms), false);
            }
        }
        let goes_on = |job: &JobId| line.turn.as_ref().is_some_and(|(turn, left)| turn == job && *left > 0);
        let time = |job: &JobId| self.jobs.get(job).map_or(line.now_ms, |account| account.virtual_ms);
        jobs.sort_by(|a, b| goes_on(b).cmp(&goes_on(a)).then(time(a).total_cmp(&time(b))).then_with(|| a.cmp(b)));
    }

    /// A task of `job` was given to devices of `class`.
    pub fn served(&mut self, job: &JobId, class: &DeviceClass) {
        let line = self.lines.entry(class.clone()).or_default();
        match &mut line.turn {
            Some((turn, left)) if turn == job && *left > 0 => *left -= 1,
            turn => *turn = Some((job.clone(), BURST - 1)),
        }
        if let Some(account) = self.jobs.get_mut(job) {
            line.now_ms = account.virtual_ms;
            account.virtual_ms += account.mean_ms / account.weight;
        }
    }

    /// A job was asked and has nothing to be done now: when it has, it starts where the others are then.
    pub fn idle(&mut self, job: &JobId) {
        if let Some(account) = self.jobs.get_mut(job) {
            account.idle = true;
        }
    }

    /// A task of `job` took this long.
    pub fn cost(&mut self, job: &JobId, took: Duration) {
        let Some(account) = self.jobs.get_mut(job) else { return };
        let took_ms = took.as_secs_f64() * 1e3;
        account.virtual_ms += (took_ms - account.mean_ms) / account.weight;
        account.mean_ms += (took_ms - account.mean_ms) / 8.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> DeviceClass {
        DeviceClass::parse("h200").unwrap()
    }

    fn job(name: &str) -> JobId {
        JobId::parse(name).unwrap()
    }

    /// Serves `rounds` tasks to jobs that always have one and returns the milliseconds that each got.
    fn serve(shares: &mut Shares, jobs: &[(&str, f64)], rounds: usize) -> Vec<f64> {
        let mut got = vec![0.0; jobs.len()];
        for _ in 0..rounds {
            let mut waiting: Vec<JobId> = jobs.iter().map(|(name, _)| job(name)).collect();
            shares.order(&class(), &mut waiting);
            let (first, index) = (&waiting[0], jobs.iter().position(|(name, _)| *name == waiting[0].as_str()).unwrap());
            shares.served(first, &class());
            shares.cost(first, Duration::from_secs_f64(jobs[index].1 / 1e3));
            got[index] += jobs[index].1;
        }
        got
    }

    #[test]
    fn time_is_shared_by_weight_however_long_tasks_are() {
        let mut shares = Shares::default();
        [("a", 10), ("b", 10), ("c", 30)].iter().for_each(|(name, weight)| shares.join(&job(name), *weight));
        let got = serve(&mut shares, &[("a", 100.0), ("b", 900.0), ("c", 300.0)], 3000);
        let total: f64 = got.iter().sum();
        let share: Vec<f64> = got.iter().map(|ms| ms / total).collect();
        assert!((share[0] - 0.2).abs() < 0.02 && (share[1] - 0.2).abs() < 0.02 && (share[2] - 0.6).abs() < 0.03, "{share:?}");
    }

    #[test]
    fn a_newcomer_waits_for_one_turn_and_gets_no_more_than_its_share() {
        let mut shares = Shares::default();
        shares.join(&job("old"), 10);
        serve(&mut shares, &[("old", 500.0)], 1000);
        shares.join(&job("new"), 10);
        let mut waiting = 0;
        loop {
            let mut both = [job("old"), job("new")];
            shares.order(&class(), &mut both);
            if both[0] == job("new") {
                break;
            }
            shares.served(&both[0], &class());
            waiting += 1;
        }
        assert!(waiting <= BURST, "{waiting}");
        let got = serve(&mut shares, &[("old", 500.0), ("new", 500.0)], 200);
        assert!((got[0] - got[1]).abs() <= 2.0 * 500.0 * f64::from(BURST), "{got:?}");
    }
}
