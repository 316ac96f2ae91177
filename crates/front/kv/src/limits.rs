//! The limits of values.

use braid_contract::key_value::VALUE_MAX;

/// Refuses a value of `len` bytes if that is too long.
///
/// # Errors
/// The reason.
pub(crate) fn check_value_len(len: usize) -> Result<(), String> {
    match len {
        0..=VALUE_MAX => Ok(()),
        _ => Err(format!("a value of {len} bytes; {VALUE_MAX} are the most")),
    }
}
