//! Indexes that are damaged on the home tier's device, below the volume or
//! while it is not mounted.

use super::bench::Bench;
use super::sample::open_direct;
use crate::trial::Case;
use braid_tests_support::error::{Context, Failure, Result, ensure};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The cases.
pub(super) const CASES: &[Case] = &[
    ("an entry of an index is damaged while mounted", || damaged("entry-live", Part::Entry, true)),
    ("an entry of an index is damaged while not mounted", || damaged("entry", Part::Entry, false)),
    ("a page of an index is overwritten while mounted", || damaged("page-live", Part::Page, true)),
    ("a page of an index is overwritten while not mounted", || damaged("page", Part::Page, false)),
    ("the header of an index is damaged while mounted", || damaged("header-live", Part::Header, true)),
    ("the header of an index is damaged while not mounted", || damaged("header", Part::Header, false)),
];

/// The overwritten part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The entry of range 1.
    Entry,
    /// All entries of the file.
    Page,
    /// The first bytes of the header.
    Header,
}

impl Part {
    fn offset(self) -> u64 {
        match self {
            Self::Entry => 4096 + 8,
            Self::Page => 4096,
            Self::Header => 0,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Entry => 8,
            Self::Page => 4096,
            Self::Header => 16,
        }
    }

    /// Whether range `range` can't be found any more.
    fn hits(self, range: usize) -> bool {
        self != Self::Entry || range == 1
    }
}

fn damaged(name: &str, part: Part, live: bool) -> Result<()> {
    let mut bench = Bench::new(&format!("index-{name}"))?;
    let mount = bench.mount.clone();
    // The largest: spread, and not open.
    let victim = bench.samples.pop().ok_or_else(|| Failure("no files".into()))?;
    let path = index_of(&bench, &victim.path)?;
    if !live {
        bench.lab.unmount(&mount)?;
    }
    let index = OpenOptions::new().read(true).write(true).open(&path).at(&path)?;
    let mut kept = vec![0; part.len()];
    let len = index.read_at(&mut kept, part.offset()).at(&path)?;
    kept.truncate(len);
    index.write_all_at(&vec![0xa5; len], part.offset()).at(&path)?;
    index.sync_all().at(&path)?;
    if !live {
        bench.lab.mount(&mount).context("a mount with a damaged index")?;
    }

    match open_direct(&victim.path) {
        Err(Failure(why)) => {
            let right = part == Part::Header && why.contains("Structure needs cleaning");
            ensure(right, || format!("open: {why}"))?;
        }
        Ok(file) => {
            ensure(part != Part::Header, || "a file whose index has no header was opened".into())?;
            for range in 0..victim.len() {
                let told = victim.check_range(&file, range);
                let expected = if part.hits(range) { Err(Errno::UCLEAN) } else { Ok(true) };
                ensure(told == expected, || format!("range {range}: {told:?}, expected {expected:?}"))?;
            }
        }
    }
    bench.expect_log("index")?;
    bench.check(None).context("other files")?;
    let state = bench.bad_tier()?;
    ensure(state["state"] == "online" && state["trouble"].is_null(), || state.to_string())?;
    bench.lab.unmount(&mount)?;
    let checked = bench.lab.braid().arg("fsck").arg(&mount.stack).output()?;
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure(checked.status.code() == Some(4) && told.contains(&victim.name()), || {
        format!("fsck: {:?}: {told}", checked.status)
    })?;
    bench.lab.mount(&mount)?;

    // The original data is back, without a remount.
    index.write_all_at(&kept, part.offset()).at(&path)?;
    drop(index);
    victim.check(None).context("after the index was put right")?;
    bench.samples.push(victim);
    bench.all_is_well()?;
    bench.finish()
}

/// The index of a file, on the home tier.
fn index_of(bench: &Bench, path: &std::path::Path) -> Result<PathBuf> {
    let explained = bench.json(&["explain", "--json"], path)?;
    let id = explained["object"].as_str().unwrap_or_default();
    let index = bench.tier_dir("home").join(".braid/index").join(id.get(..2).unwrap_or_default()).join(id);
    File::open(&index).at(&index).map(|_| index)
}
