//! What a process with an untrusted module may do: compute, and talk by the sockets that it
//! has. What the loader needs is taken away afterwards; but code of the library runs while it
//! is loaded, so that what is left before is what counts: opening system libraries, and
//! asking for attributes of files.

use braid_sys::become_user;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::fmt;

/// Memory that it may have, in bytes.
const MEMORY: u64 = 4 << 30;

/// Where libraries are that a library may need.
const LIBRARIES: [&str; 6] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];

/// What all may do that compute and talk.
const COMPUTE: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Which answers that it is not there.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    // Its sockets are connected.
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// What the loader does, where Landlock allows it.
const LOAD: &[libc::c_long] = &[libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_pread64];

/// What else comes before.
const CONFINE: &[libc::c_long] = &[libc::SYS_prctl, libc::SYS_seccomp];

/// Has this process, of one thread, be no more than a user's with no files; it may load a
/// library then.
///
/// # Errors
/// What the system lacks.
pub(super) fn before_loading(owner: Option<(u32, u32)>) -> Result<(), String> {
    if let Some((uid, gid)) = owner {
        become_user(uid, gid).map_err(|error| format!("becoming user {uid}: {error}"))?;
    }
    let limit = |resource, to| setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) });
    limit(Resource::As, MEMORY).and_then(|()| limit(Resource::Core, 0)).map_err(|error| error.to_string())?;
    no_files().map_err(|error| format!("confining it needs Landlock (Linux 6.12): {error}"))?;
    without_clone3()?;
    filter(&[COMPUTE, LOAD, CONFINE].concat())
}

/// Takes away what only loading needed.
///
/// # Errors
/// If the system does not.
pub(super) fn after_loading() -> Result<(), String> {
    filter(COMPUTE)
}

/// Only libraries can be opened, and nothing outside of this process be reached.
fn no_files() -> Result<(), landlock::RulesetError> {
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .set_compatibility(CompatLevel::BestEffort);
    for path in LIBRARIES {
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(
                path,
                AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir,
            ))?;
        }
    }
    rules.restrict_self().map(|_| ())
}

/// Other system calls than these fail with `EPERM` from now on. More can be taken away later,
/// nothing given back.
fn filter(allowed: &[libc::c_long]) -> Result<(), String> {
    // Threads, but no processes.
    let thread = condition(0, SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64), libc::CLONE_THREAD as u64);
    // Signals to itself.
    let own = condition(0, SeccompCmpOp::Eq, getpid().as_raw_pid() as u64);
    // What the standard library asks of each descriptor that it closes.
    let flags = condition(1, SeccompCmpOp::Eq, libc::F_GETFD as u64);
    let mut rules = Rules::from_iter(allowed.iter().map(|call| (*call, Vec::new())));
    for (call, condition) in [(libc::SYS_clone, thread), (libc::SYS_tgkill, own), (libc::SYS_fcntl, flags)] {
        let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
        rules.insert(call, vec![rule.map_err(failed)?]);
    }
    apply(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// The arguments of `clone3` are in memory, where a filter can't look: without it, `clone` is
/// used.
fn without_clone3() -> Result<(), String> {
    let rules = Rules::from([(libc::SYS_clone3, Vec::new())]);
    apply(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn apply(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<(), String> {
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    let filter = SeccompFilter::new(rules, others, these, arch).map_err(failed)?;
    let program: BpfProgram = filter.try_into().map_err(failed)?;
    seccompiler::apply_filter(&program).map_err(failed)
}

fn failed(error: impl fmt::Display) -> String {
    format!("restricting system calls: {error}")
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
}
