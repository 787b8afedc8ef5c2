//! The agents: what they are, what they can take, whether they live.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kernelopt_shared::message::{AgentId, AgentMode, Beat, DeviceClass, Lease, TaskId};

/// How long an agent that was not heard of is still shown.
const SHOWN: Duration = Duration::from_secs(3600);

/// One agent as last heard of.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its last beat.
    pub beat: Beat,
    /// Its class.
    pub class: DeviceClass,
    /// When it was last heard of.
    pub heard: Instant,
    /// Tasks that it failed in a row.
    pub streak: Vec<TaskId>,
    /// Tasks that it did.
    pub done: u64,
    /// Tasks that it failed.
    pub failed: u64,
    /// It is not there any more, and how it went.
    pub gone: Option<Gone>,
}

/// How an agent went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It said good-bye.
    Left,
    /// It was not heard of for too long.
    Silent,
}

impl Member {
    /// Tasks that it can hold now.
    pub fn capacity(&self) -> usize {
        if self.gone.is_some() || self.beat.mode != AgentMode::Working { 0 } else { self.beat.capacity.clamp(1, 64) as usize }
    }
}

/// All agents.
#[derive(Debug, Default)]
pub struct Roster {
    members: BTreeMap<AgentId, Member>,
}

/// What a beat told that was not known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// It is new, or came back, or was started again.
    pub arrived: bool,
    /// It was started again: what it held before is lost.
    pub restarted: bool,
    /// It went into quarantine, with what it failed in a row.
    pub quarantined: Option<(String, Vec<TaskId>)>,
    /// It left quarantine.
    pub readmitted: bool,
}

impl Roster {
    /// Takes a beat.
    pub fn hear(&mut self, beat: Beat, now: Instant) -> News {
        let class = beat.device.class();
        let Some(member) = self.members.get_mut(&beat.agent) else {
            let quarantined = quarantine(&beat.mode).map(|reason| (reason, Vec::new()));
            let agent = beat.agent.clone();
            self.members.insert(agent, Member { beat, class, heard: now, streak: Vec::new(), done: 0, failed: 0, gone: None });
            return News { arrived: true, quarantined, ..News::default() };
        };
        let restarted = member.beat.incarnation != beat.incarnation;
        let (was, is) = (quarantine(&member.beat.mode), quarantine(&beat.mode));
        let news = News {
            arrived: member.gone.is_some() || restarted,
            restarted,
            readmitted: was.is_some() && beat.mode == AgentMode::Working,
            quarantined: is.filter(|_| was.is_none()).map(|reason| (reason, std::mem::take(&mut member.streak))),
        };
        (member.beat, member.class, member.heard, member.gone) = (beat, class, now, None);
        news
    }

    /// An agent.
    pub fn get(&self, agent: &AgentId) -> Option<&Member> {
        self.members.get(agent)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &Member)> {
        self.members.iter()
    }

    /// It said good-bye.
    pub fn leave(&mut self, agent: &AgentId) {
        if let Some(member) = self.members.get_mut(agent) {
            member.gone = Some(Gone::Left);
        }
    }

    /// It did a task.
    pub fn did(&mut self, agent: &AgentId) {
        if let Some(member) = self.members.get_mut(agent) {
            member.done += 1;
            member.streak.clear();
        }
    }

    /// It failed a task.
    pub fn failed(&mut self, agent: &AgentId, task: TaskId) {
        if let Some(member) = self.members.get_mut(agent) {
            member.failed += 1;
            member.streak.push(task);
        }
    }

    /// Marks those that were not heard of for `silence` as gone and returns them; forgets those that are gone for long.
    pub fn silent(&mut self, now: Instant, silence: Duration) -> Vec<AgentId> {
        let age = |member: &Member| now.saturating_duration_since(member.heard);
        self.members.retain(|_, member| member.gone.is_none() || age(member) < SHOWN);
        let silent = self.members.iter_mut().filter(|(_, member)| member.gone.is_none() && age(member) > silence);
        silent
            .map(|(agent, member)| {
                member.gone = Some(Gone::Silent);
                agent.clone()
            })
            .collect()
    }

    /// Classes that have an agent which is not gone.
    pub fn classes(&self) -> BTreeSet<DeviceClass> {
        self.members.values().filter(|member| member.gone.is_none()).map(|member| member.class.clone()).collect()
    }

    /// Tasks that all agents of a class can hold now.
    pub fn capacity(&self, class: &DeviceClass) -> usize {
        self.members.values().filter(|member| member.class == *class).map(Member::capacity).sum()
    }

    /// Working agents of a class.
    pub fn working(&self, class: &DeviceClass) -> impl Iterator<Item = (&AgentId, &Member)> {
        self.members.iter().filter(move |(_, member)| member.class == *class && member.capacity() > 0)
    }

    /// The working agent of a class that holds least, on a device that is none of `devices`, and is none of `agents`.
    pub fn elsewhere(&self, class: &DeviceClass, devices: &BTreeSet<String>, agents: &BTreeSet<AgentId>) -> Option<AgentId> {
        let others = self.working(class).filter(|(id, member)| !devices.contains(&member.beat.device.uuid) && !agents.contains(*id));
        others.min_by_key(|(_, member)| member.beat.holds.len()).map(|(agent, _)| agent.clone())
    }

    /// True where the agent was last heard to hold the lease.
    pub fn holds(&self, agent: &AgentId, lease: Lease) -> bool {
        self.members.get(agent).is_some_and(|member| member.beat.holds.contains(&lease))
    }
}

fn quarantine(mode: &AgentMode) -> Option<String> {
    match mode {
        AgentMode::Quarantined { reason } => Some(reason.clone()),
        AgentMode::Working | AgentMode::Draining => None,
    }
}
