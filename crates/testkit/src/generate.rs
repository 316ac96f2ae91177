//! The tested sequences.
//!
//! Few names and few open files, so that operations meet; offsets and lengths
//! gather around multiples of 64 KiB, the range size of test volumes, so that
//! files spread, and transfers cross the borders of ranges.

use crate::op::{
    Access, AllocateMode, Data, Name, Op, OpenSpec, Path, RenameMode, Room, SLOTS, SeekTo, SetTime, Target,
    XattrMode, XattrName,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;

const RANGE: u64 = 64 * 1024;

/// Operations at the start of each sequence, which create the files for others.
#[must_use]
pub fn prelude() -> Vec<Op> {
    let path = |names: &[Name]| Path(names.to_vec());
    let dir = |names: &[Name]| Op::MakeDir { path: path(names), mode: 0o755 };
    let open = |slot, names: &[Name], append| {
        let flags = OpenSpec { create: true, append, ..OpenSpec::plain(Access::Both) };
        Op::Open { slot, path: path(names), flags, mode: 0o644 }
    };
    vec![
        dir(&[Name::D(0)]),
        dir(&[Name::D(1)]),
        dir(&[Name::D(0), Name::D(1)]),
        open(0, &[Name::F(0)], false),
        open(1, &[Name::D(0), Name::F(0)], false),
        open(2, &[Name::F(1)], true),
        open(3, &[Name::D(0), Name::D(1), Name::F(0)], false),
    ]
}

/// Sequences of `len` operations.
pub fn sequence(len: usize) -> BoxedStrategy<Vec<Op>> {
    vec(op(), 1..=len.max(1)).boxed()
}

fn op() -> BoxedStrategy<Op> {
    prop_oneof![30 => data_op(), 12 => open_op(), 20 => name_op(), 12 => attr_op(), 6 => xattr_op()].boxed()
}

fn slot() -> impl Strategy<Value = u8> {
    0..SLOTS
}

fn file_name() -> impl Strategy<Value = Name> {
    (0u8..4).prop_map(Name::F)
}

fn dir_name() -> impl Strategy<Value = Name> {
    (0u8..2).prop_map(Name::D)
}

fn path() -> BoxedStrategy<Path> {
    let odd =
        prop_oneof![6 => (0u8..8).prop_map(Name::Odd), 1 => select(vec![Name::Long(255), Name::Long(256)])];
    prop_oneof![
        40 => file_name().prop_map(|file| vec![file]),
        30 => (dir_name(), file_name()).prop_map(|(dir, file)| vec![dir, file]),
        8 => (dir_name(), dir_name(), file_name()).prop_map(|(a, b, file)| vec![a, b, file]),
        12 => dir_name().prop_map(|dir| vec![dir]),
        6 => (dir_name(), dir_name()).prop_map(|(a, b)| vec![a, b]),
        2 => (file_name(), file_name()).prop_map(|(a, b)| vec![a, b]),
        2 => (1usize..24, file_name()).prop_map(|(depth, file)| {
            let mut chain = vec![Name::D(9); depth];
            chain.push(file);
            chain
        }),
        3 => odd.prop_map(|name| vec![name]),
    ]
    .prop_map(Path)
    .boxed()
}

/// A path, or now and then the root of the tree.
fn path_or_root() -> impl Strategy<Value = Path> {
    prop_oneof![15 => path(), 1 => Just(Path(Vec::new()))]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        5 => path_or_root().prop_map(Target::Path),
        1 => path().prop_map(Target::NoFollow),
        4 => slot().prop_map(Target::Slot),
    ]
}

fn offset() -> BoxedStrategy<u64> {
    let range = prop_oneof![8 => Just(0u64), 12 => 1u64..4, 4 => 4u64..16, 1 => 16u64..48];
    let delta = prop_oneof![
        6 => Just(0i64),
        2 => select(vec![-1i64, 1, -4096, 4096, -4097, 511]),
        2 => 0i64..RANGE as i64,
    ];
    (range, delta).prop_map(|(range, delta)| (range * RANGE).saturating_add_signed(delta)).boxed()
}

fn length() -> BoxedStrategy<u32> {
    let range = RANGE as u32;
    prop_oneof![
        1 => Just(0u32),
        10 => 1u32..64,
        8 => 1u32..5000,
        4 => Just(4096u32),
        4 => range - 1..range + 2,
        4 => range..3 * range,
        1 => 4 * range..6 * range,
    ]
    .boxed()
}

fn data() -> impl Strategy<Value = Data> {
    (prop_oneof![1 => Just(0u8), 12 => any::<u8>()], length()).prop_map(|(seed, len)| Data { seed, len })
}

fn data_op() -> BoxedStrategy<Op> {
    let seek = prop_oneof![
        1 => offset().prop_map(SeekTo::Start),
        1 => (-70_000i64..70_000).prop_map(SeekTo::End),
        2 => offset().prop_map(SeekTo::Data),
        2 => offset().prop_map(SeekTo::Hole),
    ];
    let end = prop_oneof![4 => slot().prop_map(Target::Slot), 2 => path().prop_map(Target::Path)];
    prop_oneof![
        20 => (slot(), offset(), data()).prop_map(|(slot, offset, data)| Op::Pwrite { slot, offset, data }),
        8 => (slot(), data()).prop_map(|(slot, data)| Op::Write { slot, data }),
        14 => (slot(), offset(), length()).prop_map(|(slot, offset, len)| Op::Pread { slot, offset, len }),
        4 => (slot(), length()).prop_map(|(slot, len)| Op::Read { slot, len }),
        6 => (slot(), seek).prop_map(|(slot, to)| Op::Seek { slot, to }),
        9 => (end, offset()).prop_map(|(target, len)| Op::Truncate { target, len }),
        8 => (slot(), select(AllocateMode::ALL.to_vec()), offset(), length())
            .prop_map(|(slot, mode, offset, len)| Op::Allocate { slot, mode, offset, len: len.into() }),
        4 => (slot(), offset(), slot(), offset(), length()).prop_map(|(from, from_offset, to, to_offset, len)| {
            Op::Copy { from, from_offset, to, to_offset, len }
        }),
        2 => (slot(), any::<bool>()).prop_map(|(slot, data_only)| Op::Sync { slot, data_only }),
    ]
    .boxed()
}

fn flags() -> impl Strategy<Value = OpenSpec> {
    let access = prop_oneof![2 => Just(Access::Read), 1 => Just(Access::Write), 4 => Just(Access::Both)];
    let rarely = || proptest::bool::weighted(0.07);
    let creation = (proptest::bool::weighted(0.6), proptest::bool::weighted(0.15));
    (
        access,
        creation,
        (proptest::bool::weighted(0.15), proptest::bool::weighted(0.15)),
        (rarely(), rarely(), rarely()),
    )
        .prop_map(|(access, (create, exclusive), (truncate, append), (no_follow, directory, direct))| {
            OpenSpec {
                access,
                create,
                // Without creation, the flag has no defined meaning.
                exclusive: exclusive && create,
                truncate,
                append,
                no_follow,
                directory,
                direct,
            }
        })
}

fn mode() -> impl Strategy<Value = u16> {
    // The owner may read and write: the rights of others are beside the point,
    // and none matter to the superuser.
    prop_oneof![
        8 => Just(0o755u16),
        4 => Just(0o644u16),
        4 => select(vec![0o600u16, 0o777, 0o4755, 0o2755, 0o2644, 0o6711, 0o1777, 0o444, 0o700]),
    ]
    .prop_map(|mode| mode | 0o700)
}

fn file_mode() -> impl Strategy<Value = u16> {
    prop_oneof![6 => Just(0o644u16), 4 => mode(), 1 => select(vec![0u16, 0o444, 0o4644, 0o2644, 0o6666])]
}

fn open_op() -> BoxedStrategy<Op> {
    prop_oneof![
        10 => (slot(), path_or_root(), flags(), file_mode())
            .prop_map(|(slot, path, flags, mode)| Op::Open { slot, path, flags, mode }),
        1 => slot().prop_map(|slot| Op::Close { slot }),
    ]
    .boxed()
}

fn name_op() -> BoxedStrategy<Op> {
    let rename =
        select(vec![RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
    // Relative to the link's directory; never out of the tree.
    let aim = prop_oneof![
        3 => file_name().prop_map(|name| Path(vec![name])),
        2 => dir_name().prop_map(|name| Path(vec![name])),
        1 => path(),
    ];
    prop_oneof![
        12 => (path(), path(), rename).prop_map(|(from, to, mode)| Op::Rename { from, to, mode }),
        6 => (path(), path()).prop_map(|(from, to)| Op::Link { from, to }),
        3 => (path(), aim).prop_map(|(path, target)| Op::Symlink { path, target }),
        1 => path().prop_map(|path| Op::ReadLink { path }),
        10 => path().prop_map(|path| Op::Unlink { path }),
        5 => (path(), mode()).prop_map(|(path, mode)| Op::MakeDir { path, mode }),
        1 => (1u8..24).prop_map(|depth| Op::MakeDirChain { depth }),
        4 => path().prop_map(|path| Op::RemoveDir { path }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::MakeFifo { path, mode }),
        4 => path_or_root().prop_map(|path| Op::ReadDir { path }),
    ]
    .boxed()
}

fn set_time() -> impl Strategy<Value = SetTime> {
    // Long before or after now, to be distinguished from the clock's times.
    let at = (
        prop_oneof![1 => -1_000_000_000i64..0, 8 => 0i64..1_600_000_000, 1 => 2_200_000_000i64..4_000_000_000],
        0u32..1_000_000_000,
    );
    prop_oneof![1 => Just(SetTime::Omit), 1 => Just(SetTime::Now), 4 => at.prop_map(|(s, n)| SetTime::At(s, n))]
}

fn attr_op() -> BoxedStrategy<Op> {
    let id = || option::weighted(0.7, select(vec![0u32, 1, 1000, 65534]));
    prop_oneof![
        4 => (target(), mode()).prop_map(|(target, mode)| Op::Chmod { target, mode }),
        // A FUSE server does not see a change to neither, though that natively
        // clears set-id bits.
        3 => (target(), id(), id())
            .prop_filter("names an owner", |(_, uid, gid)| uid.is_some() || gid.is_some())
            .prop_map(|(target, uid, gid)| Op::Chown { target, uid, gid }),
        5 => (target(), set_time(), set_time())
            .prop_map(|(target, atime, mtime)| Op::SetTimes { target, atime, mtime }),
        6 => target().prop_map(|target| Op::Stat { target }),
    ]
    .boxed()
}

fn xattr_op() -> BoxedStrategy<Op> {
    let name = || {
        prop_oneof![
            20 => (0u8..4).prop_map(XattrName::Short),
            1 => select(vec![XattrName::Long(255), XattrName::Long(256)]),
        ]
    };
    // Short enough for four of them to fit where file systems keep them.
    let value = (any::<u8>(), prop_oneof![30 => 0u32..40, 10 => 0u32..500, 1 => Just(65537u32)])
        .prop_map(|(seed, len)| Data { seed, len });
    let mode = select(vec![XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
    let room =
        prop_oneof![2 => Just(Room::Ample), 1 => Just(Room::Query), 1 => (1u16..300).prop_map(Room::Bytes)];
    prop_oneof![
        4 => (target(), name(), value, mode)
            .prop_map(|(target, name, data, mode)| Op::SetXattr { target, name, data, mode }),
        3 => (target(), name(), room).prop_map(|(target, name, room)| Op::GetXattr { target, name, room }),
        2 => target().prop_map(|target| Op::ListXattr { target }),
        2 => (target(), name()).prop_map(|(target, name)| Op::RemoveXattr { target, name }),
    ]
    .boxed()
}
