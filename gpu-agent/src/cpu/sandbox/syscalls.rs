//! Names of the system calls that a candidate might try, for messages.

macro_rules! names {
    ($($(#[$attribute:meta])* $constant:ident),* $(,)?) => {
        /// Name of a system call of this architecture, `socket`; `number 999` where it is not in the table.
        pub(in crate::cpu) fn name(number: u64) -> String {
            let known = libc::c_long::try_from(number).ok().and_then(|number| match number {
                $($(#[$attribute])* libc::$constant => stringify!($constant).strip_prefix("SYS_"),)*
                _ => None,
            });
            known.map_or_else(|| format!("number {number}"), str::to_owned)
        }
    };
}

names! {
    SYS_accept, SYS_accept4, SYS_add_key, SYS_bind, SYS_bpf, SYS_capset, SYS_chdir, SYS_chroot, SYS_clone, SYS_clone3, SYS_close,
    SYS_close_range, SYS_connect, SYS_copy_file_range, SYS_dup, SYS_dup3, SYS_epoll_create1, SYS_eventfd2, SYS_execve, SYS_execveat,
    SYS_faccessat, SYS_fallocate, SYS_fchdir, SYS_fchmod, SYS_fchmodat, SYS_fchownat, SYS_fcntl, SYS_fstat, SYS_fsync, SYS_ftruncate,
    SYS_getcwd, SYS_getdents64, SYS_getpgid, SYS_getppid, SYS_getrusage, SYS_getsockname, SYS_getsockopt, SYS_getuid,
    SYS_inotify_init1, SYS_io_setup, SYS_io_uring_setup, SYS_ioctl, SYS_kill, SYS_linkat, SYS_listen, SYS_lseek, SYS_memfd_create,
    SYS_mincore, SYS_mkdirat, SYS_mknodat, SYS_mlock, SYS_mmap, SYS_mount, SYS_mprotect, SYS_msync, SYS_name_to_handle_at, SYS_newfstatat,
    SYS_openat, SYS_openat2, SYS_perf_event_open, SYS_personality, SYS_pidfd_getfd, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_pipe2,
    SYS_pkey_mprotect, SYS_ppoll, SYS_prctl, SYS_pread64, SYS_prlimit64, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pselect6,
    SYS_ptrace, SYS_pwrite64, SYS_read, SYS_readlinkat, SYS_readv, SYS_reboot, SYS_recvfrom, SYS_recvmsg, SYS_renameat2,
    SYS_rt_sigaction, SYS_rt_sigqueueinfo, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo, SYS_sched_setaffinity,
    SYS_sched_setattr, SYS_sched_setscheduler, SYS_seccomp, SYS_sendfile, SYS_sendmsg, SYS_sendto, SYS_setitimer, SYS_setns, SYS_setpgid,
    SYS_setpriority, SYS_setresuid, SYS_setrlimit, SYS_setsid, SYS_setsockopt, SYS_setuid, SYS_shmat, SYS_shmget, SYS_shutdown,
    SYS_sigaltstack, SYS_signalfd4, SYS_socket, SYS_socketpair, SYS_splice, SYS_statx, SYS_symlinkat, SYS_tgkill, SYS_timer_create,
    SYS_timerfd_create, SYS_tkill, SYS_umask, SYS_uname, SYS_unlinkat, SYS_unshare, SYS_userfaultfd, SYS_vmsplice, SYS_wait4,
    SYS_waitid, SYS_write, SYS_writev,
    #[cfg(target_arch = "x86_64")]
    SYS_access,
    #[cfg(target_arch = "x86_64")]
    SYS_alarm,
    #[cfg(target_arch = "x86_64")]
    SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    SYS_fork,
    #[cfg(target_arch = "x86_64")]
    SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    SYS_open,
    #[cfg(target_arch = "x86_64")]
    SYS_pause,
    #[cfg(target_arch = "x86_64")]
    SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    SYS_poll,
    #[cfg(target_arch = "x86_64")]
    SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    SYS_rename,
    #[cfg(target_arch = "x86_64")]
    SYS_select,
    #[cfg(target_arch = "x86_64")]
    SYS_stat,
    #[cfg(target_arch = "x86_64")]
    SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    SYS_vfork,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(name(libc::SYS_socket as u64), "socket");
        assert_eq!(name(100_000), "number 100000");
        assert_eq!(name(u64::MAX), format!("number {}", u64::MAX));
    }
}
