//! Commands about the connection and the server.

use crate::client::{Client, Done, Refusal, Words, refuse};
use crate::glob;

/// The version of Redis whose answers these are like.
const REDIS_VERSION: &str = "7.0.0";
/// Longest name of a connection in bytes.
const NAME_MAX: usize = 64;
/// The answer of `CONFIG GET`: nothing is saved by itself after so many changes.
const CONFIG: [(&str, &str); 2] = [("appendonly", "no"), ("save", "")];

pub(super) fn ping(client: &mut Client, words: Words<'_>) -> Done {
    match words {
        [_] => client.answers.simple("PONG"),
        [_, text] => return client.answer(Some(text)),
        _ => return refuse("wrong number of arguments for 'ping' command"),
    }
    Ok(())
}

pub(super) fn echo(client: &mut Client, words: Words<'_>) -> Done {
    client.answer(Some(words[1]))
}

pub(super) fn quit(client: &mut Client, _: Words<'_>) -> Done {
    client.is_over = true;
    client.answers.simple("OK");
    Ok(())
}

pub(super) fn select(client: &mut Client, words: Words<'_>) -> Done {
    if words[1] != b"0" {
        return refuse("DB index is out of range: there is one database, 0");
    }
    client.answers.simple("OK");
    Ok(())
}

/// Whether a password is the right one; takes the same time for each of its length.
fn is_right(password: &[u8], said: &[u8]) -> bool {
    let differs = password.iter().zip(said).fold(0, |differs, (one, other)| differs | (one ^ other));
    password.len() == said.len() && differs == 0
}

fn log_in(client: &mut Client, user: &[u8], said: &[u8]) -> Done {
    let Some(password) = &client.shared.password else {
        return refuse("AUTH called without any password configured");
    };
    if user != b"default" || !is_right(password, said) {
        return Err(Refusal("WRONGPASS invalid username-password pair".into()));
    }
    client.is_known = true;
    Ok(())
}

pub(super) fn auth(client: &mut Client, words: Words<'_>) -> Done {
    match words {
        [_, password] => log_in(client, b"default", password)?,
        [_, user, password] => log_in(client, user, password)?,
        _ => return refuse("syntax error"),
    }
    client.answers.simple("OK");
    Ok(())
}

pub(super) fn hello(client: &mut Client, words: Words<'_>) -> Done {
    let (mut rest, mut is_3) = (&words[1..], client.answers.is_3);
    if let [version, options @ ..] = rest {
        is_3 = match *version {
            b"2" => false,
            b"3" => true,
            _ => return Err(Refusal("NOPROTO unsupported protocol version".into())),
        };
        rest = options;
    }
    let mut name = None;
    while !rest.is_empty() {
        rest = match rest {
            [option, user, password, left @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                log_in(client, user, password)?;
                left
            }
            [option, text, left @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                name = Some(*text);
                left
            }
            _ => return refuse("syntax error in HELLO"),
        };
    }
    if !client.is_known {
        return Err(Refusal("NOAUTH HELLO must be called with the client already authenticated".into()));
    }
    name.map_or(Ok(()), |name| set_name(client, name))?;
    let number = client.number.cast_signed();
    let answers = &mut client.answers;
    answers.is_3 = is_3;
    answers.map(7);
    let pairs = [("server", "redis"), ("version", REDIS_VERSION), ("mode", "standalone"), ("role", "master")];
    for (name, value) in pairs {
        answers.bulk(name.as_bytes());
        answers.bulk(value.as_bytes());
    }
    for (name, value) in [("proto", if is_3 { 3 } else { 2 }), ("id", number)] {
        answers.bulk(name.as_bytes());
        answers.integer(value);
    }
    answers.bulk(b"modules");
    answers.array(0);
    Ok(())
}

fn set_name(client: &mut Client, name: &[u8]) -> Done {
    if name.len() > NAME_MAX || !name.iter().all(u8::is_ascii_graphic) {
        return refuse(format!("a name has up to {NAME_MAX} letters, digits and signs"));
    }
    client.name = name.to_vec();
    Ok(())
}

pub(super) fn client(client: &mut Client, words: Words<'_>) -> Done {
    match (&*words[1].to_ascii_lowercase(), &words[2..]) {
        (b"setname", [name]) => set_name(client, name)?,
        (b"getname", []) => {
            let name = client.name.clone();
            return client.answer((!name.is_empty()).then_some(&name));
        }
        (b"id", []) => {
            client.answers.integer(client.number.cast_signed());
            return Ok(());
        }
        (b"setinfo", [_, _]) => {}
        _ => return refuse("CLIENT has SETNAME, GETNAME, SETINFO and ID only"),
    }
    client.answers.simple("OK");
    Ok(())
}

pub(super) fn config(client: &mut Client, words: Words<'_>) -> Done {
    let [_, get, patterns @ ..] = words else { return refuse("syntax error") };
    if !get.eq_ignore_ascii_case(b"get") || patterns.is_empty() {
        return refuse("CONFIG has GET only: settings are in the stack file");
    }
    let wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let found: Vec<_> = CONFIG.iter().filter(|(name, _)| wanted(name)).collect();
    client.answers.map(found.len());
    for (name, value) in found {
        client.answers.bulk(name.as_bytes());
        client.answers.bulk(value.as_bytes());
    }
    Ok(())
}

pub(super) fn info(client: &mut Client, _: Words<'_>) -> Done {
    let version = env!("CARGO_PKG_VERSION");
    let atomic = client.values().batch_is_atomic();
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nbraid_version:{version}\r\n\
         braid_batch_is_atomic:{}\r\n",
        u8::from(atomic)
    );
    client.answer(Some(text.as_bytes()))
}
