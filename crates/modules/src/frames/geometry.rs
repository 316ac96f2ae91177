//! Where the parts of a framed file lie in the child's file.
//!
//! The child's file is a row of groups. A group begins with a block of headers,
//! then come three slots for each of its frames:
//!
//! ```text
//! | headers | A0 | B0 | C0 | A1 | B1 | C1 | … | C20 | headers | A21 | B21 | …
//! ```
//!
//! The child's size follows from the file's by a bijection, so that the size
//! needs no place of its own, and a truncation is one of the child.

use std::ops::Range;

/// Bytes of the headers of a group: one block of native file systems, so that a
/// small file takes one block beside its data.
pub(crate) const HEADERS: u64 = 4096;
/// Bytes of the header of a slot.
pub(crate) const HEADER: usize = 64;
/// Slots of a frame: for the durable version, a later one, and the next write.
pub(crate) const SLOTS: usize = 3;
/// Bytes of the headers of a frame.
pub(crate) const TRIO: usize = SLOTS * HEADER;
/// The start of the headers in their block. In the first group, the head lies before.
pub(crate) const FIRST: u64 = HEADERS % TRIO as u64;
/// Frames of a group.
pub(crate) const FRAMES: u64 = HEADERS / TRIO as u64;
/// The bounds of frames, as powers of two: 4 KiB to 1 MiB.
pub(crate) const SHIFTS: std::ops::RangeInclusive<u8> = 12..=20;
/// The longest file that native file systems have at all.
const STORED_MAX: u64 = i64::MAX as u64;

/// Which of the slots of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    A,
    B,
    C,
}

impl Side {
    pub(crate) const ALL: [Self; SLOTS] = [Self::A, Self::B, Self::C];
}

/// The places in a file with frames of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    shift: u8,
}

impl Geometry {
    /// Frames of two to the power of `shift` bytes, if these are within the bounds.
    pub(crate) fn new(shift: u8) -> Option<Self> {
        SHIFTS.contains(&shift).then_some(Self { shift })
    }

    pub(crate) fn shift(self) -> u8 {
        self.shift
    }

    /// Bytes of a frame, and of a slot.
    pub(crate) fn frame(self) -> u64 {
        1 << self.shift
    }

    /// From one frame's slots to the next one's.
    fn stride(self) -> u64 {
        SLOTS as u64 * self.frame()
    }

    fn group_bytes(self) -> u64 {
        HEADERS + FRAMES * self.stride()
    }

    /// The place of the headers of a group.
    pub(crate) fn headers_at(self, group: u64) -> u64 {
        group * self.group_bytes()
    }

    /// The place of the headers of a frame.
    pub(crate) fn trio_at(self, frame: u64) -> u64 {
        self.headers_at(group_of(frame)) + FIRST + (place_of(frame) * TRIO) as u64
    }

    /// The start of a slot.
    pub(crate) fn slot_at(self, frame: u64, side: Side) -> u64 {
        let slot = (SLOTS * place_of(frame) + side as usize) as u64;
        self.headers_at(group_of(frame)) + HEADERS + slot * self.frame()
    }

    /// The end of a frame's slots. Those of earlier frames lie before.
    pub(crate) fn end_of(self, frame: u64) -> u64 {
        self.slot_at(frame, Side::C) + self.frame()
    }

    /// The frame that a byte of the file is in.
    pub(crate) fn frame_of(self, offset: u64) -> u64 {
        offset >> self.shift
    }

    /// The first byte of the file in a frame.
    pub(crate) fn start_of(self, frame: u64) -> u64 {
        frame << self.shift
    }

    /// The frames that have bytes of this range; none if it is empty.
    pub(crate) fn frames_of(self, bytes: &Range<u64>) -> Range<u64> {
        if bytes.is_empty() {
            return 0..0;
        }
        self.frame_of(bytes.start)..self.frame_of(bytes.end - 1) + 1
    }

    /// The group that a byte of the child's file is in.
    pub(crate) fn group_at(self, stored: u64) -> u64 {
        stored / self.group_bytes()
    }

    /// The child's size for a file of this size; `None` if it would be too long.
    pub(crate) fn stored_size(self, size: u64) -> Option<u64> {
        let Some(last) = size.checked_sub(1) else { return Some(0) };
        // The largest offset of a group that is still no overflow.
        if self.frame_of(last) / FRAMES >= STORED_MAX / self.group_bytes() {
            return None;
        }
        Some(self.end_of(self.frame_of(last)) + last % self.frame() + 1)
    }

    /// The file's size for one of the child. Sizes that none leads to, as a crash may
    /// leave them, come to the next smaller one.
    pub(crate) fn size(self, stored: u64) -> u64 {
        let Some(last) = stored.checked_sub(1) else { return 0 };
        let (group, within) = (self.group_at(last), last % self.group_bytes());
        let (first, stride) = (group * FRAMES, self.stride());
        let (frame, rest) = match within.checked_sub(HEADERS + stride) {
            Some(behind) => (first + behind / stride, behind % stride),
            // Behind the last slot of the group before.
            None if group > 0 => (first - 1, within),
            None => return 0,
        };
        self.start_of(frame) + (rest + 1).min(self.frame())
    }
}

/// The group that a frame is in.
pub(crate) fn group_of(frame: u64) -> u64 {
    frame / FRAMES
}

/// Which frame of its group it is.
pub(crate) fn place_of(frame: u64) -> usize {
    (frame % FRAMES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_child_are_those_of_files_in_another_form() {
        for shift in SHIFTS {
            let geometry = Geometry::new(shift).unwrap();
            let (frame, group) = (geometry.frame(), geometry.frame() * FRAMES);
            assert_eq!(geometry.stored_size(0), Some(0));
            assert_eq!(geometry.stored_size(1), Some(HEADERS + 3 * frame + 1));
            let around = [1, frame, 2 * frame, 20 * frame, group, group + frame, 7 * group, 1 << 40];
            let mut before = 0;
            for size in around.into_iter().flat_map(|size| size.max(3) - 2..size + 3) {
                let stored = geometry.stored_size(size).unwrap();
                assert_eq!(geometry.size(stored), size, "{size} in frames of {frame}");
                let order = geometry.stored_size(size - 1).unwrap();
                assert!(order < stored && before <= stored, "{size} in frames of {frame}");
                before = order;
            }
        }
        assert_eq!(Geometry::new(11), None);
        assert_eq!(Geometry::new(21), None);
    }

    #[test]
    fn other_sizes_come_to_the_next_smaller_one() {
        let geometry = Geometry::new(12).unwrap();
        let last = 3 * FRAMES * geometry.frame();
        let mut size = 0;
        for stored in 0..geometry.stored_size(last).unwrap() + 1 {
            if geometry.stored_size(size + 1) == Some(stored) {
                size += 1;
            }
            assert_eq!(geometry.size(stored), size, "{stored}");
        }
        assert_eq!(size, last);
    }

    #[test]
    fn what_is_too_long_is_told() {
        for shift in SHIFTS {
            let geometry = Geometry::new(shift).unwrap();
            let longest =
                (1..63).map(|power| 1_u64 << power).filter(|size| geometry.stored_size(*size).is_some());
            let longest = longest.max().unwrap();
            assert!(longest >= 1 << 59, "{shift}: {longest}");
            assert!(geometry.stored_size(longest).unwrap() <= STORED_MAX);
            assert_eq!(geometry.stored_size(u64::MAX), None);
            assert_eq!(geometry.size(geometry.stored_size(longest).unwrap()), longest);
        }
    }

    #[test]
    fn nothing_of_a_frame_lies_behind_its_end() {
        let geometry = Geometry::new(13).unwrap();
        let mut end = 0;
        for frame in 0..2 * FRAMES + 1 {
            let trio = geometry.trio_at(frame);
            assert_eq!(trio % HEADER as u64, 0);
            let slots = Side::ALL.map(|side| geometry.slot_at(frame, side));
            assert!(slots[0] >= end && trio + TRIO as u64 <= slots[0], "frame {frame}");
            assert_eq!([1, 2].map(|slot| slots[0] + slot * geometry.frame()), slots[1..]);
            end = geometry.end_of(frame);
            assert_eq!(end, slots[2] + geometry.frame());
            assert_eq!(geometry.group_at(trio), group_of(frame));
        }
    }
}
