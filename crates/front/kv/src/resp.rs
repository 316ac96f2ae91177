//! The Redis protocol, RESP2 and RESP3: requests are arrays of strings, or lines of words;
//! answers are of several types. Own code, since lengths that a client claims have to be
//! refused before memory is taken for them.

use std::ops::Range;

/// Longest line of a request in bytes.
const LINE_MAX: usize = 32 << 10;

/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Words of it.
    pub(crate) words: usize,
    /// Bytes of it, together.
    pub(crate) bytes: usize,
}

/// The meaning of the bytes received until now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Parsed {
    /// A request: where its words are, and how many bytes it takes.
    Request(Vec<Range<usize>>, usize),
    /// The beginning of one, which has at least this many bytes.
    More(usize),
    /// No request, for this reason.
    Wrong(&'static str),
}

/// Reads the first request.
pub(crate) fn parse(bytes: &[u8], limits: Limits) -> Parsed {
    match bytes.first() {
        None => Parsed::More(1),
        Some(b'*') => parse_array(bytes, limits),
        Some(_) => parse_line(bytes),
    }
}

/// The line that begins at `at`, and where the next one does; `None` if it is not whole.
fn line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, &'static str> {
    let rest = &bytes[at..];
    match rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n') {
        Some(end) => {
            let text = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            Ok(Some((text, at + end + 1)))
        }
        None if rest.len() >= LINE_MAX => Err("too big inline request"),
        None => Ok(None),
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_array(bytes: &[u8], limits: Limits) -> Parsed {
    let (count, mut at) = match line(bytes, 1) {
        Ok(Some((text, next))) => match number(text) {
            Some(count) if count <= limits.words as i64 => (count.max(0) as usize, next),
            _ => return Parsed::Wrong("invalid multibulk length"),
        },
        Ok(None) => return Parsed::More(bytes.len() + 1),
        Err(wrong) => return Parsed::Wrong(wrong),
    };
    let (mut words, mut left) = (Vec::with_capacity(count.min(16)), limits.bytes);
    for _ in 0..count {
        match bytes.get(at) {
            None => return Parsed::More(bytes.len() + 1),
            Some(b'$') => {}
            Some(_) => return Parsed::Wrong("expected '$'"),
        }
        let (len, begin) = match line(bytes, at + 1) {
            Ok(Some((text, next))) => match number(text).and_then(|len| usize::try_from(len).ok()) {
                Some(len) if len <= left => (len, next),
                _ => return Parsed::Wrong("invalid bulk length"),
            },
            Ok(None) => return Parsed::More(bytes.len() + 1),
            Err(wrong) => return Parsed::Wrong(wrong),
        };
        left -= len;
        let end = begin + len;
        match bytes.get(end..end + 2) {
            None => return Parsed::More(end + 2),
            Some(b"\r\n") => {}
            Some(_) => return Parsed::Wrong("a string of another length than it says"),
        }
        words.push(begin..end);
        at = end + 2;
    }
    Parsed::Request(words, at)
}

/// A line of words, as people type them.
fn parse_line(bytes: &[u8]) -> Parsed {
    let (text, next) = match line(bytes, 0) {
        Ok(Some(found)) => found,
        Ok(None) => return Parsed::More(bytes.len() + 1),
        Err(wrong) => return Parsed::Wrong(wrong),
    };
    let (mut words, mut begin) = (Vec::new(), None);
    for (at, byte) in text.iter().chain([&b' ']).enumerate() {
        match (byte.is_ascii_whitespace(), begin) {
            (false, None) => begin = Some(at),
            (true, Some(from)) => {
                words.push(from..at);
                begin = None;
            }
            _ => {}
        }
    }
    Parsed::Request(words, next)
}

/// Answers, in the version that the client speaks.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) bytes: Vec<u8>,
    /// Whether it speaks RESP3.
    pub(crate) is_3: bool,
}

impl Answers {
    fn head(&mut self, kind: u8, number: impl std::fmt::Display) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(number.to_string().as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.head(b'+', text);
    }

    /// An error: a word in capitals, then a description. It becomes one line.
    pub(crate) fn error(&mut self, text: &str) {
        let line: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        self.head(b'-', line);
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// So many elements follow.
    pub(crate) fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// So many pairs follow; RESP2 has them as an array.
    pub(crate) fn map(&mut self, len: usize) {
        if self.is_3 { self.head(b'%', len) } else { self.array(2 * len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { words: 8, bytes: 1000 };

    fn words(bytes: &[u8]) -> Vec<Vec<u8>> {
        match parse(bytes, LIMITS) {
            Parsed::Request(words, _) => words.into_iter().map(|word| bytes[word].to_vec()).collect(),
            other => vec![format!("{other:?}").into_bytes()],
        }
    }

    fn encode(words: &[Vec<u8>]) -> Vec<u8> {
        let mut answers = Answers { bytes: Vec::new(), is_3: false };
        answers.array(words.len());
        words.iter().for_each(|word| answers.bulk(word));
        answers.bytes
    }

    #[test]
    fn lines_of_words_are_requests_too() {
        assert_eq!(words(b"  GET  key \r\n"), [b"GET".to_vec(), b"key".to_vec()]);
        assert_eq!(words(b"PING\nrest"), [b"PING".to_vec()]);
        assert_eq!(parse(b"\r\n", LIMITS), Parsed::Request(Vec::new(), 2));
        assert_eq!(parse(b"*-1\r\n", LIMITS), Parsed::Request(Vec::new(), 5));
        assert_eq!(parse(b"GET", LIMITS), Parsed::More(4));
    }

    #[test]
    fn what_is_claimed_is_refused_before_it_comes() {
        for (bytes, wrong) in [
            (&b"*9\r\n"[..], "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*1\r\n$1001\r\n", "invalid bulk length"),
            (b"*2\r\n$600\r\n", "More(612)"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n:1\r\n", "expected '$'"),
            (b"*1\r\n$1\r\nxxx", "a string of another length than it says"),
        ] {
            assert!(format!("{:?}", parse(bytes, LIMITS)).contains(wrong), "{bytes:?}");
        }
        assert_eq!(parse(&vec![b'x'; LINE_MAX], LIMITS), Parsed::Wrong("too big inline request"));
        assert_eq!(
            parse(&[&b"*"[..], &vec![b'1'; LINE_MAX]].concat(), LIMITS),
            Parsed::Wrong("too big inline request")
        );
    }

    #[test]
    fn errors_are_one_line() {
        let mut answers = Answers { bytes: Vec::new(), is_3: true };
        answers.error("ERR a\r\n+b");
        answers.null();
        answers.map(1);
        assert_eq!(answers.bytes, b"-ERR a  +b\r\n_\r\n%1\r\n");
    }

    proptest! {
        #[test]
        fn requests_come_back_and_are_not_taken_before_they_are_whole(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let bytes = encode(&words);
            let whole = [&bytes[..], &rest].concat();
            let Parsed::Request(found, taken) = parse(&whole, LIMITS) else { panic!("it is whole") };
            prop_assert_eq!(taken, bytes.len());
            let found: Vec<Vec<u8>> = found.into_iter().map(|word| whole[word].to_vec()).collect();
            prop_assert_eq!(found, words);
            for len in 0..bytes.len() {
                let parsed = parse(&bytes[..len], LIMITS);
                prop_assert!(matches!(parsed, Parsed::More(more) if more > len && more <= bytes.len()), "{:?}", parsed);
            }
        }

        #[test]
        fn nothing_that_comes_makes_it_panic(bytes in prop::collection::vec(prop::sample::select(&b"*$+-0129\r\nGx "[..]), 0..60)) {
            match parse(&bytes, LIMITS) {
                Parsed::Request(words, taken) => {
                    prop_assert!(taken <= bytes.len() && words.iter().all(|word| word.end <= taken));
                }
                Parsed::More(more) => prop_assert!(more > bytes.len()),
                Parsed::Wrong(_) => {}
            }
        }
    }
}
