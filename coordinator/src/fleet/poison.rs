//! Which tasks take agents with them.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::message::{AgentId, TaskId};

/// Failures of the tasks that are not done yet, by the agent that failed.
#[derive(Debug, Default)]
pub struct Charges(BTreeMap<TaskId, Vec<AgentId>>);

impl Charges {
    /// A task failed with `agent`; none: it came back for another reason.
    pub fn add(&mut self, task: TaskId, agent: Option<AgentId>) {
        if let Some(agent) = agent {
            self.0.entry(task).or_default().push(agent);
        }
    }

    /// A task was done.
    pub fn clear(&mut self, task: TaskId) {
        self.0.remove(&task);
    }

    /// An agent turned out to be bad itself: what failed with it in its last streak is not the tasks' fault.
    pub fn take_back(&mut self, agent: &AgentId, tasks: &[TaskId]) {
        for task in tasks {
            if let Some(charges) = self.0.get_mut(task) {
                charges.retain(|charged| charged != agent);
            }
        }
    }

    /// Who failed a task.
    pub fn of(&self, task: &TaskId) -> BTreeSet<AgentId> {
        self.0.get(task).into_iter().flatten().cloned().collect()
    }

    /// True where a task failed `attempts` times, not all with one agent. Where there is only one (`agents` that work), once more: after three
    /// failures it tests itself, and takes the task again only if it is not to blame.
    pub fn are_too_many(&self, task: &TaskId, attempts: usize, agents: usize) -> bool {
        let Some(charges) = self.0.get(task) else { return false };
        let different = charges.iter().collect::<BTreeSet<_>>().len();
        charges.len() >= attempts && different >= 2 || charges.len() > attempts && agents <= 1
    }

    /// `gpu1/cuda0, gpu2/cuda0 (2 times)`.
    pub fn told(&self, task: &TaskId) -> String {
        let mut counts: BTreeMap<&AgentId, usize> = BTreeMap::new();
        self.0.get(task).into_iter().flatten().for_each(|agent| *counts.entry(agent).or_default() += 1);
        let words = counts.iter().map(|(agent, count)| if *count == 1 { agent.to_string() } else { format!("{agent} ({count} times)") });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernelopt_shared::digest::Digest;

    #[test]
    fn a_task_is_poison_when_it_failed_with_different_agents() {
        let agent = |name: &str| AgentId::parse(name).unwrap();
        let (task, other) = (Digest::of([b"task".as_slice()]), Digest::of([b"other".as_slice()]));
        let mut charges = Charges::default();
        (0..3).for_each(|_| charges.add(task, Some(agent("black-hole"))));
        assert!(!charges.are_too_many(&task, 3, 1), "it has not tested itself yet");
        (3..5).for_each(|_| charges.add(task, Some(agent("black-hole"))));
        assert!(!charges.are_too_many(&task, 3, 4), "one agent may be to blame");
        assert!(charges.are_too_many(&task, 3, 1), "there is no other to ask");
        charges.add(task, Some(agent("good")));
        assert!(charges.are_too_many(&task, 3, 4));
        assert_eq!(charges.told(&task), "black-hole (5 times), good");
        charges.take_back(&agent("black-hole"), &[task]);
        assert!(!charges.are_too_many(&task, 3, 4));
        charges.add(other, None);
        assert!(!charges.are_too_many(&other, 0, 1));
    }
}
