//! The possible results for data and sizes.

use super::*;
use braid_contract::FallocateMode;

/// A disk with a file `file` that holds `bytes`, durable.
fn with_file(model: Model, bytes: &[u8]) -> (Disk, Fd) {
    let disk = disk(model);
    let file = create(&disk.root(), "file");
    write(&file, 0, bytes);
    disk.root().sync_fs().unwrap();
    (disk, file)
}

/// The file's blocks, each by its first byte, and its size.
fn blocks(disk: &Disk) -> (Vec<u8>, usize) {
    let bytes = contents(disk, "file").unwrap();
    (bytes.iter().copied().step_by(4096).collect(), bytes.len())
}

/// The file's units of 512 bytes, each by its first byte.
fn units(disk: &Disk) -> Vec<u8> {
    contents(disk, "file").unwrap().into_iter().step_by(512).collect()
}

fn first_bytes(disk: &Disk) -> Vec<u8> {
    blocks(disk).0
}

#[test]
fn blocks_that_were_not_synced_are_each_lost_or_kept() {
    let (disk, file) = with_file(APART, &[1; 8192]);
    write(&file, 0, &[2; 8192]);
    let seen = outcomes(&disk, first_bytes);
    assert_eq!(seen, BTreeSet::from([vec![1, 1], vec![1, 2], vec![2, 1], vec![2, 2]]));
    // Two blocks, and the time of the write.
    assert_eq!(questions(&disk), 3);
    assert_eq!(count_outcomes(&disk), 8);
    file.sync(true).unwrap();
    assert_eq!(outcomes(&disk, first_bytes), BTreeSet::from([vec![2, 2]]));
}

#[test]
fn a_block_may_be_found_at_any_version_since_its_sync() {
    let (disk, file) = with_file(APART, &[1; 4096]);
    for version in 2..5 {
        write(&file, 0, &[version; 4096]);
    }
    let seen = outcomes(&disk, first_bytes);
    assert_eq!(seen, BTreeSet::from([vec![1], vec![2], vec![3], vec![4]]));
}

#[test]
fn a_block_written_over_may_be_torn_and_a_new_one_not() {
    let tear = Model { tear: true, ..APART };
    let (disk, file) = with_file(tear, &[1; 1024]);
    write(&file, 0, &[2; 1024]);
    let seen = outcomes(&disk, units);
    assert_eq!(seen, BTreeSet::from([vec![1, 1], vec![1, 2], vec![2, 1], vec![2, 2]]));

    let (disk, file) = with_file(tear, &[]);
    write(&file, 0, &[2; 1024]);
    let seen = outcomes(&disk, units);
    assert_eq!(seen, BTreeSet::from([vec![], vec![0, 0], vec![2, 2]]));
    write(&file, 0, &[3; 1024]);
    let mut wanted = BTreeSet::from([vec![], vec![0, 0]]);
    wanted.extend([vec![2, 2], vec![2, 3], vec![3, 2], vec![3, 3]]);
    assert_eq!(outcomes(&disk, units), wanted);
}

#[test]
fn a_larger_size_may_persist_without_the_data_but_not_out_of_order() {
    let (disk, file) = with_file(APART, &[]);
    write(&file, 0, &[1; 4096]);
    write(&file, 4096, &[2; 4096]);
    let seen = outcomes(&disk, blocks);
    let wanted = BTreeSet::from([
        (vec![], 0),
        (vec![0], 4096),
        (vec![1], 4096),
        (vec![0, 0], 8192),
        (vec![1, 0], 8192),
        (vec![0, 2], 8192),
        (vec![1, 2], 8192),
    ]);
    assert_eq!(seen, wanted);
}

#[test]
fn a_hole_stays_a_hole_when_its_data_is_lost() {
    let (disk, file) = with_file(APART, &[]);
    write(&file, 4096, &[2; 4096]);
    file.truncate(16384).unwrap();
    let allocated = |disk: &Disk| {
        let file = disk.root().open_at(os("file"), Access::Read).unwrap();
        (first_bytes(disk).get(1).copied(), file.stat().unwrap().attr.blocks)
    };
    let seen = outcomes(&disk, allocated);
    assert_eq!(seen, BTreeSet::from([(None, 0), (Some(0), 0), (Some(2), 8)]));
}

#[test]
fn what_a_truncation_took_does_not_come_back_once_it_is_durable() {
    let (disk, file) = with_file(APART, &[1; 8192]);
    write(&file, 0, &[2; 8192]);
    file.truncate(0).unwrap();
    file.truncate(8192).unwrap();
    let seen = outcomes(&disk, blocks);
    let lost = [[1, 1], [1, 2], [2, 1], [2, 2]].map(|blocks| (blocks.to_vec(), 8192));
    let mut wanted = BTreeSet::from(lost);
    wanted.extend([(vec![], 0), (vec![0, 0], 8192)]);
    assert_eq!(seen, wanted);
    write(&file, 0, &[3; 4096]);
    let seen = outcomes(&disk, blocks);
    wanted.insert((vec![3, 0], 8192));
    assert_eq!(seen, wanted);
    file.sync(true).unwrap();
    assert_eq!(outcomes(&disk, blocks), BTreeSet::from([(vec![3, 0], 8192)]));
}

/// A block of ones, durable, that twos were written over and that was then
/// cut and grown to 3000 bytes; how it can be found.
fn cut_and_grown(model: Model) -> (Disk, BTreeSet<(usize, u8, Option<u8>)>) {
    let (disk, file) = with_file(model, &[1; 4096]);
    write(&file, 0, &[2; 4096]);
    file.truncate(1024).unwrap();
    file.truncate(3000).unwrap();
    let found = BTreeSet::from([(3000, 1, Some(0)), (3000, 2, Some(0))]);
    (disk, found)
}

fn size_first_and_middle(disk: &Disk) -> (usize, u8, Option<u8>) {
    let bytes = contents(disk, "file").unwrap();
    (bytes.len(), bytes[0], bytes.get(2048).copied())
}

#[test]
fn the_rest_of_a_block_beyond_a_size_is_zero_when_the_size_is_found_and_may_be_when_not() {
    for model in [APART, ORDERED] {
        let (disk, mut wanted) = cut_and_grown(model);
        wanted.extend([(4096, 1, Some(1)), (4096, 2, Some(2)), (4096, 2, Some(0))]);
        wanted.extend([(1024, 1, None), (1024, 2, None)]);
        assert_eq!(outcomes(&disk, size_first_and_middle), wanted);
    }
}

#[test]
fn the_rest_of_a_block_beyond_a_size_is_zero_when_another_file_s_sync_made_the_size_durable() {
    let (disk, wanted) = cut_and_grown(ORDERED);
    create(&disk.root(), "other").sync(false).unwrap();
    assert_eq!(outcomes(&disk, size_first_and_middle), wanted);
}

#[test]
fn what_was_written_beyond_a_size_that_was_lost_does_not_show_when_the_file_grows() {
    let (disk, file) = with_file(APART, &[1; 10]);
    write(&file, 0, &[2; 20]);
    let grown = |disk: &Disk| {
        let file = disk.root().open_at(os("file"), Access::ReadWrite).unwrap();
        let size = file.stat().unwrap().attr.size;
        file.truncate(30).unwrap();
        let bytes = read(&file, 0, 30);
        (size, bytes[0], bytes[15], bytes[25])
    };
    let wanted = [(10, 1, 0, 0), (10, 2, 0, 0), (20, 1, 0, 0), (20, 2, 2, 0)];
    assert_eq!(outcomes(&disk, grown), BTreeSet::from(wanted));
}

#[test]
fn data_written_after_a_punch_is_not_found_without_the_punch() {
    let (disk, file) = with_file(APART, &[1; 8192]);
    file.allocate(FallocateMode::PunchHole, 0, 4096).unwrap();
    write(&file, 0, &[2; 4096]);
    let found = |disk: &Disk| {
        let file = disk.root().open_at(os("file"), Access::Read).unwrap();
        (first_bytes(disk), file.stat().unwrap().attr.blocks)
    };
    let seen = outcomes(&disk, found);
    let wanted = [(vec![1, 1], 16), (vec![0, 1], 8), (vec![2, 1], 16)];
    assert_eq!(seen, BTreeSet::from(wanted));
}

#[test]
fn parts_of_blocks_are_punched_by_writing_zeros() {
    let (disk, file) = with_file(APART, &[1; 12288]);
    file.allocate(FallocateMode::PunchHole, 100, 8192).unwrap();
    assert_eq!(file.stat().unwrap().attr.blocks, 16);
    let found = |disk: &Disk| {
        let bytes = contents(disk, "file").unwrap();
        (bytes[99], bytes[100], bytes[4096], bytes[8291], bytes[8292])
    };
    assert_eq!(found(&disk), (1, 0, 0, 0, 1));
    let seen = outcomes(&disk, found);
    // First part, whole block, last part: each by itself.
    assert_eq!(seen.len(), 8);
    file.sync(true).unwrap();
    assert_eq!(outcomes(&disk, found), BTreeSet::from([(1, 0, 0, 0, 1)]));
}

#[test]
fn words_stored_through_a_mapping_persist_at_any_time_and_whole() {
    let (disk, file) = with_file(APART, &[0; 4096]);
    let words = file.map(0, 4096).unwrap();
    words.store(0, 1).unwrap();
    words.store(1, 2).unwrap();
    words.store(0, 3).unwrap();
    assert_eq!((words.load(0).unwrap(), words.load(1).unwrap(), words.load(2).unwrap()), (3, 2, 0));
    let look = |disk: &Disk| {
        let file = disk.root().open_at(os("file"), Access::ReadWrite).unwrap();
        let words = file.map(0, 4096).unwrap();
        (words.load(0).unwrap(), words.load(1).unwrap())
    };
    assert_eq!(outcomes(&disk, look), BTreeSet::from([(0, 0), (1, 0), (1, 2), (3, 2)]));
    assert_eq!(read(&file, 0, 1), [3]);
    file.sync(true).unwrap();
    assert_eq!(outcomes(&disk, look), BTreeSet::from([(3, 2)]));
    assert_eq!(disk.violations(), Vec::<String>::new());
}

#[test]
fn stores_without_a_block_and_beyond_the_end_are_noted() {
    let (disk, file) = with_file(APART, &[]);
    file.truncate(8192).unwrap();
    let words = file.map(0, 8192).unwrap();
    file.allocate(FallocateMode::Allocate { keep_size: true }, 0, 4096).unwrap();
    words.store(0, 1).unwrap();
    assert_eq!(words.load(600).unwrap(), 0);
    assert_eq!(disk.violations(), Vec::<String>::new());
    words.store(512, 1).unwrap();
    let others = [(); 2].map(|()| file.map(0, 8192).unwrap());
    file.truncate(4096).unwrap();
    assert_eq!(errno(others[0].load(512)), Some(Errno::EIO));
    assert_eq!(errno(others[0].load(0)), Some(Errno::EIO));
    assert_eq!(errno(others[1].store(513, 1)), Some(Errno::EIO));
    assert_eq!(errno(words.load(1024)), Some(Errno::EINVAL));
    assert_eq!(words.load(0).unwrap(), 1);
    let wanted = [
        "disk: store to a hole of /file at 4096",
        "disk: load beyond the end of /file at 4096",
        "disk: store beyond the end of /file at 4104",
        "disk: access beyond the mapping of /file at 8192",
    ];
    assert_eq!(disk.violations(), wanted);
}

#[test]
fn in_one_order_a_size_is_not_found_before_an_earlier_name() {
    let (disk, file) = with_file(ORDERED, &[1; 10]);
    create(&disk.root(), "other");
    file.truncate(5).unwrap();
    create(&disk.root(), "third");
    let look = |disk: &Disk| (names(&*disk.root()).len(), contents(disk, "file").unwrap().len());
    assert_eq!(outcomes(&disk, look), BTreeSet::from([(1, 10), (2, 10), (2, 5), (3, 5)]));
}
