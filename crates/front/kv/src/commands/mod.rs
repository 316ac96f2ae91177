//! The commands that are understood: a table, from which they are found and counted.

mod keys;
mod server;
mod strings;

use crate::client::{Client, Done, Refusal, Words};

/// A command.
struct Command {
    name: &'static str,
    /// How many words it has with its name; if negative, at least as many.
    arity: i64,
    /// Where its keys are among the words: the first, the last (from the end, if negative),
    /// and from each to the next.
    keys: (i64, i64, i64),
    changes: bool,
    run: fn(&mut Client, Words<'_>) -> Done,
}

const fn reads(
    name: &'static str,
    arity: i64,
    keys: (i64, i64, i64),
    run: fn(&mut Client, Words<'_>) -> Done,
) -> Command {
    Command { name, arity, keys, changes: false, run }
}

const fn changes(
    name: &'static str,
    arity: i64,
    keys: (i64, i64, i64),
    run: fn(&mut Client, Words<'_>) -> Done,
) -> Command {
    Command { name, arity, keys, changes: true, run }
}

const NONE: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const PAIRS: (i64, i64, i64) = (1, -1, 2);

const COMMANDS: &[Command] = &[
    reads("get", 2, ONE, strings::get),
    changes("set", -3, ONE, strings::set),
    changes("setnx", 3, ONE, strings::setnx),
    changes("getset", 3, ONE, strings::getset),
    changes("getdel", 2, ONE, strings::getdel),
    reads("mget", -2, ALL, strings::mget),
    changes("mset", -3, PAIRS, strings::mset),
    changes("msetnx", -3, PAIRS, strings::msetnx),
    reads("strlen", 2, ONE, strings::strlen),
    changes("append", 3, ONE, strings::append),
    reads("getrange", 4, ONE, strings::getrange),
    changes("setrange", 4, ONE, strings::setrange),
    changes("incr", 2, ONE, strings::incr),
    changes("decr", 2, ONE, strings::decr),
    changes("incrby", 3, ONE, strings::incrby),
    changes("decrby", 3, ONE, strings::decrby),
    changes("del", -2, ALL, keys::del),
    changes("unlink", -2, ALL, keys::del),
    reads("exists", -2, ALL, keys::exists),
    reads("type", 2, ONE, keys::kind),
    reads("scan", -2, NONE, keys::scan),
    reads("keys", 2, NONE, keys::keys),
    reads("dbsize", 1, NONE, keys::dbsize),
    changes("save", 1, NONE, keys::save),
    reads("ping", -1, NONE, server::ping),
    reads("echo", 2, NONE, server::echo),
    reads("quit", -1, NONE, server::quit),
    reads("select", 2, NONE, server::select),
    reads("hello", -1, NONE, server::hello),
    reads("auth", -2, NONE, server::auth),
    reads("client", -2, NONE, server::client),
    reads("config", -2, NONE, server::config),
    reads("info", -1, NONE, server::info),
    reads("command", -1, NONE, command),
];

/// Commands that are allowed before the password.
const FOR_ALL: [&str; 3] = ["hello", "auth", "quit"];

/// Carries out a request, and answers it.
pub(crate) fn execute(client: &mut Client, words: Words<'_>) {
    let Some(name) = words.first() else { return };
    let lower = name.to_ascii_lowercase();
    let found = COMMANDS.iter().find(|command| command.name.as_bytes() == lower);
    let done = match found {
        _ if !client.is_known && !found.is_some_and(|command| FOR_ALL.contains(&command.name)) => {
            Err(Refusal("NOAUTH Authentication required.".into()))
        }
        None => {
            let shown = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
            Err(Refusal(format!("ERR unknown command '{shown}': docs/kv.md has those that there are")))
        }
        Some(command) if !fits(command.arity, words.len()) => {
            Err(Refusal(format!("ERR wrong number of arguments for '{}' command", command.name)))
        }
        Some(command) => (command.run)(client, words),
    };
    if let Err(Refusal(text)) = done {
        client.answers.error(&text);
    }
}

fn fits(arity: i64, words: usize) -> bool {
    if arity >= 0 { words as i64 == arity } else { words as i64 >= -arity }
}

fn command(client: &mut Client, words: Words<'_>) -> Done {
    let sub = words.get(1).map(|word| word.to_ascii_lowercase());
    let answers = &mut client.answers;
    match sub.as_deref() {
        None => {
            answers.array(COMMANDS.len());
            for Command { name, arity, keys, changes, .. } in COMMANDS {
                answers.array(6);
                answers.bulk(name.as_bytes());
                answers.integer(*arity);
                answers.array(1);
                answers.simple(if *changes { "write" } else { "readonly" });
                for number in [keys.0, keys.1, keys.2] {
                    answers.integer(number);
                }
            }
        }
        Some(b"count") => answers.integer(COMMANDS.len() as i64),
        // Clients go on without.
        Some(b"docs") => answers.map(0),
        Some(_) => return crate::client::refuse("COMMAND has COUNT and DOCS only"),
    }
    Ok(())
}
