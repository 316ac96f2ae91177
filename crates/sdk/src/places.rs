//! The place of each argument of the table of operations in a message: by its name, and its type
//! where several have one name. `bridge` asks.

use crate::failure::breach;
use crate::values::{attributes_of, attributes_to, set_time_of, set_time_to};
use braid_contract::{
    Caller, DirEntry, DirSink, Entry, Errno, FallocateMode, FileKind, HandleId, Hint, InodeId, OpenFlags,
    OpenRequest, RenameMode, SeekTarget, SetAttr, StreamId, WriteFlags, WriteLife, XattrMode,
};
use braid_sys::module::{self as abi, Entries, Failure, Listed, Message, Numbers};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// Puts an argument into a message.
pub(crate) trait Put<'a, T> {
    fn put(value: T, message: &mut Message<'a>, slot: &mut Slot<'a>);
}

/// Takes an argument out of a message.
pub(crate) trait Take<'a, T> {
    fn take(parts: &mut Parts<'a>) -> Result<T, Failure>;
}

/// A place for the adapter between a sink and a message.
pub(crate) type Slot<'a> = Option<&'a mut Option<SinkEntries<'a>>>;

/// The parts of a message, and the values made from them.
pub(crate) struct Parts<'a> {
    pub(crate) numbers: Numbers,
    pub(crate) caller: &'a Caller,
    pub(crate) changes: &'a SetAttr,
    pub(crate) name: &'a [u8],
    pub(crate) new_name: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) buffer: &'a mut [u8],
    pub(crate) sink: Option<&'a mut dyn DirSink>,
}

/// The names of the arguments.
#[allow(non_camel_case_types, reason = "they are names of arguments")]
pub(crate) mod place {
    macro_rules! places {
        ($($name:ident)*) => {
            $(pub(crate) struct $name;)*
        };
    }

    places!(
        caller parent name ino count handle changes mode umask rdev target new_parent new_name request
        exclusive offset buf direct data flags data_only len from from_offset to to_offset plus sink value
    );
}

macro_rules! numbers {
    ($($name:ident $(= $place:ident)?: $type:ty;)*) => {
        $(
            impl Put<'_, $type> for place::$name {
                fn put(value: $type, message: &mut Message<'_>, _: &mut Slot<'_>) {
                    numbers!(@field message.numbers, $name $($place)?) = value.into();
                }
            }

            impl Take<'_, $type> for place::$name {
                fn take(parts: &mut Parts<'_>) -> Result<$type, Failure> {
                    Ok(numbers!(@field parts.numbers, $name $($place)?).into())
                }
            }
        )*
    };
    (@field $numbers:expr, $name:ident) => { $numbers.$name };
    (@field $numbers:expr, $name:ident $place:ident) => { $numbers.$place };
}

numbers! {
    count: u64;
    umask: u32;
    rdev: u32;
    mode: u32;
    offset: u64;
    len: u64;
    to_offset: u64;
    from_offset = offset: u64;
}

macro_rules! ids {
    ($($name:ident $(= $place:ident)?: $type:ident;)*) => {
        $(
            impl Put<'_, $type> for place::$name {
                fn put(value: $type, message: &mut Message<'_>, _: &mut Slot<'_>) {
                    numbers!(@field message.numbers, $name $($place)?) = value.0;
                }
            }

            impl Take<'_, $type> for place::$name {
                fn take(parts: &mut Parts<'_>) -> Result<$type, Failure> {
                    Ok($type(numbers!(@field parts.numbers, $name $($place)?)))
                }
            }
        )*
    };
}

ids! {
    ino: InodeId;
    parent: InodeId;
    new_parent: InodeId;
    handle: HandleId;
    from = handle: HandleId;
    to: HandleId;
}

macro_rules! bits {
    ($($name:ident = $bit:ident;)*) => {
        $(
            impl Put<'_, bool> for place::$name {
                fn put(value: bool, message: &mut Message<'_>, _: &mut Slot<'_>) {
                    message.numbers.flags |= if value { abi::$bit } else { 0 };
                }
            }

            impl Take<'_, bool> for place::$name {
                fn take(parts: &mut Parts<'_>) -> Result<bool, Failure> {
                    Ok(parts.numbers.flags & abi::$bit != 0)
                }
            }
        )*
    };
}

bits! {
    exclusive = EXCLUSIVE;
    direct = DIRECT;
    data_only = DATA_ONLY;
    plus = PLUS;
}

macro_rules! texts {
    ($($name:ident = $place:ident: $type:ty, $from:expr, $to:expr;)*) => {
        $(
            impl<'a> Put<'a, $type> for place::$name {
                fn put(value: $type, message: &mut Message<'a>, _: &mut Slot<'a>) {
                    message.$place = $from(value);
                }
            }

            impl<'a> Take<'a, $type> for place::$name {
                fn take(parts: &mut Parts<'a>) -> Result<$type, Failure> {
                    $to(parts.$place)
                }
            }
        )*
    };
}

texts! {
    name = name: &'a OsStr, OsStrExt::as_bytes, name_of;
    new_name = new_name: &'a OsStr, OsStrExt::as_bytes, name_of;
    target = data: &'a OsStr, OsStrExt::as_bytes, |bytes| Ok(OsStr::from_bytes(bytes));
    data = data: &'a [u8], std::convert::identity, Ok;
    value = data: &'a [u8], std::convert::identity, Ok;
}

/// A name of a file or of an attribute.
fn name_of(bytes: &[u8]) -> Result<&OsStr, Failure> {
    if bytes.len() > NAME_MAX {
        return Err(Failure { errno: Errno::ENAMETOOLONG.0, why: String::new() });
    }
    if bytes.is_empty() || bytes.iter().any(|byte| [0, b'/'].contains(byte)) {
        return Err(breach("a name that is none"));
    }
    Ok(OsStr::from_bytes(bytes))
}

macro_rules! choices {
    ($($name:ident: $type:ty { $($value:pat => $number:ident = $made:expr),* $(,)? })*) => {
        $(
            impl Put<'_, $type> for place::$name {
                fn put(value: $type, message: &mut Message<'_>, _: &mut Slot<'_>) {
                    message.numbers.how = match value {
                        $($value => abi::$number),*
                    };
                }
            }

            impl Take<'_, $type> for place::$name {
                fn take(parts: &mut Parts<'_>) -> Result<$type, Failure> {
                    match parts.numbers.how {
                        $(abi::$number => Ok($made),)*
                        _ => Err(breach(concat!("no known ", stringify!($name)))),
                    }
                }
            }
        )*
    };
}

choices! {
    mode: RenameMode {
        RenameMode::Replace => RENAME_REPLACE = RenameMode::Replace,
        RenameMode::NoReplace => RENAME_NO_REPLACE = RenameMode::NoReplace,
        RenameMode::Exchange => RENAME_EXCHANGE = RenameMode::Exchange,
        RenameMode::Whiteout => RENAME_WHITEOUT = RenameMode::Whiteout,
    }
    mode: FallocateMode {
        FallocateMode::Allocate { keep_size: false } => ALLOCATE = FallocateMode::Allocate { keep_size: false },
        FallocateMode::Allocate { keep_size: true } => ALLOCATE_KEEP_SIZE = FallocateMode::Allocate { keep_size: true },
        FallocateMode::PunchHole => ALLOCATE_PUNCH = FallocateMode::PunchHole,
        FallocateMode::ZeroRange { keep_size: false } => ALLOCATE_ZERO = FallocateMode::ZeroRange { keep_size: false },
        FallocateMode::ZeroRange { keep_size: true } => ALLOCATE_ZERO_KEEP_SIZE = FallocateMode::ZeroRange { keep_size: true },
    }
    mode: XattrMode {
        XattrMode::Set => XATTR_SET = XattrMode::Set,
        XattrMode::Create => XATTR_CREATE = XattrMode::Create,
        XattrMode::Replace => XATTR_REPLACE = XattrMode::Replace,
    }
    target: SeekTarget {
        SeekTarget::Data => SEEK_TO_DATA = SeekTarget::Data,
        SeekTarget::Hole => SEEK_TO_HOLE = SeekTarget::Hole,
    }
}

impl Put<'_, i64> for place::offset {
    fn put(value: i64, message: &mut Message<'_>, _: &mut Slot<'_>) {
        message.numbers.offset = value.cast_unsigned();
    }
}

impl Take<'_, i64> for place::offset {
    fn take(parts: &mut Parts<'_>) -> Result<i64, Failure> {
        Ok(parts.numbers.offset.cast_signed())
    }
}

impl Put<'_, Option<HandleId>> for place::handle {
    fn put(value: Option<HandleId>, message: &mut Message<'_>, _: &mut Slot<'_>) {
        if let Some(handle) = value {
            message.numbers.handle = handle.0;
            message.numbers.flags |= abi::HAS_HANDLE;
        }
    }
}

impl Take<'_, Option<HandleId>> for place::handle {
    fn take(parts: &mut Parts<'_>) -> Result<Option<HandleId>, Failure> {
        Ok((parts.numbers.flags & abi::HAS_HANDLE != 0).then_some(HandleId(parts.numbers.handle)))
    }
}

impl<'a> Put<'a, &'a mut [u8]> for place::buf {
    fn put(value: &'a mut [u8], message: &mut Message<'a>, _: &mut Slot<'a>) {
        message.buffer = value;
    }
}

impl<'a> Take<'a, &'a mut [u8]> for place::buf {
    fn take(parts: &mut Parts<'a>) -> Result<&'a mut [u8], Failure> {
        Ok(std::mem::take(&mut parts.buffer))
    }
}

impl<'a> Put<'a, &'a Caller> for place::caller {
    fn put(value: &'a Caller, message: &mut Message<'a>, _: &mut Slot<'a>) {
        let numbers = &mut message.numbers;
        (numbers.uid, numbers.gid, numbers.pid, numbers.tid) = (value.uid, value.gid, value.pid, value.tid);
        if let Some(groups) = &value.groups {
            numbers.flags |= abi::KNOWS_GROUPS;
            message.groups = groups;
        }
    }
}

impl<'a> Take<'a, &'a Caller> for place::caller {
    fn take(parts: &mut Parts<'a>) -> Result<&'a Caller, Failure> {
        Ok(parts.caller)
    }
}

/// The caller of a message.
pub(crate) fn caller_of(message: &Message<'_>) -> Caller {
    let Numbers { uid, gid, pid, tid, flags, .. } = message.numbers;
    let groups = (flags & abi::KNOWS_GROUPS != 0).then(|| Arc::from(message.groups));
    Caller { uid, gid, groups, pid, tid, of_stack: false }
}

impl<'a> Put<'a, &'a SetAttr> for place::changes {
    fn put(value: &'a SetAttr, message: &mut Message<'a>, _: &mut Slot<'a>) {
        let SetAttr { mode, uid, gid, size, atime, mtime, kill_set_id } = *value;
        let numbers = &mut message.numbers;
        let set = [
            (mode.is_some(), abi::SET_MODE),
            (uid.is_some(), abi::SET_UID),
            (gid.is_some(), abi::SET_GID),
            (size.is_some(), abi::SET_SIZE),
            (atime.is_some(), abi::SET_ACCESSED),
            (mtime.is_some(), abi::SET_MODIFIED),
        ];
        numbers.set = set.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
        numbers.set_mode = mode.unwrap_or_default();
        numbers.set_uid = uid.unwrap_or_default();
        numbers.set_gid = gid.unwrap_or_default();
        numbers.set_size = size.unwrap_or_default();
        numbers.set_accessed = atime.map(set_time_of).unwrap_or_default();
        numbers.set_modified = mtime.map(set_time_of).unwrap_or_default();
        numbers.flags |= if kill_set_id { abi::KILL_SET_ID } else { 0 };
    }
}

impl<'a> Take<'a, &'a SetAttr> for place::changes {
    fn take(parts: &mut Parts<'a>) -> Result<&'a SetAttr, Failure> {
        Ok(parts.changes)
    }
}

/// The changes of attributes that a message asks for.
pub(crate) fn changes_of(numbers: &Numbers) -> Result<SetAttr, Failure> {
    let is = |bit| numbers.set & bit != 0;
    // As a user or a group, this number means that nothing is set.
    if is(abi::SET_UID) && numbers.set_uid == u32::MAX || is(abi::SET_GID) && numbers.set_gid == u32::MAX {
        return Err(Failure { errno: Errno::EINVAL.0, why: "a user or a group that is none".into() });
    }
    Ok(SetAttr {
        mode: is(abi::SET_MODE).then_some(numbers.set_mode),
        uid: is(abi::SET_UID).then_some(numbers.set_uid),
        gid: is(abi::SET_GID).then_some(numbers.set_gid),
        size: is(abi::SET_SIZE).then_some(numbers.set_size),
        atime: is(abi::SET_ACCESSED).then(|| set_time_to(numbers.set_accessed)).transpose()?,
        mtime: is(abi::SET_MODIFIED).then(|| set_time_to(numbers.set_modified)).transpose()?,
        kill_set_id: numbers.flags & abi::KILL_SET_ID != 0,
    })
}

impl Put<'_, OpenRequest> for place::request {
    fn put(value: OpenRequest, message: &mut Message<'_>, _: &mut Slot<'_>) {
        let OpenRequest {
            flags: OpenFlags { read, write, direct, sync },
            passthrough_allowed,
            passthrough_required,
        } = value;
        let set = [
            (read, abi::READ),
            (write, abi::WRITE),
            (direct, abi::DIRECT),
            (sync, abi::SYNC),
            (passthrough_allowed, abi::PASSTHROUGH_ALLOWED),
            (passthrough_required, abi::PASSTHROUGH_REQUIRED),
        ];
        message.numbers.flags |= set.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum::<u32>();
    }
}

impl Take<'_, OpenRequest> for place::request {
    fn take(parts: &mut Parts<'_>) -> Result<OpenRequest, Failure> {
        let is = |bit| parts.numbers.flags & bit != 0;
        Ok(OpenRequest {
            flags: OpenFlags {
                read: is(abi::READ),
                write: is(abi::WRITE),
                direct: is(abi::DIRECT),
                sync: is(abi::SYNC),
            },
            passthrough_allowed: is(abi::PASSTHROUGH_ALLOWED),
            passthrough_required: is(abi::PASSTHROUGH_REQUIRED),
        })
    }
}

impl Put<'_, WriteFlags> for place::flags {
    fn put(value: WriteFlags, message: &mut Message<'_>, _: &mut Slot<'_>) {
        let WriteFlags { direct, sync, kill_set_id, write_back, hint: Hint { stream, life } } = value;
        let set = [
            (direct, abi::DIRECT),
            (sync, abi::SYNC),
            (kill_set_id, abi::KILL_SET_ID),
            (write_back, abi::WRITE_BACK),
            (stream.is_some(), abi::HAS_STREAM),
            (life.is_some(), abi::HAS_LIFE),
        ];
        message.numbers.flags |= set.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum::<u32>();
        message.numbers.stream = stream.map_or(0, |stream| stream.0);
        let level = |life| WriteLife::ALL.iter().position(|level| *level == life);
        message.numbers.life = life.and_then(level).unwrap_or_default() as u32;
    }
}

impl Take<'_, WriteFlags> for place::flags {
    fn take(parts: &mut Parts<'_>) -> Result<WriteFlags, Failure> {
        let is = |bit| parts.numbers.flags & bit != 0;
        let level = WriteLife::ALL.get(parts.numbers.life as usize).copied();
        Ok(WriteFlags {
            direct: is(abi::DIRECT),
            sync: is(abi::SYNC),
            kill_set_id: is(abi::KILL_SET_ID),
            write_back: is(abi::WRITE_BACK),
            hint: Hint {
                stream: is(abi::HAS_STREAM).then_some(StreamId(parts.numbers.stream)),
                life: is(abi::HAS_LIFE).then_some(level).flatten(),
            },
        })
    }
}

impl<'a, 'b: 'a> Put<'a, &'b mut dyn DirSink> for place::sink {
    fn put(value: &'b mut dyn DirSink, message: &mut Message<'a>, slot: &mut Slot<'a>) {
        if let Some(slot) = slot.take() {
            message.entries = Some(slot.insert(SinkEntries(value)));
        }
    }
}

impl<'a> Take<'a, &'a mut dyn DirSink> for place::sink {
    fn take(parts: &mut Parts<'a>) -> Result<&'a mut dyn DirSink, Failure> {
        parts.sink.take().ok_or_else(|| breach("no place for the entries of a directory"))
    }
}

/// A sink, for messages. Entries that break the rules are left out.
pub(crate) struct SinkEntries<'a>(&'a mut dyn DirSink);

impl Entries for SinkEntries<'_> {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        let Ok(name) = name_of(entry.name) else { return true };
        let attributes =
            entry.attributes.and_then(|told| Some((attributes_to(&told).ok()?, told.generation)));
        self.0.add(&DirEntry {
            ino: InodeId(entry.ino),
            next_offset: entry.next_offset,
            kind: FileKind::from_mode(entry.kind),
            name,
            entry: attributes.map(|(attr, generation)| Entry { attr, generation }),
            damaged: entry.damaged,
        })
    }
}

/// The entries of a message, as a sink.
pub(crate) struct EntriesSink<'a>(pub(crate) &'a mut dyn Entries);

impl DirSink for EntriesSink<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.add(&Listed {
            ino: entry.ino.0,
            next_offset: entry.next_offset,
            name: entry.name.as_bytes(),
            kind: entry.kind.map_or(0, FileKind::mode),
            attributes: entry.entry.map(|entry| attributes_of(&entry.attr, entry.generation)),
            damaged: entry.damaged,
        })
    }
}
