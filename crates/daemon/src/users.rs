//! Users by name or number.

use std::fs;

/// The id of a user, given by number or by a name in `/etc/passwd`.
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

/// A user with all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The first group.
    pub gid: u32,
    /// The others.
    pub groups: Vec<u32>,
}

/// A user of `/etc/passwd`, by number or name, with the groups of `/etc/group`.
///
/// # Errors
/// Advice, if there is none.
pub(crate) fn user_of(text: &str) -> Result<User, String> {
    let uid = id_of(text)?;
    let advice = || "name a user of /etc/passwd".to_owned();
    let read = |file: &str| fs::read(file).map(|text| String::from_utf8_lossy(&text).into_owned());
    let users = read("/etc/passwd").map_err(|_| advice())?;
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let is_it = |line: &Vec<String>| line.len() > 3 && line[2].parse() == Ok(uid);
    let user = users.lines().map(fields).find(is_it).ok_or_else(advice)?;
    let gid = user[3].parse().map_err(|_| advice())?;
    let groups = read("/etc/group").unwrap_or_default();
    let groups = groups.lines().map(fields).filter(|group| {
        group.get(3).is_some_and(|members| members.split(',').any(|member| member == user[0]))
    });
    Ok(User { uid, gid, groups: groups.filter_map(|group| group[2].parse().ok()).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((id_of("0"), id_of("root")), (Ok(0), Ok(0)));
        assert_eq!(id_of("4294967295"), Ok(u32::MAX));
        assert_eq!(user_of("root").map(|user| (user.uid, user.gid)), Ok((0, 0)));
        assert!(user_of("4000000000").is_err());
        for unknown in ["-1", "", "no such user", "4294967296"] {
            assert!(id_of(unknown).is_err(), "{unknown}");
        }
    }
}
