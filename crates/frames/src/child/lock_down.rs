//! Gives up the rights of a child, before it sees the first byte of a file: such bytes are made to take over what decodes them.
//!
//! What is left is to compute, to take memory within a limit, to talk over the socket that is open, and to exit. Any other call of the
//! system ends the process.

use std::{collections::BTreeMap, fs};

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Memory beside that of frames: tables of decoders, packets, and what messages take.
const BASE_BYTES: u64 = 256 << 20;
/// Memory for each pixel of a frame: some twenty frames of three bytes a pixel, as decoders keep them for reference, or ten of six bytes,
/// and one to hand over.
const PIXEL_BYTES: u64 = 72;
/// The descriptors that a child may have: the first three, a pipe, and memory that is mapped.
const DESCRIPTORS: u64 = 16;

/// Calls that are allowed whatever their arguments are.
const ALLOWED: [libc::c_long; 20] = [
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads that there are already, and time.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    // Messages. No other socket is open.
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_close,
    // The end.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
];

/// Calls that are allowed where they do not make memory executable.
const WITHOUT_EXECUTION: [libc::c_long; 2] = [libc::SYS_mmap, libc::SYS_mprotect];

/// Gives up the rights, for all threads.
///
/// # Errors
/// What the system does not have.
pub(super) fn lock_down(max_pixels: u64) -> Result<(), String> {
    let now = mapped_bytes().ok_or("the system does not say how much memory a process has")?;
    let memory = max_pixels.saturating_mul(PIXEL_BYTES).saturating_add(BASE_BYTES).saturating_add(now);
    for (resource, limit) in [
        (Resource::As, memory),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
    ] {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).map_err(|error| format!("{resource:?} cannot be limited: {error}"))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("privileges cannot be given up: {error}"))?;
    let problem = |error: &dyn std::fmt::Display| format!("system calls cannot be limited: {error}");
    let filter = filter().map_err(|error| problem(&error))?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| problem(&error))
}

/// Frees memory, so that the allocator of glibc gives some back. Where this is not the first thread of the process, it then opens a file of
/// settings once, which it must not do later.
pub(super) fn let_allocator_ask() {
    const BYTES: usize = 64 << 10;
    let taken: [Vec<u8>; 16] = std::array::from_fn(|_| Vec::with_capacity(BYTES));
    drop(std::hint::black_box(taken));
}

/// Makes the filter of system calls.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.map(|call| (call, Vec::new())).into();
    let flag = u64::from(libc::PROT_EXEC.unsigned_abs());
    for call in WITHOUT_EXECUTION {
        let no_flag = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), 0)?;
        rules.insert(call, vec![SeccompRule::new(vec![no_flag])?]);
    }
    // What builds with all checks ask of a descriptor before they close it.
    let is_asked =
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(libc::F_GETFD.unsigned_abs()))?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![is_asked])?]);
    let here = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, here)?.try_into()
}

/// Returns the bytes of address space that this process has taken.
fn mapped_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")?.trim().parse().ok());
    size.map(|kibibytes: u64| kibibytes << 10)
}
