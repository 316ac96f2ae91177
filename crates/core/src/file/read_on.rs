//! Reads a file's data on one tier, to measure that tier's speed.

use crate::core::Core;
use crate::file::pieces::{read_home, read_to_copy};
use crate::file::relocate::enter_to_move;
use crate::live::{File, Layout};
use braid_contract::Result;
use braid_tiers::{Account, Tier, act_for};

/// Reads the file's bytes from `offset` on into `buf`, past the page cache and for
/// no application, as far as they are of one range and on `tier`. Answers how many
/// there were: 0 at the end of the file, or if they are elsewhere. Neither the
/// file's times nor the heat of its ranges change. The caller has the file in
/// use.
///
/// # Errors
/// `ESTALE` if the file was taken into use before home was replaced; those of
/// the tier.
pub fn read_on(core: &Core, file: &File, tier: &Tier, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let _entered = enter_to_move(core, file)?;
    let _for = act_for(Account::Mover);
    let layout = file.layout.read();
    match &*layout {
        Layout::Plain if tier.is_home() => read_home(core, file.unnoticed(), offset, buf, true),
        Layout::Plain => Ok(0),
        Layout::Spread(spread) => {
            let left = spread.size().saturating_sub(offset);
            let entry = spread.index.entry(spread.range_size().range_of(offset))?;
            if left == 0 || entry.is_none_or(|entry| entry.tier != tier.id) {
                return Ok(0);
            }
            let len = buf.len().min(spread.range_size().rest_of(offset) as usize);
            read_to_copy(file, spread, tier, offset, &mut buf[..len])?;
            Ok(len.min(left as usize))
        }
    }
}
