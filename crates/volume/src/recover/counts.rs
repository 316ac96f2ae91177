//! How many ranges each tier holds: saved at a clean unmount, counted anew
//! after a crash.

use crate::Volume;
use braid_contract::{Context, Errno, Result, TierId};
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

const MAGIC: &[u8; 8] = b"BRAIDCNT";
const LEN: usize = 16 + TierId::LIMIT as usize * 8;

impl Volume {
    /// Saves the counts, for the next mount.
    pub(crate) fn save_counts(&self) -> Result<()> {
        let mut bytes = vec![0; LEN];
        bytes[..8].copy_from_slice(MAGIC);
        for tier in self.tiers.iter() {
            let at = 16 + usize::from(tier.id.0) * 8;
            bytes[at..at + 8].copy_from_slice(&tier.ranges.load(Ordering::Relaxed).to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        self.home.braid()?.replace_small("counts", &bytes).context("saving counts")
    }

    /// Takes the saved counts, which are stale from now on; without them, the
    /// indexes are counted.
    pub(crate) fn load_counts(&self) -> Result<()> {
        let braid = self.home.braid()?;
        let saved = braid.read_small("counts", LEN)?.filter(|bytes| is_sound(bytes));
        match saved {
            Some(bytes) => {
                for tier in self.tiers.iter() {
                    let at = 16 + usize::from(tier.id.0) * 8;
                    let count =
                        bytes[at..at + 8].iter().rev().fold(0, |count, byte| count << 8 | u64::from(*byte));
                    tier.ranges.store(count, Ordering::Relaxed);
                }
            }
            None => self.count_ranges()?,
        }
        match braid.remove_at(OsStr::new("counts"), false) {
            Err(error) if error.errno() == Errno::ENOENT => Ok(()),
            result => result.context("removing old counts"),
        }
    }

    fn count_ranges(&self) -> Result<()> {
        self.index.list(&mut |id| {
            let counted = self.index.open_index(id).and_then(|index| {
                index.for_each(0, |_, entry| {
                    self.tiers.count_range(None, entry.ok().map(|entry| entry.tier));
                    Ok(())
                })
            });
            if let Err(error) = counted {
                tracing::error!(file = %id, %error, "can't count the ranges of a file; run fsck");
            }
            Ok(())
        })
    }
}

fn is_sound(bytes: &[u8]) -> bool {
    bytes.len() == LEN && bytes[..8] == *MAGIC && bytes[8..12] == crc32c::crc32c(&bytes[16..]).to_le_bytes()
}
