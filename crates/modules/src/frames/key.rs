//! The key of a volume, and those of files, which are derived from it.

use braid_contract::Shown;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use hkdf::Hkdf;
use linux_keyutils::{KeyError, KeyRing, KeyRingIdentifier};
use rustix::fs::OFlags;
use sha2::Sha256;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Bytes of a key.
const KEY: usize = 32;

const NO_KEY: &str = "a key is 32 bytes, or 64 hexadecimal digits: head -c 32 /dev/urandom makes one";

/// The key that all others are derived from. It is cleared when it goes.
pub(crate) struct MasterKey(Zeroizing<[u8; KEY]>);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey")
    }
}

impl MasterKey {
    /// Reads a file of 32 bytes, or of 64 hexadecimal digits.
    ///
    /// # Errors
    /// Why the file can't be used.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let refuse = |why: &str| format!("{}: {why}", path.shown());
        let unreadable = |error: io::Error| refuse(&error.to_string());
        // Without waiting for the other end, if it is a pipe.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(refuse("a key file is a regular file"));
        }
        if about.mode() & 0o077 != 0 {
            return Err(refuse("others may read or change the key: chmod 600 it"));
        }
        // As long as the longest that can be one, and the end that it must have.
        let mut text = Zeroizing::new([0; 2 * KEY + 2]);
        let mut len = 0;
        loop {
            match (&file).read(&mut text[len..]).map_err(unreadable)? {
                0 => break,
                more => len += more,
            }
        }
        Self::parse(&text[..len]).ok_or_else(|| refuse(NO_KEY))
    }

    /// Reads a key of the type `user` with this description from the keyrings of the session, or of
    /// the user: its payload is as the contents of a file.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(crate) fn of_kernel(description: &str) -> Result<Self, String> {
        let refuse = |why: &str| format!("'{}': {why}", description.escape_debug());
        let failed = |error: KeyError| refuse(&error.to_string());
        // Those of the user, too: a service's session does not have them, and only what is reached
        // by way of the process can be read.
        let own = KeyRing::from_special_id(KeyRingIdentifier::Process, true).map_err(failed)?;
        own.link_keyring_id(KeyRingIdentifier::User).map_err(failed)?;
        let session = KeyRing::from_special_id(KeyRingIdentifier::Session, false);
        let found =
            session.and_then(|session| session.search(description)).or_else(|_| own.search(description));
        let mut text = Zeroizing::new([0; 2 * KEY + 2]);
        let read = found.and_then(|key| key.read(&mut *text));
        own.unlink_keyring_id(KeyRingIdentifier::User).map_err(failed)?;
        let len = match read {
            Err(KeyError::KeyDoesNotExist) => {
                return Err(refuse("there is no key of the type 'user' with this name: keyctl show"));
            }
            read => read.map_err(failed)?,
        };
        // The whole length, whatever there was room for.
        text.get(..len).and_then(Self::parse).ok_or_else(|| refuse(NO_KEY))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; KEY]);
        if text.len() == KEY {
            key.copy_from_slice(text);
            return Some(Self(key));
        }
        let digits = text.strip_suffix(b"\n").unwrap_or(text);
        let (pairs, rest) = digits.as_chunks::<2>();
        if pairs.len() != KEY || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for (byte, [high, low]) in key.iter_mut().zip(pairs) {
            *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        }
        Some(Self(key))
    }

    /// The cipher of the file with this id.
    pub(crate) fn cipher(&self, file: &[u8; 16]) -> XChaCha20Poly1305 {
        let mut key = Zeroizing::new([0; KEY]);
        self.derive(file, b"braid frames: key of a file", &mut *key);
        XChaCha20Poly1305::new((&*key).into())
    }

    /// Tells this key from others, and reveals nothing else of it.
    pub(crate) fn check(&self, instance: &[u8; 16]) -> [u8; 16] {
        let mut check = [0; 16];
        self.derive(instance, b"braid frames: check of the key", &mut check);
        check
    }

    fn derive(&self, salt: &[u8; 16], info: &[u8], derived: &mut [u8]) {
        let key = Hkdf::<Sha256>::new(Some(salt), &*self.0);
        key.expand(info, derived).expect("it is far shorter than what HKDF can give");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A key for tests.
    pub(crate) fn key(byte: u8) -> MasterKey {
        MasterKey(Zeroizing::new([byte; KEY]))
    }

    #[test]
    fn a_key_file_has_bytes_or_digits_and_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let read = |bytes: &[u8], mode: u32| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            MasterKey::read(&path)
        };
        let digits = "0aF9".repeat(16);
        let expected = [0x0a, 0xf9].repeat(16);
        for text in [expected.clone(), digits.clone().into_bytes(), format!("{digits}\n").into_bytes()] {
            assert_eq!(read(&text, 0o600).unwrap().0[..], expected);
        }
        for wrong in [
            "",
            "short",
            &digits[1..],
            &format!("{digits}0"),
            &format!("{digits}\n\n"),
            &digits.replace('F', "g"),
        ] {
            let said = read(wrong.as_bytes(), 0o600).unwrap_err();
            assert!(said.contains("key: a key is 32 bytes, or 64 hexadecimal digits"), "{said}");
        }
        for mode in [0o640, 0o604, 0o620] {
            assert!(read(&expected, mode).unwrap_err().contains("others may read or change the key"));
        }
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        assert!(MasterKey::read(&pipe).unwrap_err().contains("a key file is a regular file"));
        assert!(MasterKey::read(dir.path()).unwrap_err().contains("a key file is a regular file"));
        assert!(MasterKey::read(&dir.path().join("none")).unwrap_err().contains("No such file"));
        assert_eq!(format!("{:?}", key(7)), "MasterKey");
    }

    #[test]
    fn a_key_of_the_kernel_is_found_by_its_name() {
        let no_keys = || braid_testkit::skipped("keyrings of the kernel");
        let Ok(ring) = KeyRing::from_special_id(KeyRingIdentifier::User, true) else { return no_keys() };
        let name = format!("braid-test-{}", std::process::id());
        for (payload, is_key) in
            [(vec![7; 32], true), (b"0aF9".repeat(16), true), (vec![7; 33], false), (vec![7; 99], false)]
        {
            let Ok(key) = ring.add_key(&name, &payload) else { return no_keys() };
            let read = MasterKey::of_kernel(&name);
            let linked = ring.unlink_key(key);
            assert_eq!(read.is_ok(), is_key, "{read:?}");
            linked.unwrap();
        }
        let said = MasterKey::of_kernel(&name).unwrap_err();
        assert!(said.contains("there is no key of the type 'user' with this name"), "{said}");
    }

    #[test]
    fn files_have_keys_of_their_own() {
        let checks = [(1, 1), (1, 2), (2, 1)].map(|(byte, salt)| key(byte).check(&[salt; 16]));
        assert!(checks[0] != checks[1] && checks[0] != checks[2]);
        assert_eq!(checks[0], key(1).check(&[1; 16]));
    }
}
