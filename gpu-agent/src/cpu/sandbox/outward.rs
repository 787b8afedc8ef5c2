//! System calls that reach beyond a process's own tree, refused (seccomp, a deny-list in BPF).
//!
//! For programs that we do not know call by call, Python and the compilers that it starts: an allow-list would break with every
//! release of theirs. Files are landlock's part; this is the rest: sockets, other processes, namespaces, the
//! kernel's own interfaces. A refused call fails with EPERM.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use super::filter::FilterError;

/// Installs the filter on this thread and all that it becomes or starts, for ever. Needs `no_new_privs`.
pub(crate) fn refuse_outward_calls() -> Result<(), FilterError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| FilterError::Architecture)?;
    let program = |rules, action| -> Result<BpfProgram, FilterError> {
        Ok(SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(action as u32), arch)?.try_into()?)
    };
    // clone3 passes its flags in memory, where a filter cannot look; glibc falls back to clone.
    apply_filter(&program(both_numberings(libc::SYS_clone3).map(|call| (call, Vec::new())).collect(), libc::ENOSYS)?)?;
    apply_filter(&program(refused()?, libc::EPERM)?)?;
    Ok(())
}

fn refused() -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, FilterError> {
    let mut rules: BTreeMap<_, _> = REFUSED.iter().flat_map(|&call| both_numberings(call)).map(|call| (call, Vec::new())).collect();
    for call in both_numberings(libc::SYS_clone) {
        let namespaces = NAMESPACES.iter().map(|&flag| {
            let flag = u64::from(flag.cast_unsigned());
            SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?])
        });
        rules.insert(call, namespaces.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// A call's number, and on x86-64 also that of the x32 interface, which a kernel may offer to the same program.
fn both_numberings(call: libc::c_long) -> impl Iterator<Item = libc::c_long> {
    const X32: libc::c_long = 0x4000_0000; // __X32_SYSCALL_BIT
    [Some(call), cfg!(target_arch = "x86_64").then_some(call | X32)].into_iter().flatten()
}

const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

const REFUSED: &[libc::c_long] = &[
    // The network, and rings that open it by another way.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_io_uring_setup,
    // Other processes; and leaving the group that is killed as one.
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_setpgid,
    libc::SYS_setsid,
    // Memory and queues that outlive their makers.
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_shmget,
    // Namespaces and mounts.
    libc::SYS_chroot,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Files by handle, past landlock's paths; devices.
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The kernel.
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];
