//! All unsafe code, and types built directly on it.
//!
//! All code of Braid that needs `unsafe` is here, in small modules with safe
//! interfaces: shared mappings and futexes on them, the identity of a thread,
//! file handles, rings for transfers and of FUSE, zones of block devices, commands of NVMe,
//! persistent memory. Safe code that all crates above need is here too: [`DataFile`], through
//! which all bytes of native files are read and written, the names of sockets ([`SocketFile`]), and
//! whether a file is trusted ([`check_trusted`]). This crate knows nothing of volumes.

mod aligned;
mod batch_ring;
mod bus_guard;
mod confine;
mod data_file;
mod descriptors;
mod file_ring;
mod fs_uuid;
mod fuse_ring;
mod futex;
mod handle;
mod identity;
mod limits;
pub mod module;
mod mount_attr;
mod nvme;
mod nvme_ring;
mod persistent;
mod process;
mod ring_area;
mod schedule;
mod shared_words;
mod socket_file;
mod tier_dir;
mod trust;
pub mod values;
mod word_map;
mod words;
mod write_back;
mod write_life;
mod zones;

pub use aligned::{AlignedBuf, DIRECT_ALIGNMENT, is_aligned};
pub use confine::{become_user, exit_at_once};
pub use data_file::DataFile;
pub use descriptors::{pass_descriptors, receive_descriptors};
pub use file_ring::{FileRing, Transfer};
pub use fs_uuid::fs_uuid;
pub use fuse_ring::{FuseRing, RingEnd, RingReply};
pub use futex::{FUTEX_WORDS_MAX, FutexScope, futex_wait, futex_wait_any, futex_wake};
pub use handle::{handle_of, numbered_handle, open_handle};
pub use identity::{Acting, act_as, groups_of, is_privileged, peer_groups};
pub use limits::{pass_on_no_files, raise_open_files, release_free_memory, set_up_allocator};
pub use mount_attr::set_mount_attributes;
pub use nvme::{
    IDENTIFY_LEN, IdentifyController, IdentifyNamespace, LbaFormat, NvmeCommand, NvmeData, NvmeQueue,
    discard, identify_controller, identify_namespace, nvme_command, nvme_namespace,
};
pub use nvme_ring::NvmeRing;
pub use persistent::PersistentMap;
pub use process::{is_running, process_start, task_names};
pub use ring_area::RingArea;
pub use schedule::hurry;
pub use shared_words::{SharedWords, SharedWordsView};
pub use socket_file::SocketFile;
pub use tier_dir::lock_dir;
pub use trust::{Untrusted, check_owner, check_trusted};
pub use word_map::WordMap;
pub use words::{load_bytes, store_bytes};
pub use write_back::{start_write_back, write_back};
pub use zones::{KernelZone, ZoneCall, change_zone, report_zones, set_size, zones_of};
