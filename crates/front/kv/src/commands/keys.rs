//! Commands about keys.

use crate::client::{Client, Done, Refusal, Words, refuse};
use crate::glob;
use braid_contract::ScanRange;
use std::sync::Arc;

/// Keys of a page.
const PAGE_KEYS: usize = 1000;
/// Most keys that one command returns.
const KEYS_MAX: usize = 100_000;

pub(super) fn del(client: &mut Client, words: Words<'_>) -> Done {
    let shared = Arc::clone(&client.shared);
    let mut count = 0;
    for key in &words[1..] {
        let _locked = shared.lock([*key].into_iter());
        count += i64::from(shared.values.delete(&client.caller, key)?);
    }
    client.answers.integer(count);
    Ok(())
}

pub(super) fn exists(client: &mut Client, words: Words<'_>) -> Done {
    let mut count = 0;
    for key in &words[1..] {
        count += i64::from(client.shared.values.len(&client.caller, key)?.is_some());
    }
    client.answers.integer(count);
    Ok(())
}

pub(super) fn kind(client: &mut Client, words: Words<'_>) -> Done {
    let is_there = client.shared.values.len(&client.caller, words[1])?.is_some();
    client.answers.simple(if is_there { "string" } else { "none" });
    Ok(())
}

/// Keys, and the cursor behind them.
type Page = (Vec<Vec<u8>>, Option<Vec<u8>>);

/// A page of keys that match.
fn page(client: &Client, range: &ScanRange, pattern: &[u8], count: usize) -> Result<Page, Refusal> {
    let page = client.shared.values.scan(&client.caller, range, count, false)?;
    let keys = page.entries.into_iter().map(|(key, _)| key).filter(|key| glob::matches(pattern, key));
    Ok((keys.collect(), page.next))
}

fn range_of(pattern: &[u8]) -> ScanRange {
    ScanRange { prefix: glob::prefix(pattern).to_vec(), ..ScanRange::default() }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

pub(super) fn scan(client: &mut Client, words: Words<'_>) -> Done {
    let (mut pattern, mut count, mut strings) = (&b"*"[..], 10, true);
    let [_, cursor, options @ ..] = words else { return refuse("syntax error") };
    for pair in options.chunks(2) {
        match (&*pair[0].to_ascii_lowercase(), pair.get(1)) {
            (b"match", Some(word)) => pattern = word,
            (b"count", Some(word)) => match number(word) {
                Some(wanted) if wanted > 0 => count = wanted.min(PAGE_KEYS as u64) as usize,
                _ => return refuse("value is not an integer or out of range"),
            },
            (b"type", Some(word)) => strings = word.eq_ignore_ascii_case(b"string"),
            _ => return refuse("syntax error"),
        }
    }
    let mut range = range_of(pattern);
    match number(cursor) {
        Some(0) => {}
        Some(cursor) => match client.shared.cursors.lock().find(cursor) {
            Some(key) => range.after = Some(key),
            None => return refuse("invalid cursor: begin again with 0"),
        },
        None => return refuse("invalid cursor"),
    }
    let (mut keys, next) = page(client, &range, pattern, count)?;
    if !strings {
        keys.clear();
    }
    let next = next.map_or(0, |key| client.shared.cursors.lock().add(key));
    client.answers.array(2);
    client.answers.bulk(next.to_string().as_bytes());
    client.answers.array(keys.len());
    keys.iter().for_each(|key| client.answers.bulk(key));
    Ok(())
}

/// Hands all pages of a pattern's keys to `visit`.
fn each_page(client: &Client, pattern: &[u8], mut visit: impl FnMut(Vec<Vec<u8>>) -> Done) -> Done {
    let mut range = range_of(pattern);
    loop {
        let (keys, next) = page(client, &range, pattern, PAGE_KEYS)?;
        visit(keys)?;
        match next {
            Some(next) => range.after = Some(next),
            None => return Ok(()),
        }
    }
}

pub(super) fn keys(client: &mut Client, words: Words<'_>) -> Done {
    let mut found = Vec::new();
    each_page(client, words[1], |keys| {
        found.extend(keys);
        if found.len() > KEYS_MAX {
            return refuse(format!("more than {KEYS_MAX} keys: use SCAN"));
        }
        Ok(())
    })?;
    let bytes: usize = found.iter().map(|key| key.len() + 16).sum();
    if !client.share.fit(client.answers.bytes.len() + bytes) {
        return refuse("too many long answers at once: try again");
    }
    client.answers.array(found.len());
    found.iter().for_each(|key| client.answers.bulk(key));
    Ok(())
}

pub(super) fn dbsize(client: &mut Client, _: Words<'_>) -> Done {
    let mut count = 0;
    each_page(client, b"*", |keys| {
        count += keys.len();
        Ok(())
    })?;
    client.answers.integer(count as i64);
    Ok(())
}

/// Makes all changes durable.
pub(super) fn save(client: &mut Client, _: Words<'_>) -> Done {
    client.shared.values.sync()?;
    client.answers.simple("OK");
    Ok(())
}
