//! Edits the tiers in the text of a stack file, keeping the rest as it is:
//! comments, order, layout. The result is parsed and compared with the intended
//! document, so that a text with unforeseen syntax is left alone rather than
//! spoilt.

use crate::refusal::Place;
use crate::yaml::{self, Entry, Node, Value};
use braid_contract::is_unprintable;
use braid_modules::is_framed;
use std::fmt;

/// One change of the tiers of a stack.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Edit {
    /// Add a tier, with its keys.
    Add(String, Vec<(&'static str, String)>),
    /// Remove a tier.
    Remove(String),
    /// Set a key of a tier to this value.
    Set(String, &'static str, String),
    /// Unset a key of a tier.
    Unset(String, &'static str),
}

impl Edit {
    fn tier(&self) -> &str {
        match self {
            Self::Add(tier, _) | Self::Remove(tier) | Self::Set(tier, ..) | Self::Unset(tier, _) => tier,
        }
    }
}

/// The equivalent manual edit, below `tiers`.
impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(tier, keys) => write!(f, "add  {tier}: {}", flow(keys)),
            Self::Remove(tier) => write!(f, "take out  {tier}"),
            Self::Set(tier, key, value) => write!(f, "set for {tier}  {key}: {}", scalar(value)),
            Self::Unset(tier, key) => write!(f, "take out of {tier}  {key}"),
        }
    }
}

/// The tiers of a stack's document.
pub(crate) fn tiers(root: &Node) -> Option<&Node> {
    let mut node = get(root, "stack")?;
    loop {
        let module = entries(node).iter().find(|entry| is_module(entry))?;
        if is_bottom(module) {
            return get(&module.node, "tiers");
        }
        node = &module.node;
    }
}

fn is_module(entry: &Entry) -> bool {
    is_bottom(entry) || braid_modules::NAMES.contains(&entry.key.as_str()) || has_bottom(&entry.node)
}

/// Whether it is the file system at the bottom. A module may have a setting called `log` or
/// `view`.
fn is_bottom(entry: &Entry) -> bool {
    let has_only = |keys: &[&str]| {
        matches!(entry.node.value, Value::Map(_) | Value::Null)
            && entries(&entry.node).iter().all(|below| keys.contains(&below.key.as_str()))
    };
    match entry.key.as_str() {
        "volume" => true,
        "log" => has_only(&crate::logfs::settings::KEYS),
        "view" => has_only(&["of"]),
        _ => false,
    }
}

/// Whether the bottom is somewhere below: a module that is not built in has it there.
fn has_bottom(node: &Node) -> bool {
    entries(node).iter().any(|entry| is_bottom(entry) || has_bottom(&entry.node))
}

/// How many keys, at any depth, may stand for the file system at the bottom.
pub(crate) fn count_bottoms(node: &Node) -> usize {
    let count = |entry: &Entry| if is_bottom(entry) { 1 } else { count_bottoms(&entry.node) };
    entries(node).iter().map(count).sum()
}

/// How many keys, at any depth, are the name of a module of frames.
fn count_framed(node: &Node) -> usize {
    entries(node).iter().map(|entry| usize::from(is_framed(&entry.key)) + count_framed(&entry.node)).sum()
}

/// The modules of frames in a stack's document, from the top down, each with its settings.
fn framed(root: &Node) -> Vec<(&str, Node)> {
    modules(root).into_iter().filter(|(name, _)| is_framed(name)).collect()
}

/// A module of frames that is in one of the stacks' documents alone, or differs in its settings or
/// its place among them.
pub(crate) fn other_frames(old: &Node, new: &Node) -> Option<String> {
    let (were, are) = (framed(old), framed(new));
    let is_other = |at: &usize| match (were.get(*at), are.get(*at)) {
        (Some((was, before)), Some((is, now))) => was != is || !same(before, now),
        _ => true,
    };
    let other = (0..were.len().max(are.len())).find(is_other)?;
    were.get(other).or(are.get(other)).map(|(name, _)| (*name).to_owned())
}

/// Whether there is a key of a module of frames that is not among the [modules](modules), at any
/// depth above the bottom: only the parser knows whether it stands for one.
pub(crate) fn hidden_frames(root: &Node) -> bool {
    let mut above = root.clone();
    if let Some(bottom) = bottom_mut(&mut above) {
        bottom.node = Node::new(Value::Null);
    }
    count_framed(&above) != framed(root).len()
}

/// The modules on top of the file system at the bottom in a stack's document, from the top
/// down, each with its settings.
pub(crate) fn modules(root: &Node) -> Vec<(&str, Node)> {
    let mut modules = Vec::new();
    let mut node = get(root, "stack");
    while let Some(module) = node.and_then(|node| entries(node).iter().find(|entry| is_module(entry))) {
        if is_bottom(module) {
            break;
        }
        let settings = entries(&module.node).iter().filter(|entry| !is_module(entry)).cloned();
        modules.push((module.key.as_str(), Node::new(Value::Map(settings.collect()))));
        node = Some(&module.node);
    }
    modules
}

/// The settings of the volume in a stack's document, mutable; `None` if it has none.
pub(crate) fn volume_mut(root: &mut Node) -> Option<&mut Node> {
    bottom_mut(root).filter(|bottom| bottom.key == "volume").map(|bottom| &mut bottom.node)
}

/// The file system at the bottom in a stack's document, mutable.
pub(crate) fn bottom_mut(root: &mut Node) -> Option<&mut Entry> {
    let mut node = get_mut(root, "stack")?;
    loop {
        let Value::Map(entries) = &mut node.value else { return None };
        let module = entries.iter_mut().find(|entry| is_module(entry))?;
        if is_bottom(module) {
            return Some(module);
        }
        node = &mut module.node;
    }
}

pub(crate) fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    entries(node).iter().find(|entry| entry.key == key).map(|entry| &entry.node)
}

pub(crate) fn get_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Map(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
}

/// Sets a key of a map.
pub(crate) fn set(map: &mut Node, key: &str, value: Value) {
    if !matches!(map.value, Value::Map(_)) {
        map.value = Value::Map(Vec::new());
    }
    if let Some(node) = get_mut(map, key) {
        *node = Node::new(value);
    } else if let Value::Map(entries) = &mut map.value {
        entries.push(entry(key, value));
    }
}

pub(crate) fn entry(key: &str, value: Value) -> Entry {
    Entry { key: key.to_owned(), line: 0, span: None, node: Node::new(value) }
}

fn entries(node: &Node) -> &[Entry] {
    match &node.value {
        Value::Map(entries) => entries,
        _ => &[],
    }
}

/// Whether two values are the same, wherever they are written.
pub(crate) fn same(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|a| b.iter().any(|b| a.key == b.key && same(&a.node, &b.node)))
        }
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b,
    }
}

/// Changes the document; `None` if it has no such tier.
pub(crate) fn change(root: &mut Node, edit: &Edit) -> Option<()> {
    let tiers = get_mut(volume_mut(root)?, "tiers")?;
    let Value::Map(all) = &mut tiers.value else { return None };
    match edit {
        Edit::Add(tier, keys) => {
            let keys = keys.iter().map(|(key, value)| entry(key, Value::Scalar(value.clone())));
            all.push(entry(tier, Value::Map(keys.collect())));
        }
        Edit::Remove(tier) => all.retain(|entry| entry.key != *tier),
        Edit::Set(tier, key, value) => {
            set(
                &mut all.iter_mut().find(|entry| entry.key == *tier)?.node,
                key,
                Value::Scalar(value.clone()),
            );
        }
        Edit::Unset(tier, key) => {
            let tier = all.iter_mut().find(|entry| entry.key == *tier)?;
            if let Value::Map(keys) = &mut tier.node.value {
                keys.retain(|entry| entry.key != *key);
            }
        }
    }
    Some(())
}

/// The text with the change; `None` if that can't be done safely.
pub(crate) fn edited(text: &str, edit: &Edit) -> Option<String> {
    let place = Place::file("");
    let mut meant = yaml::parse(text, &place).ok()?;
    let new = edit_text(text, tiers(&meant)?, edit)?;
    change(&mut meant, edit)?;
    let found = yaml::parse(&new, &place).ok()?;
    same(&meant, &found).then_some(new)
}

fn edit_text(text: &str, tiers: &Node, edit: &Edit) -> Option<String> {
    let tier = || get(tiers, edit.tier());
    match edit {
        Edit::Add(name, keys) => insert(text, tiers, name, &flow(keys)),
        Edit::Remove(name) => remove(text, tiers, name),
        Edit::Set(_, key, value) => match get(tier()?, key) {
            Some(old) => {
                let span = old.span.clone()?;
                Some(format!("{}{}{}", text.get(..span.start)?, scalar(value), text.get(span.end..)?))
            }
            None => insert(text, tier()?, key, &scalar(value)),
        },
        Edit::Unset(_, key) => match get(tier()?, key) {
            Some(_) => remove(text, tier()?, key),
            None => Some(text.to_owned()),
        },
    }
}

/// Whether a map is written in braces.
fn is_flow(text: &str, map: &Node) -> Option<bool> {
    Some(text.get(map.span.clone()?.start..)?.starts_with('{'))
}

/// Adds an entry after the last one of a map.
fn insert(text: &str, map: &Node, key: &str, value: &str) -> Option<String> {
    let flow = is_flow(text, map)?;
    let (at, new) = match (entries(map).last(), flow) {
        (None, true) => (map.span.clone()?.end, format!(" {key}: {value}")),
        (Some(last), true) => (end_in_flow(text, last)?, format!(", {key}: {value}")),
        (Some(last), false) => {
            let indent = text.get(line_start(text, last.span.clone()?.start)..last.span.clone()?.start)?;
            if !indent.bytes().all(|byte| byte == b' ') {
                return None;
            }
            (end_in_block(text, last)?, format!("\n{indent}{key}: {value}"))
        }
        (None, false) => return None,
    };
    Some(format!("{}{new}{}", text.get(..at)?, text.get(at..)?))
}

/// Removes an entry of a map.
fn remove(text: &str, map: &Node, key: &str) -> Option<String> {
    let all = entries(map);
    let at = all.iter().position(|entry| entry.key == key)?;
    let start = all[at].span.clone()?.start;
    let range = if is_flow(text, map)? {
        match (at.checked_sub(1), all.get(at + 1)) {
            (Some(before), _) => end_in_flow(text, &all[before])?..end_in_flow(text, &all[at])?,
            (None, Some(next)) => start..next.span.clone()?.start,
            (None, None) => start..end_in_flow(text, &all[at])?,
        }
    } else {
        let begin = line_start(text, start);
        if !text.get(begin..start)?.bytes().all(|byte| byte == b' ') {
            return None;
        }
        let end = end_in_block(text, &all[at])?;
        begin..end + text.get(end..)?.find('\n').map_or(0, |newline| newline + 1)
    };
    Some(format!("{}{}", text.get(..range.start)?, text.get(range.end..)?))
}

/// The end of an entry of a map in braces.
fn end_in_flow(text: &str, entry: &Entry) -> Option<usize> {
    let node = &entry.node;
    let Some(span) = node.span.clone() else {
        // An alias: it has a name and nothing else.
        let from = entry.span.clone()?.end;
        let star = from + text.get(from..)?.find('*')?;
        return Some(star + text.get(star..)?.find([',', '}', ']', ' ', '\n'])?);
    };
    let inner = match &node.value {
        Value::Map(entries) => entries.last().map(|last| end_in_flow(text, last)),
        Value::List(items) => items.last().map(|last| end_in_flow(text, &item(last, span.end))),
        Value::Null | Value::Scalar(_) => return Some(span.end),
    };
    let mut at = inner.unwrap_or(Some(span.end))?;
    loop {
        let rest = text.get(at..)?;
        match rest.bytes().next()? {
            b'}' | b']' => return Some(at + 1),
            b',' | b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'#' => at += rest.find('\n')?,
            _ => return None,
        }
    }
}

/// An item of a list as an entry without a key.
fn item(node: &Node, from: usize) -> Entry {
    Entry { key: String::new(), line: node.line, span: Some(from..from), node: node.clone() }
}

/// The end of the last line of an entry that is written by indentation.
fn end_in_block(text: &str, entry: &Entry) -> Option<usize> {
    let start = entry.span.clone()?.start;
    let column = start - line_start(text, start);
    let line_end = |from: usize| text[from..].find('\n').map_or(text.len(), |newline| from + newline);
    let mut end = line_end(start);
    let mut next = end + 1;
    while let Some(rest) = text.get(next..).filter(|rest| !rest.is_empty()) {
        let line = rest.lines().next().unwrap_or_default();
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        let is_nothing = content.trim_end().is_empty() || content.starts_with('#');
        if !is_nothing {
            // The items of a list may be indented like their key.
            let is_item = indent == column && (content.starts_with("- ") || content.trim_end() == "-");
            if indent <= column && !is_item {
                break;
            }
            end = line_end(next);
        }
        next = line_end(next) + 1;
    }
    Some(if text[..end].ends_with('\r') { end - 1 } else { end })
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn flow(keys: &[(&'static str, String)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}: {}", scalar(value))).collect();
    format!("{{ {} }}", keys.join(", "))
}

/// A value in the syntax of a stack file.
pub(crate) fn scalar(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./+-%".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./".contains(byte);
    let is_null = value.eq_ignore_ascii_case("null");
    if value.as_bytes().first().is_some_and(begins) && value.bytes().all(plain) && !is_null {
        return value.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if is_unprintable(c) => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A document as text: keys by indentation, nodes without keys in braces.
pub(crate) fn write(root: &Node) -> String {
    let mut text = String::new();
    write_entries(entries(root), 0, &mut text);
    text
}

fn write_entries(entries: &[Entry], depth: usize, text: &mut String) {
    for entry in entries {
        let indent = "  ".repeat(depth);
        text.push_str(&format!("{indent}{}:", scalar(&entry.key)));
        match &entry.node.value {
            Value::Map(below) if !below.is_empty() => {
                text.push('\n');
                write_entries(below, depth + 1, text);
            }
            value => text.push_str(&format!(" {}\n", inline(value))),
        }
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Null => "~".into(),
        Value::Scalar(value) => scalar(value),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| inline(&item.value)).collect();
            format!("[ {} ]", items.join(", "))
        }
        Value::Map(entries) => {
            let below = |entry: &Entry| format!("{}: {}", scalar(&entry.key), inline(&entry.node.value));
            format!("{{ {} }}", entries.iter().map(below).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "\
# Our disks.
stack:
  volume:
    home: fast   # the quick one
    policy: { weighted: { } }
    tiers:
      fast: { dir: a, weight: 3 }
      # bought in May
      slow:
        dir: \"b c\"
        weight: 1   # slow, really
        faults:
        - read:EIO,after=10

      # the archive
      old: { dir: d,
             faults: [ \"a\", b ] }
# the end
mount: { threads: 3 }
";

    fn add() -> Edit {
        Edit::Add("new".into(), vec![("dir", "/mnt/new disk".into()), ("weight", "5".into())])
    }

    fn set(tier: &str, key: &'static str, value: &str) -> Edit {
        Edit::Set(tier.into(), key, value.into())
    }

    #[test]
    fn changes_leave_the_rest_of_the_text_alone() {
        let text = edited(BLOCK, &add()).unwrap();
        let added = "             faults: [ \"a\", b ] }\n      new: { dir: \"/mnt/new disk\", weight: 5 }\n# the end\n";
        assert_eq!(text, BLOCK.replace("             faults: [ \"a\", b ] }\n# the end\n", added));
        assert_eq!(edited(&text, &Edit::Remove("new".into())).unwrap(), BLOCK);

        let slow = "      slow:\n        dir: \"b c\"\n        weight: 1   # slow, really\n        faults:\n        - read:EIO,after=10\n";
        assert_eq!(edited(BLOCK, &Edit::Remove("slow".into())).unwrap(), BLOCK.replace(slow, ""));
        assert_eq!(
            edited(BLOCK, &set("slow", "weight", "2")).unwrap(),
            BLOCK.replace("weight: 1 ", "weight: 2 ")
        );
        assert_eq!(
            edited(BLOCK, &set("fast", "weight", "9")).unwrap(),
            BLOCK.replace("weight: 3", "weight: 9")
        );
        let reserved = "after=10\n        reserve: 5%\n";
        assert_eq!(
            edited(BLOCK, &set("slow", "reserve", "5%")).unwrap(),
            BLOCK.replace("after=10\n", reserved)
        );
        let reserved = BLOCK.replace("\"a\", b ] }", "\"a\", b ], reserve: 1GiB }");
        assert_eq!(edited(BLOCK, &set("old", "reserve", "1GiB")).unwrap(), reserved);
        let unset = BLOCK.replace(", weight: 3 }", " }");
        assert_eq!(edited(BLOCK, &Edit::Unset("fast".into(), "weight")).unwrap(), unset);
        assert_eq!(edited(BLOCK, &Edit::Unset("fast".into(), "reserve")).unwrap(), BLOCK);
        assert_eq!(edited(BLOCK, &set("slow", "dir", "/x")).unwrap(), BLOCK.replace("\"b c\"", "/x"));
    }

    #[test]
    fn tiers_in_braces_in_one_line() {
        let text = "stack: { volume: { home: a, tiers: { a: { dir: x }, b: {dir: y,} } } }";
        let added = edited(text, &add()).unwrap();
        assert_eq!(added, text.replace("y,} }", "y,}, new: { dir: \"/mnt/new disk\", weight: 5 } }"));
        assert_eq!(edited(text, &Edit::Remove("b".into())).unwrap(), text.replace(", b: {dir: y,}", ""));
        assert_eq!(edited(text, &Edit::Remove("a".into())).unwrap(), text.replace("a: { dir: x }, ", ""));
        assert_eq!(
            edited(text, &set("b", "weight", "1")).unwrap(),
            text.replace("dir: y,", "dir: y, weight: 1,")
        );
    }

    #[test]
    fn what_is_shared_between_tiers_is_left_alone() {
        let text = "stack: { volume: { tiers: { a: &t { dir: x }, b: *t } } }\n";
        assert_eq!(edited(text, &set("b", "weight", "1")), None);
        // It would change the other one too.
        assert_eq!(edited(text, &set("a", "weight", "1")), None);
        assert_eq!(edited(text, &Edit::Remove("a".into())), None);
        assert_eq!(edited(text, &Edit::Remove("b".into())).unwrap(), text.replace(", b: *t", ""));
        for text in ["", "stack: 1", "stack: { volume: { tiers: { } } }", "- x"] {
            assert_eq!(edited(text, &set("a", "weight", "1")), None, "{text}");
        }
    }

    #[test]
    fn a_document_is_read_back_from_what_is_written_of_it() {
        let place = Place::file("");
        let odd = "stack:\n  noop:\n    volume:\n      home: \"null\"\n      x: ~\n      l: [ ]\n      p: { weighted: { } }\n      tiers:\n        a: { dir: \"a\\\"b\\\\c: # é\", weight: 1e3 }\n";
        for text in [BLOCK, odd] {
            let root = yaml::parse(text, &place).unwrap();
            let written = write(&root);
            let again = yaml::parse(&written, &place).unwrap();
            assert!(same(&root, &again), "{written}");
            assert_eq!(write(&again), written);
        }
    }
}
