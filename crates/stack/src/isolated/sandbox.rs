//! Confines a process with an untrusted module: it may compute, and talk by the sockets that it
//! has. Further rights that the loader needs are taken away afterwards: opening system libraries,
//! and asking for attributes of files. That is for libraries that turn bad later. The code of a
//! library runs while it is loaded, and a malicious one stays in this phase.

use braid_sys::become_user;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getpid, getppid, nice, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::{fmt, fs, io};

/// Its limits: memory in bytes, descriptors.
const LIMITS: [(Resource, u64); 4] =
    [(Resource::As, 4 << 30), (Resource::Core, 0), (Resource::Nofile, 64), (Resource::Memlock, 0)];

/// The group of every such process.
const NOGROUP: u32 = 65534;

/// How much it yields to others.
const NICE: i32 = 5;

/// The places of libraries that a library may need.
const LIBRARIES: [&str; 6] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];

/// System calls to compute and talk.
const COMPUTE: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
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

/// System calls of the loader, where Landlock allows them.
const LOAD: &[libc::c_long] = &[libc::SYS_newfstatat, libc::SYS_pread64];

/// Has this process, of one thread, be no more than a user's with no files, which ends with
/// the one that has started it.
///
/// # Errors
/// The missing feature of the system.
pub(super) fn confine(owner: Option<u32>, parent: u32) -> Result<(), String> {
    for (resource, to) in LIMITS {
        let limit = setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) });
        limit.map_err(|error| format!("limiting it: {error}"))?;
    }
    // Where the system lets no process set this, it counts like others.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    nice(NICE).map_err(|error| error.to_string())?;
    if let Some(uid) = owner {
        become_user(uid, NOGROUP).map_err(|error| format!("becoming user {uid}: {error}"))?;
    }
    no_rights().map_err(|error| format!("giving up rights: {error}"))?;
    ends_with(parent).map_err(|error| format!("ending with Braid: {error}"))?;
    no_files().map_err(|error| format!("confining it needs Landlock (Linux 6.12): {error}"))
}

/// Leaves all threads the system calls that loading a library needs.
///
/// # Errors
/// If the system does not.
pub(super) fn before_loading() -> Result<(), String> {
    let mut rules = rules(COMPUTE.iter().chain(LOAD))?;
    // Descriptors that can't be read are no use for loading.
    rules.insert(libc::SYS_openat, vec![rule([masked(2, libc::O_PATH, 0)])?]);
    // For the next filter, for all threads, and nothing that would end this one's.
    let next = [equal(0, libc::SECCOMP_SET_MODE_FILTER), equal(1, libc::SECCOMP_FILTER_FLAG_TSYNC as u32)];
    rules.insert(libc::SYS_seccomp, vec![rule(next)?]);
    rules.insert(libc::SYS_prctl, vec![rule([equal(0, libc::PR_SET_NO_NEW_PRIVS as u32)])?]);
    apply(rules)
}

/// Takes away the system calls that only loading needed.
///
/// # Errors
/// If the system does not.
pub(super) fn after_loading() -> Result<(), String> {
    apply(rules(COMPUTE)?)
}

/// A user's process may have rights that others of hers have not. Nor can these look into it.
fn no_rights() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The kernel ends it with the thread that has started it. A change of the user would undo
/// that.
fn ends_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // That may have been too late.
    let is_there = getppid().is_some_and(|pid| pid.as_raw_pid().cast_unsigned() == parent);
    if is_there { Ok(()) } else { Err(io::Error::other("it has ended")) }
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

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Allows these system calls, and the uses of others that every process needs.
fn rules<'a>(allowed: impl IntoIterator<Item = &'a libc::c_long>) -> Result<Rules, String> {
    let mut rules = Rules::from_iter(allowed.into_iter().map(|call| (*call, Vec::new())));
    // Signals to itself.
    rules.insert(libc::SYS_tgkill, vec![rule([equal(0, getpid().as_raw_pid().cast_unsigned())])?]);
    // The standard library's request on each descriptor that it closes.
    rules.insert(libc::SYS_fcntl, vec![rule([equal(1, libc::F_GETFD as u32)])?]);
    Ok(rules)
}

/// Other system calls than these fail with `EPERM` from now on, in all threads. More can be
/// taken away later, nothing given back.
fn apply(rules: Rules) -> Result<(), String> {
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    let others = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, others, SeccompAction::Allow, arch).map_err(failed)?;
    let program: BpfProgram = filter.try_into().map_err(failed)?;
    seccompiler::apply_filter_all_threads(&program).map_err(failed)
}

fn failed(error: impl fmt::Display) -> String {
    format!("restricting system calls: {error}")
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn rule<const N: usize>(conditions: [Condition; N]) -> Result<SeccompRule, String> {
    let conditions = conditions.into_iter().collect::<Result<Vec<_>, _>>();
    conditions.and_then(SeccompRule::new).map_err(failed)
}

fn equal(argument: u8, value: u32) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value.into())
}

/// These bits of an argument.
fn masked(argument: u8, bits: libc::c_int, value: u64) -> Condition {
    let bits = SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned()));
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, bits, value)
}
