//! Numbers and bytes as they are in records: little endian, and numbers that are mostly
//! small in as few bytes as they need (LEB128).

/// Appends to a record.
pub(crate) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// A number in one to ten bytes.
    fn put_number(&mut self, value: u64);
    /// A number that may be negative.
    fn put_signed(&mut self, value: i64);
    /// A length, and as many bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_signed(&mut self, value: i64) {
        self.put_number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_number(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Reads a record. Every method returns `None` where the bytes end or make no sense.
#[derive(Clone, Debug)]
pub(crate) struct Take<'a> {
    rest: &'a [u8],
}

impl<'a> Take<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit left.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number that fits 32 bits.
    pub(crate) fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::try_from(len).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut bytes = Vec::new();
        for number in numbers {
            bytes.put_number(number);
            bytes.put_signed(number.cast_signed());
        }
        bytes.put_bytes(b"name");
        let mut take = Take::new(&bytes);
        for number in numbers {
            assert_eq!((take.number(), take.signed()), (Some(number), Some(number.cast_signed())));
        }
        assert_eq!((take.bytes(), take.is_empty(), take.u8()), (Some(&b"name"[..]), true, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(Take::new(&[0xff; 11]).number(), None, "too long");
        assert_eq!(Take::new(&[0x80]).number(), None, "cut off");
        assert_eq!(Take::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        assert_eq!(Take::new(&[5, 1, 2]).bytes(), None);
        assert_eq!(Take::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).small(), None);
    }
}
