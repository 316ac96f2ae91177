//! Users by name or number.

use std::fs;

/// The id of a user, who is given by it, or by a name in `/etc/passwd`.
///
/// # Errors
/// Advice, if there is none of that name.
pub(crate) fn id_of(text: &str) -> Result<u32, String> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let advice = || "write a user id, or a name in /etc/passwd".to_owned();
    let users = fs::read("/etc/passwd").map_err(|_| advice())?;
    let users = String::from_utf8_lossy(&users);
    let mut fields = users.lines().map(|line| line.split(':'));
    let user = fields.find_map(|mut fields| (fields.next()? == text).then(|| fields.nth(1)).flatten());
    user.and_then(|id| id.parse().ok()).ok_or_else(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((id_of("0"), id_of("root")), (Ok(0), Ok(0)));
        assert_eq!(id_of("4294967295"), Ok(u32::MAX));
        for unknown in ["-1", "", "no such user", "4294967296"] {
            assert!(id_of(unknown).is_err(), "{unknown}");
        }
    }
}
