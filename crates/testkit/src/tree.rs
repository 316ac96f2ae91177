//! The visible state of a tree, and the difference of two of them.

use crate::outcome::{Bytes, Failed, Stat};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A whole tree at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// By path; the root's is empty.
    pub nodes: BTreeMap<Vec<u8>, Node>,
    /// By slot: the contents of open files, linked or not.
    pub open: BTreeMap<u8, Node>,
}

/// One name of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Attributes.
    pub stat: Stat,
    /// The first path (in order) of the same inode.
    pub first: Vec<u8>,
    /// Its contents.
    pub content: Content,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Bytes>,
}

/// The contents of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Not a kind that holds anything by itself.
    None,
    /// A regular file's bytes, or a symbolic link's target.
    Bytes(Bytes),
    /// Reading it failed.
    Failed(Failed),
}

/// Describes the first differences between two trees; `None` if there are none.
#[must_use]
pub fn difference(left: &Tree, right: &Tree) -> Option<(String, String)> {
    let mut texts = (String::new(), String::new());
    for path in left.nodes.keys().chain(right.nodes.keys().filter(|p| !left.nodes.contains_key(*p))) {
        let name = format!("\"{}\"", path.escape_ascii());
        describe(&name, left.nodes.get(path), right.nodes.get(path), &mut texts);
    }
    for slot in left.open.keys().chain(right.open.keys().filter(|s| !left.open.contains_key(*s))) {
        describe(&format!("slot {slot}"), left.open.get(slot), right.open.get(slot), &mut texts);
    }
    (!texts.0.is_empty()).then_some(texts)
}

/// Adds to each text the differences of one node; nothing if they agree.
fn describe(name: &str, left: Option<&Node>, right: Option<&Node>, texts: &mut (String, String)) {
    const ENOUGH: usize = 4096;
    if left == right || texts.0.len() > ENOUGH {
        return;
    }
    // Writing to a String can't fail, so the results say nothing.
    let (Some(left), Some(right)) = (left, right) else {
        let _ = writeln!(texts.0, "{name}: {}", left.map_or("absent", |_| "exists"));
        let _ = writeln!(texts.1, "{name}: {}", right.map_or("absent", |_| "exists"));
        return;
    };
    if left.stat != right.stat || left.first != right.first {
        for (node, text) in [(left, &mut texts.0), (right, &mut texts.1)] {
            let _ =
                writeln!(text, "{name}: same inode as \"{}\", {:?}", node.first.escape_ascii(), node.stat);
        }
    }
    if left.xattrs != right.xattrs {
        let _ = writeln!(texts.0, "{name}: xattrs {:?}", left.xattrs);
        let _ = writeln!(texts.1, "{name}: xattrs {:?}", right.xattrs);
    }
    match (&left.content, &right.content) {
        (left, right) if left == right => {}
        (Content::Bytes(left), Content::Bytes(right)) => {
            let at = left.0.iter().zip(&right.0).position(|(l, r)| l != r);
            let at = at.unwrap_or(left.0.len().min(right.0.len()));
            for (bytes, text) in [(left, &mut texts.0), (right, &mut texts.1)] {
                let from = &bytes.0[at..bytes.0.len().min(at + 16)];
                let _ =
                    writeln!(text, "{name}: {} bytes, at {at}: \"{}\"", bytes.0.len(), from.escape_ascii());
            }
        }
        (left, right) => {
            let _ = writeln!(texts.0, "{name}: {left:?}");
            let _ = writeln!(texts.1, "{name}: {right:?}");
        }
    }
}
