//! Commands about values.

use crate::client::{Client, Done, Refusal, TOO_MANY_LONG, Words, refuse};
use crate::limits::check_value_len;
use braid_contract::key_value::{BATCH_MAX, VALUE_MAX};
use braid_contract::{KeyChange, PutOptions, PutWhen};

pub(super) fn get(client: &mut Client, words: Words<'_>) -> Done {
    let value = client.get(words[1])?;
    client.answer(value.as_deref())
}

fn put(client: &Client, key: &[u8], value: &[u8], when: PutWhen) -> Result<bool, Refusal> {
    let options = PutOptions { when, ..PutOptions::default() };
    Ok(client.shared.values.put(&client.caller, key, value, options)?)
}

/// Reads a value and puts another one, as one step for all clients: the result of
/// `change`, if any.
fn change<T>(
    client: &mut Client,
    key: &[u8],
    change: impl FnOnce(Option<Vec<u8>>) -> Result<(Option<Vec<u8>>, T), Refusal>,
) -> Result<T, Refusal> {
    let shared = std::sync::Arc::clone(&client.shared);
    let _locked = shared.lock([key].into_iter());
    let (value, answer) = change(client.get(key)?)?;
    if let Some(value) = value {
        put(client, key, &value, PutWhen::Always)?;
    }
    Ok(answer)
}

pub(super) fn set(client: &mut Client, words: Words<'_>) -> Done {
    let (mut when, mut gets) = (PutWhen::Always, false);
    for word in &words[3..] {
        match (&*word.to_ascii_lowercase(), when) {
            (b"nx", PutWhen::Always) => when = PutWhen::Absent,
            (b"xx", PutWhen::Always) => when = PutWhen::Present,
            (b"get", _) => gets = true,
            (b"ex" | b"px" | b"exat" | b"pxat" | b"keepttl", _) => {
                return refuse("values have no time after which they go");
            }
            _ => return refuse("syntax error"),
        }
    }
    let shared = std::sync::Arc::clone(&client.shared);
    let locked = shared.lock([words[1]].into_iter());
    let before = if gets { Some(client.get(words[1])?) } else { None };
    let is_done = put(client, words[1], words[2], when)?;
    drop(locked);
    match before {
        Some(before) => return client.answer(before.as_deref()),
        None if is_done => client.answers.simple("OK"),
        None => client.answers.null(),
    }
    Ok(())
}

pub(super) fn setnx(client: &mut Client, words: Words<'_>) -> Done {
    let shared = std::sync::Arc::clone(&client.shared);
    let _locked = shared.lock([words[1]].into_iter());
    let is_done = put(client, words[1], words[2], PutWhen::Absent)?;
    client.answers.integer(is_done.into());
    Ok(())
}

pub(super) fn getset(client: &mut Client, words: Words<'_>) -> Done {
    let before = change(client, words[1], |before| Ok((Some(words[2].to_vec()), before)))?;
    client.answer(before.as_deref())
}

pub(super) fn getdel(client: &mut Client, words: Words<'_>) -> Done {
    let shared = std::sync::Arc::clone(&client.shared);
    let locked = shared.lock([words[1]].into_iter());
    let before = client.get(words[1])?;
    if before.is_some() {
        shared.values.delete(&client.caller, words[1])?;
    }
    drop(locked);
    client.answer(before.as_deref())
}

pub(super) fn mget(client: &mut Client, words: Words<'_>) -> Done {
    // All of them before the first is answered, so that an error is the only answer.
    let (mut values, mut bytes) = (Vec::new(), 0);
    for key in &words[1..] {
        let value = client.get_beside(bytes, key)?;
        bytes += value.as_ref().map_or(0, Vec::len);
        values.push(value);
        if bytes > VALUE_MAX {
            return refuse(format!("values of more than {VALUE_MAX} bytes: read them one by one"));
        }
    }
    if !client.share.fit(client.answers.bytes.len() + bytes) {
        return refuse(TOO_MANY_LONG);
    }
    client.answers.array(values.len());
    for value in &values {
        match value {
            Some(value) => client.answers.bulk(value),
            None => client.answers.null(),
        }
    }
    Ok(())
}

/// The changes of keys and values that follow each other.
fn pairs<'a>(words: Words<'a>) -> Result<Vec<KeyChange<'a>>, Refusal> {
    if words.len().is_multiple_of(2) {
        let name = String::from_utf8_lossy(words[0]).to_lowercase();
        return refuse(format!("wrong number of arguments for '{name}' command"));
    }
    if words.len() / 2 > BATCH_MAX {
        return refuse(format!("{} keys; {BATCH_MAX} at once are the most", words.len() / 2));
    }
    Ok(words[1..].chunks_exact(2).map(|pair| KeyChange::Put(pair[0], pair[1])).collect())
}

pub(super) fn mset(client: &mut Client, words: Words<'_>) -> Done {
    let changes = pairs(words)?;
    let shared = std::sync::Arc::clone(&client.shared);
    let _locked = shared.lock(changes.iter().map(KeyChange::key));
    shared.values.batch(&client.caller, &changes)?;
    client.answers.simple("OK");
    Ok(())
}

pub(super) fn msetnx(client: &mut Client, words: Words<'_>) -> Done {
    let changes = pairs(words)?;
    let shared = std::sync::Arc::clone(&client.shared);
    let _locked = shared.lock(changes.iter().map(KeyChange::key));
    for change in &changes {
        if shared.values.len(&client.caller, change.key())?.is_some() {
            client.answers.integer(0);
            return Ok(());
        }
    }
    shared.values.batch(&client.caller, &changes)?;
    client.answers.integer(1);
    Ok(())
}

pub(super) fn strlen(client: &mut Client, words: Words<'_>) -> Done {
    let len = client.shared.values.len(&client.caller, words[1])?;
    client.answers.integer(len.unwrap_or(0).cast_signed());
    Ok(())
}

fn check_len(len: usize) -> Done {
    check_value_len(len).or_else(refuse)
}

pub(super) fn append(client: &mut Client, words: Words<'_>) -> Done {
    let len = change(client, words[1], |before| {
        let mut value = before.unwrap_or_default();
        check_len(value.len() + words[2].len())?;
        value.extend_from_slice(words[2]);
        let len = value.len();
        Ok((Some(value), len))
    })?;
    client.answers.integer(len as i64);
    Ok(())
}

pub(super) fn getrange(client: &mut Client, words: Words<'_>) -> Done {
    let (from, to) = (integer(words[2])?, integer(words[3])?);
    let value = client.get(words[1])?.unwrap_or_default();
    let len = value.len() as i64;
    // Negative ones count from the end.
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (from, to) = (place(from).min(len), place(to).saturating_add(1).min(len));
    client.answer(Some(if from < to { &value[from as usize..to as usize] } else { b"" }))
}

pub(super) fn setrange(client: &mut Client, words: Words<'_>) -> Done {
    let at = usize::try_from(integer(words[2])?).map_err(|_| Refusal("ERR offset is out of range".into()))?;
    let end = at.saturating_add(words[3].len());
    check_len(end)?;
    let len = change(client, words[1], |before| {
        let mut value = before.unwrap_or_default();
        if words[3].is_empty() {
            return Ok((None, value.len()));
        }
        value.resize(value.len().max(end), 0);
        value[at..end].copy_from_slice(words[3]);
        let len = value.len();
        Ok((Some(value), len))
    })?;
    client.answers.integer(len as i64);
    Ok(())
}

fn integer(word: &[u8]) -> Result<i64, Refusal> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Refusal("ERR value is not an integer or out of range".into()))
}

fn add(client: &mut Client, key: &[u8], by: Option<i64>) -> Done {
    let overflow = || Refusal("ERR increment or decrement would overflow".into());
    let by = by.ok_or_else(overflow)?;
    let sum = change(client, key, |before| {
        let number = before.map_or(Ok(0), |value| integer(&value))?;
        let sum = number.checked_add(by).ok_or_else(overflow)?;
        Ok((Some(sum.to_string().into_bytes()), sum))
    })?;
    client.answers.integer(sum);
    Ok(())
}

pub(super) fn incr(client: &mut Client, words: Words<'_>) -> Done {
    add(client, words[1], Some(1))
}

pub(super) fn decr(client: &mut Client, words: Words<'_>) -> Done {
    add(client, words[1], Some(-1))
}

pub(super) fn incrby(client: &mut Client, words: Words<'_>) -> Done {
    add(client, words[1], Some(integer(words[2])?))
}

pub(super) fn decrby(client: &mut Client, words: Words<'_>) -> Done {
    add(client, words[1], integer(words[2])?.checked_neg())
}
