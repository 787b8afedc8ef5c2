//! Which system calls a candidate may make (seccomp, allow-lists in BPF).
//!
//! Two stages, each for every thread of the process. [`Stage::Loading`] is the wall: it already has no network, no processes, no
//! signals and no writing, and holds while the loader runs the candidate's constructors. [`Stage::Running`] then takes
//! away what only the loader needs: opening and mapping files, executable memory, installing further filters.
//!
//! A refused call does not happen; the process gets SIGSYS, whose handler says which call it was (`trap.rs`). A candidate that
//! breaks the handler loses the label, never gains the call.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

use super::CONTROL_FD;

/// What the process is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Stage {
    /// The dynamic loader maps the candidate's library and runs its constructors.
    Loading,
    /// The candidate's kernel is launched.
    Running,
}

/// A filter cannot be built or installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    /// seccomp is known for x86-64 and aarch64 only.
    #[error("no system call filter for {}", std::env::consts::ARCH)]
    Architecture,
    /// The compiler of filters refused ours.
    #[error("system call filter: {0}")]
    Build(#[from] seccompiler::BackendError),
    /// The kernel refused it.
    #[error("system call filter: {0}")]
    Install(#[from] seccompiler::Error),
}

/// Installs the filters of `stage` on all threads, for ever.
pub(in crate::cpu) fn install(stage: Stage) -> Result<(), FilterError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| FilterError::Architecture)?;
    let allowed: BpfProgram = SeccompFilter::new(allowed(stage)?, SeccompAction::Trap, SeccompAction::Allow, arch)?.try_into()?;
    let absent: BpfProgram =
        SeccompFilter::new(absent(stage), SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32), arch)?.try_into()?;
    seccompiler::apply_filter_all_threads(&absent)?;
    seccompiler::apply_filter_all_threads(&allowed)?;
    Ok(())
}

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Calls that are answered with ENOSYS: honest libraries make them and know what to do without.
fn absent(stage: Stage) -> Rules {
    // clone3 passes its flags in memory, where a filter cannot look; glibc falls back to clone. newfstatat takes a path; stdio
    // asks it about its own descriptor and buffers fully without an answer.
    let calls = match stage {
        Stage::Loading => &[libc::SYS_clone3][..],
        Stage::Running => &[libc::SYS_clone3, libc::SYS_newfstatat],
    };
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

/// Calls that go through.
fn allowed(stage: Stage) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = ALWAYS.iter().map(|&call| (call, Vec::new())).collect();
    rules.extend(absent(stage));
    let memory = match stage {
        Stage::Loading => vec![masked(3, libc::MAP_TYPE, libc::MAP_PRIVATE)?],
        Stage::Running => vec![masked(3, libc::MAP_TYPE, libc::MAP_PRIVATE)?, masked(2, libc::PROT_EXEC, 0)?],
    };
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(memory)?]);
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![masked_wide(0, CLONE_CHECKED, CLONE_THREAD)?])?]);
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![equal_wide(2, 0)?])?]);
    // abort() raises its signal with tgkill; any other signal, and any other process, is refused.
    let abort = vec![equal(0, std::process::id())?, equal(2, libc::SIGABRT as u32)?];
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(abort)?]);
    // The first thread makes glibc install handlers for two signals of its own, just below those that programs may use.
    let own = [32, 33].map(|signal| SeccompRule::new(vec![equal(0, signal)?]));
    rules.insert(libc::SYS_rt_sigaction, own.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_write, on_descriptors(&[1, 2, CONTROL_FD as u32])?);
    rules.insert(libc::SYS_writev, on_descriptors(&[1, 2])?);
    match stage {
        Stage::Loading => allow_loader(&mut rules)?,
        Stage::Running => {
            rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![masked(2, libc::PROT_EXEC, 0)?])?]);
            rules.insert(libc::SYS_read, on_descriptors(&[CONTROL_FD as u32])?);
        }
    }
    Ok(rules)
}

/// What dlopen does, and what installing the second stage takes.
fn allow_loader(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    for call in
        [libc::SYS_read, libc::SYS_pread64, libc::SYS_lseek, libc::SYS_close, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_mprotect]
    {
        rules.insert(call, Vec::new());
    }
    const WRITING: i32 = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_TMPFILE & !libc::O_DIRECTORY;
    rules.insert(libc::SYS_openat, vec![SeccompRule::new(vec![masked(2, WRITING, libc::O_RDONLY)?])?]);
    rules.insert(
        libc::SYS_seccomp,
        vec![SeccompRule::new(vec![equal(0, libc::SECCOMP_SET_MODE_FILTER)?, equal(1, libc::SECCOMP_FILTER_FLAG_TSYNC as u32)?])?],
    );
    rules.insert(libc::SYS_prctl, vec![SeccompRule::new(vec![equal(0, libc::PR_SET_NO_NEW_PRIVS as u32)?])?]);
    Ok(())
}

/// Memory, threads of this process, time: no argument of these reaches outside.
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sysinfo,
];

/// A new thread has all of these.
const CLONE_THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_FILES | libc::CLONE_FS) as u64;
/// And none of the rest of these: namespaces, tracing, another parent.
const CLONE_CHECKED: u64 = CLONE_THREAD
    | (libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_PARENT
        | libc::CLONE_PTRACE
        | libc::CLONE_UNTRACED
        | libc::CLONE_VFORK) as u64;

fn on_descriptors(descriptors: &[u32]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    descriptors.iter().map(|&fd| SeccompRule::new(vec![equal(0, fd)?])).collect()
}

fn equal(argument: u8, value: u32) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())
}

fn equal_wide(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
}

fn masked(argument: u8, mask: i32, value: i32) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask as u32 as u64), value as u32 as u64)
}

fn masked_wide(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(mask), value)
}
