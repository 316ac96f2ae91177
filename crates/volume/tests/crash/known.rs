//! Workloads that each search begins with: those that once revealed a bug, with
//! the seed of that exploration; and some that are drawn too rarely for the
//! risk in them.

use braid_testkit::crash::{Explorer, Limits, Subject};

const KNOWN: &[(&str, u64)] = &[
    // The mark of a removed file was gone for good, but its index was not.
    (
        "policy=weighted,disks=3,small=0,model=n,start=spread,ops=unlink-open:a+create:a+zero:a:228864:512+\
         migrate:a:1:1+append:a:512",
        0,
    ),
    // Tiers that leave and come back, with references to them in indexes.
    ("policy=weighted,disks=2,small=0,model=n,start=spread,ops=fsync:a+remove-tier:1", 1),
    ("policy=weighted,disks=2,small=0,model=jn,start=both,ops=fsync:a+remove-tier:1+kill+add-tier:1", 2),
    (
        "policy=weighted,disks=3,small=0,model=t,start=linked,ops=append:a:512+fsync:a+remove-tier:2+\
         append:a:65536+fsync:a+add-tier:2+append:a:131072+fsync:a",
        3,
    ),
    (
        "policy=size-spread,disks=3,small=0,model=jt,start=both,ops=unlink:a+remove-tier:1+remove-tier:2+\
         fsync:b+add-tier:1+remount+migrate:b:0:1+fsync:b",
        4,
    ),
    (
        "policy=home-first,disks=3,small=1,model=,start=spread,ops=migrate:a:0:1+fdatasync:a+\
         truncate:a:33280+remove-tier:1+create:b+kill+remove-tier:2+add-tier:2",
        5,
    ),
    // The mark that leads to the time of a write to a whole file was not synced.
    (
        "policy=home-first,disks=2,small=0,tight=1,model=jn,start=spread,ops=fsync:a+osync:a:110592:4096+\
         fail-fsync:a:1",
        6,
    ),
    // The attribute of a file that became plain came back, and with it a hole.
    (
        "policy=home-first,disks=2,small=0,tight=0,model=jn,start=empty,ops=create:a+write:a:262144:16384+\
         migrate:a:0:1:write:32768:65536+fdatasync:a",
        7,
    ),
    // Files that are made without a name, and get one or not.
    (
        "policy=weighted,disks=2,small=0,tight=0,model=,start=empty,ops=create-unnamed+write-orphan:0:196608+\
         fsync-orphan+link-orphan:a+append:a:65536+fsync:a+close:a+tick",
        8,
    ),
    (
        "policy=weighted,disks=2,small=0,tight=0,model=jn,start=both,ops=create-unnamed+\
         write-orphan:0:196608+close-orphans+create-unnamed+write-orphan:0:131072+link-orphan:d/a+\
         fsync:d/a+unlink-open:d/a+link-orphan:d/a+tick+close-orphans+tick",
        9,
    ),
    (
        "policy=home-first,disks=2,small=0,tight=1,model=n,start=empty,ops=create-unnamed+\
         write-orphan:0:12288+fsync-orphan+link-orphan:a+fsync:a+chmod:a:384+kill+fsync:a+remount",
        10,
    ),
    // A change of a name was found without the time of the last write, which
    // only the object had: the time before was taken for right.
    (
        "policy=elsewhere,disks=2,small=0,tight=0,model=n,start=both,ops=link:a:d/a+write:a:184320:4096+\
         sync+append:a:65536+sync+rename:b:a",
        11,
    ),
    // Appends that are synced one by one, and what comes after them.
    (
        "policy=weighted,disks=3,small=0,tight=0,model=,start=growing,ops=append:a:512+fdatasync:a+\
         punch:a:196608:1024+append:a:512+fdatasync:a+truncate:a:197120+append:a:512+fdatasync:a+\
         append:a:512+fdatasync:a+migrate:a:3:1+append:a:512+fdatasync:a+append:a:65536+fdatasync:a+\
         close:a+append:a:512+fdatasync:a+kill+append:a:512+fdatasync:a",
        12,
    ),
    // A synchronous write tells that an earlier sync failed.
    (
        "policy=adaptive,disks=2,small=0,tight=0,model=jn,start=plain,ops=create:d/a+write:d/a:126976:512+\
         fail:1:syncs+sync+heal+osync:d/a:303104:4096",
        13,
    ),
    // A truncation in frames that failed had changed the size all the same.
    (
        "policy=frames-weighted,disks=2,small=0,tight=0,model=jn,start=spread,ops=fail:1:writes+\
         append:a:69632+truncate:a:65536",
        7,
    ),
];

/// Whether exploring them finds nothing any more.
pub(crate) fn are_well(subject: &dyn Subject, limits: Limits) -> bool {
    KNOWN.iter().all(|(workload, seed)| {
        let Ok(workload) = workload.parse() else { return false };
        match Explorer::new(subject, limits).explore(&workload, *seed) {
            Ok(_) => true,
            Err(failure) => {
                println!("{failure}");
                false
            }
        }
    })
}

/// Whether a workload has the same result each time, whatever the policy:
/// policies must depend on the simulated machine only.
pub(crate) fn come_to_the_same(subject: &dyn Subject, limits: Limits) -> bool {
    let ops = "append:a:204800+fsync:a+tick+append:b:131072+append:a:131072+tick+append:a:66048+fsync:b";
    subject.policies().iter().all(|policy| {
        let line = format!("policy={policy},disks=3,small=0,model=jt,start=both,ops={ops}");
        let Ok(workload) = line.parse() else { return false };
        match [(); 2].map(|()| Explorer::new(subject, limits).explore(&workload, 6)) {
            [Ok(first), Ok(second)] if first == second => true,
            [first, second] => {
                println!("{line} came to {first:?}, and then to {second:?}");
                false
            }
        }
    })
}
