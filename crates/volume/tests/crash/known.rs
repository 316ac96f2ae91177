//! Workloads in which something was found once, and the seed with which their
//! exploration found it: each search begins with them.

use braid_testkit::crash::{Explorer, Limits};

const KNOWN: &[(&str, u64)] = &[
    // The mark of a removed file was gone for good, and its index was not.
    (
        "policy=weighted,disks=3,small=0,model=n,start=spread,ops=unlink-open:a+create:a+zero:a:228864:512+\
         migrate:a:1:1+append:a:512",
        0,
    ),
];

/// Whether nothing is found in them any more.
pub(crate) fn are_well(subject: &dyn braid_testkit::crash::Subject, limits: Limits) -> bool {
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
