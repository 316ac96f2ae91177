//! Reads a file in frames as it lies on a tier, without a mount.

use super::codec::Seal;
use super::geometry::{FIRST, FRAMES, HEADERS, TRIO};
use super::header::{HEAD, Head, Trio};
use super::key::MasterKey;
use super::record::ATTRIBUTES;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file in frames, without the record of its file system: each slot may be torn.
#[derive(Debug)]
pub struct Found {
    file: File,
    head: Head,
    stored: u64,
    seal: Seal,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

/// Why a file can't be read, or not as a whole.
#[derive(Debug)]
pub enum CatError {
    /// It is not made of frames, or needs a key, or the key can't be read.
    Refused(String),
    /// It could not be read, or its contents could not be written.
    Io(io::Error),
}

impl From<io::Error> for CatError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Found {
    /// Opens a file in frames.
    ///
    /// # Errors
    /// It is none, or can't be read with this key.
    pub fn open(path: &Path, key_file: Option<&Path>) -> Result<Self, CatError> {
        let file = File::open(path)?;
        let mut first = [0; HEAD];
        read_at(&file, &mut first, 0)?;
        let refuse = |why: &str| CatError::Refused(why.to_owned());
        // A copy has no attribute, and a file that was damaged may have no other head.
        let head = Head::decode(&first).or_else(|| head_of(&file).filter(|head| head.may_be(&first)));
        let head = head.ok_or_else(|| refuse("it is not made of frames"))?;
        let key = key_file.map(MasterKey::read).transpose().map_err(CatError::Refused)?;
        let cipher = match (head.is_sealed, key) {
            (true, None) => return Err(refuse("it is encrypted: name the key by --key-file")),
            (true, Some(key)) => Some(key.cipher(&head.id)),
            (false, _) => None,
        };
        let (stored, seal) = (file.metadata()?.len(), Seal { id: head.id, cipher });
        Ok(Self { file, head, stored, seal })
    }

    /// Writes the whole contents of the file. Damaged frames are zeros; answers where they begin.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub fn write_to(&self, to: &mut dyn Write) -> Result<Vec<u64>, CatError> {
        let (geometry, size) = (self.head.geometry, self.head.geometry.size(self.stored));
        let mut damaged = Vec::new();
        let mut headers = vec![0; HEADERS as usize];
        for frame in geometry.frames_of(&(0..size)) {
            let start = geometry.start_of(frame);
            if frame % FRAMES == 0 {
                read_at(&self.file, &mut headers, geometry.headers_at(frame / FRAMES))?;
            }
            let trios = headers[FIRST as usize..].as_chunks::<TRIO>().0;
            let trio = Trio::decode(&trios[(frame % FRAMES) as usize], geometry);
            let mut content = self.content(frame, &trio)?.unwrap_or_else(|| {
                damaged.push(start);
                Vec::new()
            });
            content.resize((size - start).min(geometry.frame()) as usize, 0);
            to.write_all(&content)?;
        }
        to.flush()?;
        Ok(damaged)
    }

    /// The contents of a frame; `None` if they are damaged.
    fn content(&self, frame: u64, trio: &Trio) -> io::Result<Option<Vec<u8>>> {
        for (side, header) in trio.newest_first() {
            let mut bytes = vec![0; header.stored as usize];
            read_at(&self.file, &mut bytes, self.head.geometry.slot_at(frame, side))?;
            if let Some(content) = self.seal.open(frame, &header, bytes) {
                return Ok(Some(content));
            }
        }
        Ok(trio.is_absent().then(Vec::new))
    }
}

/// The head that is an attribute of the file.
fn head_of(file: &File) -> Option<Head> {
    ATTRIBUTES.iter().find_map(|names| {
        let mut bytes = [0; HEAD];
        let len = rustix::fs::fgetxattr(file, names.head, &mut bytes[..]).ok()?;
        Head::decode(&bytes[..len])
    })
}

/// Reads; bytes behind the end are zero.
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.read_at(bytes, offset)? {
            0 => {
                bytes.fill(0);
                return Ok(());
            }
            count => {
                bytes = &mut bytes[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}
