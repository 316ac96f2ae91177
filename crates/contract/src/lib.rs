//! The vocabulary of Braid in types.
//!
//! Every other crate uses these terms: ids, the caller of an operation,
//! placement hints, attributes, one error type, and the two central traits:
//! [`FileSystem`] (the view of applications; its operations are one table,
//! `operations.rs`) and [`Store`] (a tier's objects); [`KeyValue`] stands beside the first. The native file system
//! and the machine's time and chance, which both need, are behind [`NativeFd`]
//! and [`Environment`]. There is no I/O here and no in-house dependency.
#![forbid(unsafe_code)]

#[macro_use]
mod operations;

mod attr;
mod caller;
mod crash;
mod environment;
mod errno;
mod error;
mod figure;
mod file_system;
mod hint;
mod id;
mod job;
/// Keys and values, and how keys are file names.
pub mod key_value;
mod layer;
mod listing;
mod native;
mod printable;
mod random;
mod request;
/// The rights that permission bits give.
pub mod rights;
mod runtime;
mod status;
mod store;
mod store_layer;
/// How sizes, rates and durations are written and read.
pub mod units;
mod usage;
mod zoned;

pub use attr::{Attr, FileKind, SetAttr, SetTime, Timestamp};
pub use caller::Caller;
pub use crash::{AfterCrash, Crash, OpenBefore, next_handle};
pub use environment::{DeviceCounters, Environment};
pub use errno::{Errno, Retry};
pub use error::{Context, Error, RefusalKind, Result};
pub use figure::{Distribution, Figure, FigureValue, ModuleStatus};
pub use file_system::{
    DirEntry, DirSink, Entry, FallocateMode, FileSystem, FileSystemCapabilities, FrontCache, IoMode,
    OpenFlags, OpenRequest, Opened, RenameMode, SeekTarget, StatFs, WriteFlags, XattrMode,
};
pub use hint::{Hint, StreamId, WriteLife};
pub use id::{HandleId, InodeId, ObjectId, ParseIdError, TierId, VolumeId};
pub use job::{Amount, JobId, JobKind, JobState, Mover};
pub use key_value::{KeyChange, KeyValue, PutOptions, PutWhen, ScanPage, ScanRange};
pub use layer::Layer;
pub use listing::list_names;
pub use native::{
    Access, AccessTimes, Fd, NativeDirEntry, NativeFd, NativeHandle, NativeStat, NativeUsage, NativeWords,
    Renewal, open_by_steps,
};
pub use printable::{Printable, Shown, counted, is_unprintable, tame, tame_json};
pub use random::SplitMix;
pub use request::{Operation, Reply, Request, Served, Service, dispatch};
pub use runtime::{Class, QueueStatus, RuntimeStatus, SessionStatus, WorkerStatus};
pub use status::{
    AffectedRun, Device, HoldingRule, HoldingStream, Latency, LatencyBucket, LatencyHistogram, MoveCount,
    NamedTier, Pinned, PlacedRun, SpeedBasis, ThreadStatus, TierState, TierStatus, Trouble, ZoneStatus,
    ZoneStream,
};
pub use store::{ObjectStat, ReadPiece, Store, StoreCapabilities, StoreIo};
pub use store_layer::{StoreLayer, StoreOperation};
pub use usage::Usage;
pub use zoned::{ZoneKind, ZoneReport, ZoneState, ZonedDevice, ZonedGeometry};
