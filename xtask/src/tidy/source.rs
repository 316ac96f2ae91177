//! Just enough of Rust's syntax for the house rules: comments, strings,
//! functions and modules. Works on any text; never fails.

/// A source file, with its text also in a form in which comments are blank and
/// the insides of strings are the letter `s`, so that braces and words found
/// there are code.
pub(crate) struct Source {
    /// Path from the root of the working tree.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
    /// The text without comments and insides of strings, the same length in
    /// characters and lines.
    pub(crate) code: Vec<char>,
}

/// A function and its length.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// The line where it begins, from 1.
    pub(crate) line: usize,
    /// Lines with code from `fn` to the closing brace.
    pub(crate) length: usize,
}

impl Source {
    /// Reads a text.
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let code = Masker { input: text.chars().collect(), at: 0, out: Vec::new() }.mask();
        Self { path: path.into(), text, code }
    }

    /// Lines with code: not blank, and not comment alone.
    pub(crate) fn code_lines(&self) -> usize {
        count_code_lines(&self.code)
    }

    /// Words (identifiers and keywords), each with its position in `code`.
    pub(crate) fn words(&self) -> Vec<(usize, String)> {
        let mut words = Vec::new();
        let mut at = 0;
        while at < self.code.len() {
            let len = self.code[at..].iter().take_while(|c| is_word(**c)).count();
            if len > 0 {
                words.push((at, self.code[at..at + len].iter().collect()));
            }
            at += len.max(1);
        }
        words
    }

    /// The line, from 1, of a position in `code`.
    pub(crate) fn line_of(&self, position: usize) -> usize {
        1 + self.code[..position].iter().filter(|c| **c == '\n').count()
    }

    /// The first character after `position` that is not white space.
    pub(crate) fn next_visible(&self, position: usize) -> Option<char> {
        self.code[position..].iter().copied().find(|c| !c.is_whitespace())
    }

    /// All functions with a body, also those inside others.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let words = self.words();
        let named = words.windows(2).filter(|pair| pair[0].1 == "fn" && self.is_gap(&pair[0], &pair[1]));
        named.filter_map(|pair| self.function(pair[0].0, &pair[1].1)).collect()
    }

    /// Modules in files of their own: `mod name;`, with the path of an
    /// attribute `#[path = "…"]` before it.
    pub(crate) fn module_files(&self) -> Vec<(String, Option<String>)> {
        let words = self.words();
        let named = words.windows(2).filter(|pair| pair[0].1 == "mod" && self.is_gap(&pair[0], &pair[1]));
        named
            .filter(|pair| self.next_visible(pair[1].0 + pair[1].1.chars().count()) == Some(';'))
            .map(|pair| (pair[1].1.clone(), self.path_attribute_before(self.line_of(pair[0].0))))
            .collect()
    }

    fn path_attribute_before(&self, line: usize) -> Option<String> {
        let above = self.text.lines().take(line.saturating_sub(1)).collect::<Vec<_>>();
        let attributes = above.iter().rev().take_while(|line| line.trim_start().starts_with("#["));
        attributes
            .filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"))
            .map(str::to_owned)
            .next()
    }

    fn is_gap(&self, first: &(usize, String), second: &(usize, String)) -> bool {
        self.code[first.0 + first.1.chars().count()..second.0].iter().all(|c| c.is_whitespace())
    }

    fn function(&self, start: usize, name: &str) -> Option<Function> {
        let end = self.end_of_body(start)?;
        let length = count_code_lines(&self.code[start..end]);
        Some(Function { name: name.to_owned(), line: self.line_of(start), length })
    }

    /// One past the brace that closes the first body after `start`; `None`
    /// where a semicolon ends the item first.
    fn end_of_body(&self, start: usize) -> Option<usize> {
        let (mut brackets, mut braces) = (0_u32, 0_u32);
        for (at, c) in self.code.iter().enumerate().skip(start) {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if brackets == 0 && braces == 0 => return None,
                '{' => braces += 1,
                '}' if braces <= 1 => return Some(at + 1),
                '}' => braces -= 1,
                _ => {}
            }
        }
        None
    }
}

fn count_code_lines(code: &[char]) -> usize {
    code.split(|c| *c == '\n').filter(|line| line.iter().any(|c| !c.is_whitespace())).count()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Copies the code of a text, in one pass.
struct Masker {
    input: Vec<char>,
    at: usize,
    out: Vec<char>,
}

impl Masker {
    fn mask(mut self) -> Vec<char> {
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.character_or_lifetime(),
                ('r', Some('"' | '#')) if self.starts_word() => self.raw_string(),
                ('b' | 'c', Some('r')) if self.starts_word() && matches!(self.peek(2), Some('"' | '#')) => {
                    self.keep(1);
                    self.raw_string();
                }
                _ => self.keep(1),
            }
        }
        self.out
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.input.get(self.at + ahead).copied()
    }

    fn starts_word(&self) -> bool {
        self.at == 0 || !is_word(self.input[self.at - 1])
    }

    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            self.out.extend(self.peek(0));
            self.at += 1;
        }
    }

    fn replace(&mut self, with: char) {
        match self.peek(0) {
            Some('\n') => self.out.push('\n'),
            Some(_) => self.out.push(with),
            None => {}
        }
        self.at += 1;
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.replace(' ');
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_u32;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.replace(' ');
                    continue;
                }
            }
            self.replace(' ');
            self.replace(' ');
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.keep(1);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.keep(1),
                '\\' => {
                    self.replace('s');
                    self.replace('s');
                }
                _ => self.replace('s'),
            }
        }
    }

    fn raw_string(&mut self) {
        let hashes = self.input[self.at + 1..].iter().take_while(|c| **c == '#').count();
        if self.peek(1 + hashes) != Some('"') {
            return self.keep(1);
        }
        self.keep(2 + hashes);
        while let Some(c) = self.peek(0) {
            let closes = c == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if closes {
                return self.keep(1 + hashes);
            }
            self.replace('s');
        }
    }

    fn character_or_lifetime(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                self.keep(1);
                self.replace('c');
                self.replace('c');
                while self.peek(0).is_some_and(|c| c != '\'') {
                    self.replace('c');
                }
                self.keep(1);
            }
            (Some(_), Some('\'')) => {
                self.keep(1);
                self.replace('c');
                self.keep(1);
            }
            _ => self.keep(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        Source::new("a.rs", text).code.iter().collect()
    }

    #[test]
    fn comments_and_insides_of_strings_are_no_code() {
        assert_eq!(masked("a // {\nb"), "a     \nb");
        assert_eq!(masked("a /* { /* } */ */ b"), "a                 b");
        assert_eq!(masked("\"{\\\"}\" x"), "\"ssss\" x");
        assert_eq!(masked("r#\"a\"b\"# x br\"}\""), "r#\"sss\"# x br\"s\"");
        assert_eq!(masked("'{' '\\'' '\\u{7d}' &'a str r#type"), "'c' 'cc' 'cccccc' &'a str r#type");
    }

    #[test]
    fn functions_are_measured_in_lines_of_code() {
        let text = "fn one() { 1; }\ntrait T {\n fn none(a: [u8; 4]);\n}\nfn three<'a>(\n) {\n\n // no\n}\n";
        let found = Source::new("a.rs", text).functions();
        let expected = [("one", 1, 1), ("three", 5, 3)].map(|(name, line, length)| Function {
            name: name.into(),
            line,
            length,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pointer_type_is_no_function() {
        assert_eq!(Source::new("a.rs", "type F = fn(u8) -> u8; struct S { f: fn() }").functions(), []);
    }

    #[test]
    fn modules_in_files_are_found() {
        let text = "mod a;\npub(crate) mod b;\nmod inline { }\n#[cfg(test)]\n#[path = \"x/y.rs\"]\nmod c;\n// mod d;";
        let found = Source::new("a.rs", text).module_files();
        let path = Some("x/y.rs".to_owned());
        assert_eq!(found, [("a".into(), None), ("b".into(), None), ("c".into(), path)]);
    }

    #[test]
    fn code_lines_leave_out_comments_and_blanks() {
        assert_eq!(
            Source::new("a.rs", "//! x\n\nfn a() {}\n/* y\n z */\nconst S: &str = \"\n\n\";\n").code_lines(),
            3
        );
    }
}
