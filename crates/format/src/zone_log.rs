//! The log of a zoned store's object index: frames of records. A store replays
//! them from the beginning of a region on, until one does not follow.

use crate::FormatError;
use crate::bytes::{crc_without, get, get_u16, get_u32, get_u64, put, seal};
use braid_contract::{ObjectId, Timestamp};

const FRAME_MAGIC: &[u8; 8] = b"BRAIDZLG";
/// The version of frames and records.
const VERSION: u16 = 1;
const CRC_AT: usize = 12;
/// The highest number of an object.
const OBJECT_MAX: u64 = u64::MAX / 2;
/// In place of a stream.
const NO_STREAM: u32 = u32::MAX;

/// Bytes of a frame before its records.
pub const FRAME_HEAD: usize = 64;
/// Most bytes of records in one frame.
pub const FRAME_PAYLOAD_MAX: usize = 1 << 20;
/// Most bytes of a label in a record.
pub const ZONED_LABEL_MAX: usize = 4096;

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Part of a checkpoint, which more frames follow.
    Checkpoint,
    /// The last part of a checkpoint.
    CheckpointEnd,
    /// Changes since then.
    Changes,
    /// The log goes on in the other region: what is here is out of date.
    MovedOn,
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// The store, as a number that is made with it.
    pub store: [u8; 16],
    /// Grows by one with each checkpoint.
    pub generation: u64,
    /// By chance, for each checkpoint: frames of an attempt that failed are told from
    /// those of the next one.
    pub salt: u64,
    /// Number of the frame in its region, from 0 on.
    pub sequence: u64,
    /// What it is for.
    pub kind: FrameKind,
    /// Bytes of records in it.
    pub payload: u32,
}

/// A change of the object index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ZoneRecord {
    /// The tier's label.
    Label(Vec<u8>),
    /// The tier has no label after all.
    Unlabelled,
    /// An object is made, and has this number in records below.
    Made {
        /// The number.
        object: u64,
        /// The object.
        id: ObjectId,
    },
    /// The blocks with these bytes of an object are in a zone. The object is at
    /// least as long now.
    Piece {
        /// The object.
        object: u64,
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The zone.
        zone: u32,
        /// The first block there, from the beginning of the zone.
        at: u32,
    },
    /// The object ends here; what was beyond is gone.
    Size {
        /// The object.
        object: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// These bytes read as zeros.
    Punched {
        /// The object.
        object: u64,
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// There is to be room for these bytes.
    Reserved {
        /// The object.
        object: u64,
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Its times.
    Times {
        /// The object.
        object: u64,
        /// Of the last change.
        mtime: Timestamp,
        /// As it was set, if it ever was.
        atime: Option<Timestamp>,
    },
    /// The object is gone.
    Removed {
        /// The object.
        object: u64,
    },
    /// A zone is for data of a stream, or of none.
    Zone {
        /// The zone.
        zone: u32,
        /// The stream.
        stream: Option<u32>,
    },
}

impl FrameKind {
    const ALL: [Self; 4] = [Self::Checkpoint, Self::CheckpointEnd, Self::Changes, Self::MovedOn];

    fn number(self) -> u16 {
        match self {
            Self::Checkpoint => 1,
            Self::CheckpointEnd => 2,
            Self::Changes => 3,
            Self::MovedOn => 4,
        }
    }
}

impl FrameHead {
    /// A frame with these records, filled up to whole blocks.
    pub fn seal(&self, payload: &[u8], block: usize) -> Vec<u8> {
        let mut bytes = vec![0; (FRAME_HEAD + payload.len()).next_multiple_of(block)];
        put(&mut bytes, 0, FRAME_MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 10, &self.kind.number().to_le_bytes());
        put(&mut bytes, 16, &(payload.len() as u32).to_le_bytes());
        put(&mut bytes, 24, &self.generation.to_le_bytes());
        put(&mut bytes, 32, &self.sequence.to_le_bytes());
        put(&mut bytes, 40, &self.store);
        put(&mut bytes, 56, &self.salt.to_le_bytes());
        put(&mut bytes, FRAME_HEAD, payload);
        let len = FRAME_HEAD + payload.len();
        seal(&mut bytes[..len], CRC_AT);
        bytes
    }

    /// The head at the beginning of `bytes`, at least [`FRAME_HEAD`] of them. What it
    /// says is not to be believed before [`check`](Self::check).
    ///
    /// # Errors
    /// If there is no frame, or one of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() < FRAME_HEAD || bytes[..8] != *FRAME_MAGIC {
            return Err(FormatError::Damaged("there is no frame of the index"));
        }
        let version = get_u16(bytes, 8);
        if version > VERSION {
            return Err(FormatError::Newer(version));
        }
        let kind = FrameKind::ALL.into_iter().find(|kind| kind.number() == get_u16(bytes, 10));
        let kind = kind.ok_or(FormatError::Damaged("the frame is of no known kind"))?;
        let payload = get_u32(bytes, 16);
        if payload as usize > FRAME_PAYLOAD_MAX {
            return Err(FormatError::Damaged("the frame is too long"));
        }
        Ok(Self {
            store: get(bytes, 40),
            generation: get_u64(bytes, 24),
            sequence: get_u64(bytes, 32),
            salt: get_u64(bytes, 56),
            kind,
            payload,
        })
    }

    /// Bytes of the whole frame.
    pub fn len(&self, block: usize) -> usize {
        (FRAME_HEAD + self.payload as usize).next_multiple_of(block)
    }

    /// The records of a frame whose head this is, which begins with `bytes`.
    ///
    /// # Errors
    /// If it is not whole.
    pub fn check<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let len = FRAME_HEAD + self.payload as usize;
        if bytes.len() < len {
            return Err(FormatError::Damaged("the frame is cut off"));
        }
        if get_u32(bytes, CRC_AT) != crc_without(&bytes[..len], CRC_AT) {
            return Err(FormatError::Damaged("the frame's checksum does not match"));
        }
        Ok(&bytes[FRAME_HEAD..len])
    }
}

impl ZoneRecord {
    /// Adds the record to those of a frame.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut add = |bytes: &[u8]| to.extend_from_slice(bytes);
        match self {
            Self::Label(label) => {
                add(&[1]);
                add(&(label.len() as u16).to_le_bytes());
                add(label);
            }
            Self::Unlabelled => add(&[9]),
            Self::Made { object, id } => {
                add(&[2]);
                add(&object.to_le_bytes());
                add(&id.0);
            }
            Self::Piece { object, start, end, zone, at } => {
                add(&[3]);
                for figure in [object, start, end] {
                    add(&figure.to_le_bytes());
                }
                add(&zone.to_le_bytes());
                add(&at.to_le_bytes());
            }
            Self::Size { object, size } => {
                add(&[4]);
                add(&object.to_le_bytes());
                add(&size.to_le_bytes());
            }
            Self::Punched { object, start, end } | Self::Reserved { object, start, end } => {
                add(&[if matches!(self, Self::Punched { .. }) { 5 } else { 10 }]);
                for figure in [object, start, end] {
                    add(&figure.to_le_bytes());
                }
            }
            Self::Times { object, mtime, atime } => {
                add(&[6]);
                add(&object.to_le_bytes());
                add(&time_bytes(*mtime));
                add(&[u8::from(atime.is_some())]);
                add(&time_bytes(atime.unwrap_or_default()));
            }
            Self::Removed { object } => {
                add(&[7]);
                add(&object.to_le_bytes());
            }
            Self::Zone { zone, stream } => {
                add(&[8]);
                add(&zone.to_le_bytes());
                add(&stream.unwrap_or(NO_STREAM).to_le_bytes());
            }
        }
    }

    /// The records of a frame, in their order.
    ///
    /// # Errors
    /// If one makes no sense.
    pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Self>, FormatError> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            records.push(Self::decode(&mut bytes)?);
        }
        Ok(records)
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, FormatError> {
        let [kind] = take::<1>(bytes)?;
        let number = |bytes: &mut &[u8]| take::<8>(bytes).map(u64::from_le_bytes);
        let small = |bytes: &mut &[u8]| take::<4>(bytes).map(u32::from_le_bytes);
        Ok(match kind {
            1 => {
                let len = usize::from(u16::from_le_bytes(take::<2>(bytes)?));
                if len > ZONED_LABEL_MAX {
                    return Err(FormatError::Damaged("a record has a label that is too long"));
                }
                let (label, rest) = bytes.split_at_checked(len).ok_or(CUT_OFF)?;
                *bytes = rest;
                Self::Label(label.to_vec())
            }
            2 => {
                let (object, id) = (number(bytes)?, ObjectId(take::<16>(bytes)?));
                // Others are made after it.
                if object > OBJECT_MAX {
                    return Err(FormatError::Damaged("a record has a number that is no object's"));
                }
                Self::Made { object, id }
            }
            3 => {
                let [object, start, end] = [number(bytes)?, number(bytes)?, number(bytes)?];
                let (zone, at) = (small(bytes)?, small(bytes)?);
                checked_span(start, end)?;
                Self::Piece { object, start, end, zone, at }
            }
            4 => {
                let (object, size) = (number(bytes)?, number(bytes)?);
                if i64::try_from(size).is_err() {
                    return Err(FormatError::Damaged("a record has a size that is none"));
                }
                Self::Size { object, size }
            }
            5 | 10 => {
                let [object, start, end] = [number(bytes)?, number(bytes)?, number(bytes)?];
                checked_span(start, end)?;
                match kind {
                    5 => Self::Punched { object, start, end },
                    _ => Self::Reserved { object, start, end },
                }
            }
            6 => {
                let (object, mtime) = (number(bytes)?, take_time(bytes)?);
                let [is_set] = take::<1>(bytes)?;
                let atime = take_time(bytes)?;
                Self::Times { object, mtime, atime: (is_set != 0).then_some(atime) }
            }
            7 => Self::Removed { object: number(bytes)? },
            8 => {
                let (zone, stream) = (small(bytes)?, small(bytes)?);
                Self::Zone { zone, stream: Some(stream).filter(|stream| *stream != NO_STREAM) }
            }
            9 => Self::Unlabelled,
            _ => return Err(FormatError::Damaged("a record is of no known kind")),
        })
    }
}

const CUT_OFF: FormatError = FormatError::Damaged("a record is cut off");

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], FormatError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(CUT_OFF)?;
    *bytes = rest;
    Ok(*first)
}

fn checked_span(start: u64, end: u64) -> Result<(), FormatError> {
    if start < end && i64::try_from(end).is_ok() {
        Ok(())
    } else {
        Err(FormatError::Damaged("a record has a span that is none"))
    }
}

fn time_bytes(time: Timestamp) -> [u8; 12] {
    let mut bytes = [0; 12];
    put(&mut bytes, 0, &time.secs.to_le_bytes());
    put(&mut bytes, 8, &time.nanos.to_le_bytes());
    bytes
}

fn take_time(bytes: &mut &[u8]) -> Result<Timestamp, FormatError> {
    let secs = i64::from_le_bytes(take::<8>(bytes)?);
    let nanos = u32::from_le_bytes(take::<4>(bytes)?);
    if nanos >= 1_000_000_000 {
        return Err(FormatError::Damaged("a record has a time that is none"));
    }
    Ok(Timestamp { secs, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<ZoneRecord> {
        let times = [Timestamp { secs: -5, nanos: 999_999_999 }, Timestamp { secs: 1 << 33, nanos: 0 }];
        vec![
            ZoneRecord::Label(b"label".to_vec()),
            ZoneRecord::Label(vec![7; ZONED_LABEL_MAX]),
            ZoneRecord::Made { object: 1, id: ObjectId([9; 16]) },
            ZoneRecord::Piece { object: 1, start: 5, end: 1 << 40, zone: 3, at: u32::MAX },
            ZoneRecord::Size { object: 1, size: 77 },
            ZoneRecord::Punched { object: u64::MAX, start: 0, end: 1 },
            ZoneRecord::Times { object: 1, mtime: times[0], atime: None },
            ZoneRecord::Times { object: 1, mtime: times[1], atime: Some(times[0]) },
            ZoneRecord::Removed { object: 1 },
            ZoneRecord::Zone { zone: 8, stream: Some(u32::MAX - 1) },
            ZoneRecord::Unlabelled,
            ZoneRecord::Reserved { object: 1, start: 4096, end: 1 << 50 },
            ZoneRecord::Zone { zone: 9, stream: None },
        ]
    }

    fn payload() -> Vec<u8> {
        let mut payload = Vec::new();
        records().iter().for_each(|record| record.encode(&mut payload));
        payload
    }

    fn frame(kind: FrameKind) -> (FrameHead, Vec<u8>) {
        let payload = payload();
        let head = FrameHead {
            store: [4; 16],
            generation: 3,
            salt: 5,
            sequence: 17,
            kind,
            payload: payload.len() as u32,
        };
        (head, head.seal(&payload, 4096))
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for kind in FrameKind::ALL {
            let (head, bytes) = frame(kind);
            assert_eq!((bytes.len() % 4096, bytes.len()), (0, head.len(4096)));
            assert_eq!(FrameHead::decode(&bytes).unwrap(), head);
            assert_eq!(ZoneRecord::decode_all(head.check(&bytes).unwrap()).unwrap(), records());
        }
    }

    #[test]
    fn a_byte_that_changed_is_found() {
        let (_, bytes) = frame(FrameKind::Changes);
        let used = FRAME_HEAD + payload().len();
        for at in (0..used).step_by(7).chain([0, 8, 10, 16, 63, used - 1]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let found = FrameHead::decode(&damaged).and_then(|head| head.check(&damaged).map(<[u8]>::len));
            assert!(found.is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_is_cut_off_or_makes_no_sense_is_refused() {
        let payload = payload();
        for len in 0..payload.len() {
            // Whole records may be left.
            let _ = ZoneRecord::decode_all(&payload[..len]);
        }
        assert!(ZoneRecord::decode_all(&payload[..payload.len() - 1]).is_err());
        for wrong in [
            &[0][..],
            &[11],
            &[1, 255, 255],
            // A span that ends where it begins.
            &[&[5][..], &1u64.to_le_bytes(), &7u64.to_le_bytes(), &7u64.to_le_bytes()].concat(),
            &[&[4][..], &1u64.to_le_bytes(), &u64::MAX.to_le_bytes()].concat(),
            &[&[2][..], &u64::MAX.to_le_bytes(), &[3; 16]].concat(),
        ] {
            assert!(ZoneRecord::decode_all(wrong).is_err(), "{wrong:?}");
        }
    }
}
