//! The shape of a path, which files of one kind have in common.

/// Where a number is, in a shape. Paths have no such character.
const NUMBER: char = '\u{1}';
/// Where random letters and digits are.
const CHANCE: char = '\u{2}';
/// Bytes from which on a name may be random.
const CHANCE_MIN: usize = 8;
/// Changes between letters and digits from which on it is random: names of mail have
/// three.
const CHANGES_MIN: usize = 4;

/// The path with its numbers, and random parts of letters and digits, replaced
/// by marks.
pub(super) fn shape_of(path: &str) -> String {
    let mut shape = String::with_capacity(path.len());
    let mut rest = path;
    while !rest.is_empty() {
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if len == 0 {
            let other = rest.chars().next().map_or(1, char::len_utf8);
            shape.push_str(&rest[..other]);
            rest = &rest[other..];
            continue;
        }
        let (word, after) = rest.split_at(len);
        if is_by_chance(word) {
            shape.push(CHANCE)
        } else {
            push_plain(&mut shape, word)
        }
        rest = after;
    }
    shape
}

/// Whether a word looks like part of a hash or of the name of a temporary file.
fn is_by_chance(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if word.len() < CHANCE_MIN || digits == 0 || digits == word.len() {
        return false;
    }
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let changes = word.as_bytes().windows(2).filter(|two| is_digit(&two[0]) != is_digit(&two[1])).count();
    word.bytes().all(|byte| byte.is_ascii_hexdigit()) && changes > 1
        || changes >= CHANGES_MIN.max(word.len() / 3)
}

fn push_plain(shape: &mut String, word: &str) {
    for letter in word.chars() {
        match letter.is_ascii_digit() {
            true if shape.ends_with(NUMBER) => {}
            true => shape.push(NUMBER),
            false => shape.push(letter),
        }
    }
}

/// The directory, name and extension of a shape.
pub(super) fn parts_of(shape: &str) -> (&str, &str, &str) {
    let (dir, name) = shape.rsplit_once('/').unwrap_or(("", shape));
    (dir, name, name.rsplit_once('.').map_or("", |(_, extension)| extension))
}

/// A pattern of paths, as of [`Glob`](crate::Glob), for files of a shape.
pub(super) fn pattern_of(shape: &str) -> String {
    let mut pattern = String::with_capacity(shape.len() + 1);
    // A pattern without '/' would match names in all directories.
    if !shape.contains('/') {
        pattern.push('/');
    }
    let mut marks = false;
    for letter in shape.chars() {
        match letter {
            CHANCE if marks => {}
            CHANCE => pattern.push('*'),
            NUMBER if marks => {}
            NUMBER => pattern.push_str("[0-9]*"),
            '*' | '?' | '[' => pattern.extend(['[', letter, ']']),
            letter => pattern.push(letter),
        }
        marks = matches!(letter, CHANCE | NUMBER);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Glob;

    #[test]
    fn numbers_and_chance_do_not_make_a_kind() {
        for (one, other) in [
            ("db/000123.sst", "db/7.sst"),
            ("db/OPTIONS-000007", "db/OPTIONS-12"),
            ("spool/1700000000.M123P45.host", "spool/1700000001.M9P4.host"),
            ("tmp/3f2a9c1b7d", "tmp/00a122c344"),
            ("t/a1b2c3d4e5/x", "t/f1a9b8c7d6/x"),
            ("new/1700000000.M3P12345.host", "new/1700000001.M14P1.host"),
            ("t/x1y2z3w4", "t/q5p6o7n80"),
        ] {
            assert_eq!(shape_of(one), shape_of(other));
            let glob = Glob::new(&pattern_of(&shape_of(one))).unwrap();
            assert!(glob.matches(one) && glob.matches(other), "{}", glob.pattern());
        }
        for (one, other) in
            [("db/1.sst", "db/1.log"), ("a/1.sst", "b/1.sst"), ("log/new", "log/cur"), ("feedface", "x")]
        {
            assert_ne!(shape_of(one), shape_of(other));
        }
    }

    #[test]
    fn a_shape_is_a_pattern_of_its_files_only() {
        for (path, pattern) in
            [("db/12.sst", "db/[0-9]*.sst"), ("é[1].x", "/é[[][0-9]*].x"), ("a/b", "a/b"), ("7", "/[0-9]*")]
        {
            assert_eq!(pattern_of(&shape_of(path)), pattern);
            assert!(Glob::new(pattern).unwrap().matches(path), "{path}");
        }
        assert!(!Glob::new(&pattern_of(&shape_of("7"))).unwrap().matches("a/7"));
    }
}
