//! The address of metrics: a port that only this machine reaches, or a socket.
//! Read from stack files and flags.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The form of an address, for messages.
pub const FORM: &str = "write 127.0.0.1:9464, [::1]:9464 or unix:/run/braid-metrics.sock";

/// The address of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port, for metrics on a loopback address.
    Tcp(SocketAddr),
    /// A UNIX socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// Advice what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Self::parse_any(text, FORM)? {
            Self::Tcp(address) if !address.ip().is_loopback() => Err(format!(
                "anyone on the network could read it there, without a password; {FORM}, \
                 and put a proxy before it for other machines"
            )),
            address => Ok(address),
        }
    }

    /// Reads an address, also one that other machines reach; `form` says how to write it.
    pub(crate) fn parse_any(text: &str, form: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = Path::new(path);
            return match path.is_absolute() && path.file_name().is_some() {
                true => Ok(Self::Unix(path.to_owned())),
                false => Err(format!("name the socket from the root on; {form}")),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| form.to_owned())?;
        match address.port() {
            0 => Err(format!("no client would know the port; {form}")),
            _ => Ok(Self::Tcp(address)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.to_string_lossy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_can_be_an_address() {
        for good in ["127.0.0.1:9464", "127.8.0.1:1", "[::1]:9464", "unix:/run/a b.sock"] {
            assert_eq!(Address::parse(good).unwrap().to_string(), good);
        }
        for (bad, says) in [
            ("0.0.0.0:9464", "anyone on the network"),
            ("[::]:9464", "anyone on the network"),
            ("192.168.1.1:9464", "anyone on the network"),
            ("127.0.0.1:0", "no client would know the port"),
            ("127.0.0.1", "write 127.0.0.1:9464"),
            ("localhost:9464", "write 127.0.0.1:9464"),
            ("127.0.0.1:70000", "write 127.0.0.1:9464"),
            ("unix:x.sock", "from the root on"),
            ("unix:/", "from the root on"),
            ("", "write 127.0.0.1:9464"),
        ] {
            let advice = Address::parse(bad).unwrap_err();
            assert!(advice.contains(says), "{bad}: {advice}");
        }
    }
}
