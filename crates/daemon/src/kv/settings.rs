//! How keys and values are served by the Redis protocol: the key `kv` of a mount, and
//! flags.

use crate::metrics::Address;
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use crate::stack_text::entry;
use crate::users::{self, User};
use crate::yaml::{Node, Value};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The form of an address, for messages.
const FORM: &str = "write unix:/run/values.sock, 127.0.0.1:6379 or [::1]:6379";
/// Connections at a time, by default.
pub(crate) const CONNECTIONS_DEFAULT: usize = 128;
/// The bounds of their number.
pub const CONNECTIONS: RangeInclusive<usize> = 1..=1024;
/// Addresses at which one mount answers, at most.
const LISTEN_MAX: usize = 8;

/// How keys and values are served.
#[derive(Clone, Debug, PartialEq)]
pub struct KvSettings {
    /// Where.
    pub listen: Vec<Located<Address>>,
    /// The directory, below the root of the file system; the root if it is empty.
    pub directory: Located<PathBuf>,
    /// The file with the password.
    pub password_file: Option<Located<PathBuf>>,
    /// The user whose rights clients of TCP ports have; the one who mounted, if not set.
    pub user: Option<Located<User>>,
    /// Most connections at a time.
    pub connections: Option<Located<usize>>,
}

/// The flags, as written.
#[derive(Clone, Debug, Default)]
pub struct KvFlags {
    /// Each `--kv`.
    pub listen: Vec<String>,
    /// `--kv-directory`.
    pub directory: Option<String>,
    /// `--kv-password-file`.
    pub password_file: Option<String>,
    /// `--kv-user`.
    pub user: Option<String>,
}

fn address(text: &str) -> Result<Address, String> {
    Address::parse_any(text, FORM)
}

fn below_root(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let is_plain =
        |component| matches!(component, std::path::Component::Normal(_) | std::path::Component::CurDir);
    match path.components().all(is_plain) {
        true => Ok(path.to_owned()),
        false => Err("name a directory of this file system from its root on, such as cache/values".into()),
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    match Path::new(text).is_absolute() {
        true => Ok(text.into()),
        false => Err("name the file from the root on".into()),
    }
}

impl KvSettings {
    /// Reads the key `kv` of a mount.
    pub(crate) fn from_file(field: &Field) -> Result<Self, Refusal> {
        let known = ["listen", "directory", "password-file", "user", "connections"];
        let mut section = Section::of(field, &known)?;
        let listen = section.require("listen", "listen: [ unix:/run/values.sock ]")?;
        let items = listen.items("listen: [ unix:/run/values.sock, 127.0.0.1:6379 ]")?;
        let parse = |item: &Field| item.parse("an address", address);
        let directory = section.take("directory").map(|field| field.parse("a directory", below_root));
        let place = section.place().clone();
        let settings = Self {
            listen: items.iter().map(parse).collect::<Result<_, _>>()?,
            directory: directory.transpose()?.unwrap_or_else(|| Located::new(PathBuf::new(), place.clone())),
            password_file: section
                .take("password-file")
                .map(|field| field.parse("a file", absolute))
                .transpose()?,
            user: section.take("user").map(|field| field.parse("a user", users::user_of)).transpose()?,
            connections: section.take("connections").map(|field| field.count(CONNECTIONS)).transpose()?,
        };
        settings.check(&listen.place)?;
        Ok(settings)
    }

    /// Reads the flags; `None` if none is given.
    ///
    /// # Errors
    /// The first error in them.
    pub fn from_flags(flags: &KvFlags) -> Result<Option<Self>, Refusal> {
        fn parsed<T>(
            flag: &str,
            text: &str,
            what: &str,
            parse: impl FnOnce(&str) -> Result<T, String>,
        ) -> Result<Located<T>, Refusal> {
            let place = Place::flag(format!("{flag} {text}"));
            match parse(text) {
                Ok(value) => Ok(Located::new(value, place)),
                Err(advice) => Err(place.refuse(format!("not {what}"), advice)),
            }
        }
        if flags.listen.is_empty() {
            return Ok(None);
        }
        let listen = flags.listen.iter().map(|text| parsed("--kv", text, "an address", address));
        let directory = flags.directory.as_deref();
        let directory = directory.map(|text| parsed("--kv-directory", text, "a directory", below_root));
        let file = flags.password_file.as_deref();
        let user = flags.user.as_deref();
        let settings = Self {
            listen: listen.collect::<Result<_, _>>()?,
            directory: directory
                .transpose()?
                .unwrap_or_else(|| Located::new(PathBuf::new(), Place::flag("--kv"))),
            password_file: file
                .map(|text| parsed("--kv-password-file", text, "a file", absolute))
                .transpose()?,
            user: user.map(|text| parsed("--kv-user", text, "a user", users::user_of)).transpose()?,
            connections: None,
        };
        settings.check(&Place::flag("--kv"))?;
        Ok(Some(settings))
    }

    /// Refuses settings that would let in the wrong users.
    fn check(&self, place: &Place) -> Result<(), Refusal> {
        if self.listen.is_empty() || self.listen.len() > LISTEN_MAX {
            let found = format!("{} addresses", self.listen.len());
            return Err(place.refuse(found, format!("name from 1 to {LISTEN_MAX}; {FORM}")));
        }
        for Located { value, place } in &self.listen {
            let Address::Tcp(address) = value else { continue };
            if self.password_file.is_none() && !address.ip().is_loopback() {
                let advice =
                    "name a file with a password (password-file, --kv-password-file), or listen at 127.0.0.1";
                return Err(place.refuse("anyone on the network could change values there", advice));
            }
            if self.password_file.is_none() && self.user.is_none() {
                let advice = "name a file with a password (password-file, --kv-password-file), or whose rights they \
                              are to have (user, --kv-user), or listen at unix:/PATH, where the kernel tells users";
                let found = "every user of this machine would have the rights of the one who mounts";
                return Err(place.refuse(found, advice));
            }
        }
        Ok(())
    }

    /// The settings as a stack file has them.
    pub(crate) fn node(&self) -> Value {
        let text = |text: String| Value::Scalar(text);
        let listen = self.listen.iter().map(|address| Node::new(text(address.value.to_string())));
        let mut keys = vec![entry("listen", Value::List(listen.collect()))];
        if !self.directory.value.as_os_str().is_empty() {
            keys.push(entry("directory", text(self.directory.value.to_string_lossy().into_owned())));
        }
        let file = self.password_file.as_ref();
        keys.extend(file.map(|file| entry("password-file", text(file.value.to_string_lossy().into_owned()))));
        keys.extend(self.user.as_ref().map(|user| entry("user", text(user.value.uid.to_string()))));
        let connections = self.connections.as_ref();
        keys.extend(connections.map(|count| entry("connections", text(count.value.to_string()))));
        Value::Map(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(listen: &[&str], password: bool, user: Option<&str>) -> Result<Option<KvSettings>, String> {
        let flags = KvFlags {
            listen: listen.iter().map(|text| (*text).to_owned()).collect(),
            directory: None,
            password_file: password.then(|| "/etc/secret".to_owned()),
            user: user.map(str::to_owned),
        };
        KvSettings::from_flags(&flags).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn nobody_gets_rights_by_mistake() {
        assert_eq!(flags(&[], false, None), Ok(None));
        for (listen, password, user) in [
            ("unix:/run/x.sock", false, None),
            ("127.0.0.1:6379", true, None),
            ("127.0.0.1:6379", false, Some("0")),
            ("0.0.0.0:6379", true, None),
        ] {
            assert!(flags(&[listen], password, user).unwrap().is_some(), "{listen}");
        }
        for (listen, password, user, says) in [
            ("127.0.0.1:6379", false, None, "every user of this machine"),
            ("0.0.0.0:6379", false, Some("0"), "anyone on the network"),
            ("[::]:6379", false, None, "anyone on the network"),
            ("unix:x", false, None, "from the root on"),
            ("6379", false, None, "write unix:/run/values.sock"),
            ("127.0.0.1:0", true, None, "no client would know the port"),
            ("unix:/x", false, Some("no such user"), "/etc/passwd"),
        ] {
            let said = flags(&[listen], password, user).unwrap_err();
            assert!(said.contains(says), "{listen}: {said}");
        }
        assert!(flags(&["unix:/x"; 9], false, None).unwrap_err().contains("from 1 to 8"));
    }
}
