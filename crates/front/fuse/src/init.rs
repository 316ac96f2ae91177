//! Negotiation with the kernel at the start of a session. The library calls
//! this once, before any other request.

use fuser::{InitFlags, KernelConfig};
use serde::{Deserialize, Serialize};

/// Largest read or write in one request: the most that an unprivileged kernel
/// setting allows (`fs.fuse.max_pages_limit`, 256 pages).
pub(crate) const REQUEST_MAX_BYTES: u32 = 1 << 20;

/// Requests that the kernel sends without waiting (read-ahead, asynchronous
/// direct I/O) before it holds further ones back: the queue depth that tiers
/// can be driven with.
pub(crate) const BACKGROUND_MAX: u16 = 256;

/// Number of background requests from which on the kernel considers Braid
/// congested.
const CONGESTION_THRESHOLD: u16 = BACKGROUND_MAX / 4 * 3;

/// Levels of stacking that passthrough may reach. Backing files on ordinary
/// file systems need one. It also makes Braid count as one level, of the two
/// that the kernel allows: an overlay on top of Braid (containers) keeps
/// working. Two would let the home tier be an overlay, and forbid overlays on
/// top; on an overlay passthrough is refused with ELOOP and not used.
const STACK_DEPTH: u32 = 1;

/// Wanted features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) posix_acl: bool,
    /// Extended attributes are served.
    pub(crate) xattrs: bool,
    pub(crate) passthrough: bool,
    /// Writes may stay in the kernel's cache.
    pub(crate) write_back: bool,
    /// Files change through this mount only.
    pub(crate) sole_door: bool,
    /// Requests may come through io_uring.
    pub(crate) rings: bool,
    /// Most requests that the kernel sends without waiting.
    pub(crate) background: u16,
}

/// Negotiated features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Agreed {
    /// Opens may be answered with a backing file.
    pub(crate) passthrough: bool,
    /// Writes stay in the kernel's cache, and the kernel owns size and times.
    pub(crate) write_back: bool,
    /// Opens may be answered with direct I/O. Without it they are cached, and
    /// only opens with `O_DIRECT` bypass the kernel's cache: a kernel that
    /// refuses shared mappings of files with direct I/O breaks programs that
    /// make them, and an older one does not keep its cache in step either.
    pub(crate) direct: bool,
    /// Requests come through io_uring.
    pub(crate) rings: bool,
    /// The kernel can send requests again that were not answered.
    #[serde(default)]
    pub(crate) resends: bool,
}

/// The capabilities to ask for, out of those on offer.
///
/// Those left out, and why:
/// - `POSIX_LOCKS`, `FLOCK_LOCKS`: see the head of this crate.
/// - `ATOMIC_O_TRUNC`: truncation then arrives as its own request, and opening
///   has one thing to do.
/// - `AUTO_INVAL_DATA` if files change through this mount only: it drops all
///   cached data of a file each time its modification time changes, so after
///   each write. A change of size still trims the cache.
pub(crate) fn choose(offered: InitFlags, wanted: Wanted) -> InitFlags {
    let mut flags = InitFlags::FUSE_ASYNC_READ
        | InitFlags::FUSE_BIG_WRITES
        | InitFlags::FUSE_MAX_PAGES
        // The file system clears set-id bits as each write asks; the kernel
        // then need not read security.capability before each.
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_CACHE_SYMLINKS
        // `.` and `..` are looked up for users of file handles.
        | InitFlags::FUSE_EXPORT_SUPPORT
        | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
    flags |=
        if wanted.sole_door { InitFlags::FUSE_EXPLICIT_INVAL_DATA } else { InitFlags::FUSE_AUTO_INVAL_DATA };
    if wanted.posix_acl {
        flags |= InitFlags::FUSE_POSIX_ACL;
    }
    // Default ACLs replace the mask of the process, where users see them.
    if wanted.xattrs {
        flags |= InitFlags::FUSE_DONT_MASK;
    }
    if wanted.rings {
        flags |= InitFlags::FUSE_OVER_IO_URING;
    }
    // With both, the kernel ignores passthrough.
    if wanted.passthrough {
        flags |= InitFlags::FUSE_PASSTHROUGH;
    } else if wanted.write_back {
        flags |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    flags & offered
}

/// Negotiates with the kernel.
pub(crate) fn negotiate(config: &mut KernelConfig, wanted: Wanted) -> Agreed {
    let chosen = choose(config.capabilities(), wanted);
    if let Err(refused) = config.add_capabilities(chosen) {
        // Only offered capabilities were chosen, and no others can be refused.
        tracing::error!("the kernel offers {refused:?} and refuses it");
        return Agreed::default();
    }
    let passthrough =
        chosen.contains(InitFlags::FUSE_PASSTHROUGH) && config.set_max_stack_depth(STACK_DEPTH).is_ok();
    limit(config.set_max_write(REQUEST_MAX_BYTES), |limit| config.set_max_write(limit));
    // The kernel accepts at most its default here; see `mount::set_read_ahead`.
    limit(config.set_max_readahead(REQUEST_MAX_BYTES), |limit| config.set_max_readahead(limit));
    limit(config.set_max_background(wanted.background), |limit| config.set_max_background(limit));
    let congested = CONGESTION_THRESHOLD.min(wanted.background / 4 * 3);
    limit(config.set_congestion_threshold(congested), |limit| config.set_congestion_threshold(limit));
    tracing::debug!("FUSE {}: {chosen:?}", config.kernel_abi());
    Agreed {
        passthrough,
        write_back: chosen.contains(InitFlags::FUSE_WRITEBACK_CACHE),
        direct: chosen.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP),
        rings: chosen.contains(InitFlags::FUSE_OVER_IO_URING),
        resends: config.capabilities().contains(InitFlags::FUSE_HAS_RESEND),
    }
}

/// If a setting was refused, sets the nearest that is allowed.
fn limit<T: std::fmt::Debug>(set: Result<T, T>, set_nearest: impl FnOnce(T) -> Result<T, T>) {
    if let Err(nearest) = set
        && let Err(refused) = set_nearest(nearest)
    {
        tracing::debug!("the kernel's default stays: {refused:?} was refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted {
        posix_acl: true,
        xattrs: true,
        passthrough: true,
        write_back: false,
        sole_door: true,
        rings: true,
        background: BACKGROUND_MAX,
    };

    #[test]
    fn an_older_kernel_gets_what_it_offers_and_no_more() {
        // Debian 12's 6.1 knows the flags up to HAS_INODE_DAX.
        let offered = InitFlags::from_bits_retain((1 << 34) - 1) & InitFlags::all();
        let chosen = choose(offered, ALL);
        assert!(offered.contains(chosen));
        assert!(chosen.contains(InitFlags::FUSE_HANDLE_KILLPRIV_V2 | InitFlags::FUSE_POSIX_ACL));
        assert!(!chosen.intersects(InitFlags::FUSE_PASSTHROUGH | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP));
        assert_eq!(choose(InitFlags::empty(), ALL), InitFlags::empty());
    }

    #[test]
    fn nothing_is_asked_for_that_was_decided_against() {
        let chosen = choose(InitFlags::all(), ALL);
        let against = InitFlags::FUSE_WRITEBACK_CACHE
            | InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_FLOCK_LOCKS
            | InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_NO_EXPORT_SUPPORT;
        assert!(!chosen.intersects(against));
        assert!(chosen.contains(InitFlags::FUSE_PASSTHROUGH | InitFlags::FUSE_EXPLICIT_INVAL_DATA));
    }

    #[test]
    fn wishes_decide() {
        let none = Wanted {
            posix_acl: false,
            xattrs: false,
            passthrough: false,
            write_back: false,
            sole_door: false,
            rings: false,
            background: BACKGROUND_MAX,
        };
        let chosen = choose(InitFlags::all(), none);
        assert!(!chosen.intersects(InitFlags::FUSE_PASSTHROUGH | InitFlags::FUSE_POSIX_ACL));
        assert!(!chosen.intersects(InitFlags::FUSE_WRITEBACK_CACHE | InitFlags::FUSE_DONT_MASK));
        let written_back = Wanted { write_back: true, ..none };
        assert!(choose(InitFlags::all(), written_back).contains(InitFlags::FUSE_WRITEBACK_CACHE));
        assert!(chosen.contains(InitFlags::FUSE_AUTO_INVAL_DATA));
        assert!(!chosen.contains(InitFlags::FUSE_EXPLICIT_INVAL_DATA));
    }
}
