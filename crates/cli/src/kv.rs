//! `braid kv`: keys and values, which are the files of a directory.

use crate::args::{KeyState, KvArgs, KvCommand, KvDeleteArgs, KvGetArgs, KvPutArgs, KvScanArgs};
use crate::failure::{Failure, Result};
use crate::locate;
use braid_contract::key_value::VALUE_MAX;
use braid_contract::{Error, Shown};
use braid_daemon::direct::DirectStack;
use braid_daemon::kv::settings::KvFlags;
use braid_ipc::Client;
use braid_ipc::protocol::{KvAnswer, KvKey, KvOperation, KvRequest, KvWhen, Reply, Request};
use rustix::fs::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// The status for a key that is not there.
const MISSING: u8 = 3;
/// Keys of a page.
const PAGE: usize = 1000;

/// The flags of a mount that serves keys and values.
pub(crate) fn flags(args: &KvArgs) -> KvFlags {
    let KvArgs { listen, directory, password_file, user } = args.clone();
    KvFlags { listen, directory, password_file, user }
}

pub(crate) fn run(command: &KvCommand) -> ExitCode {
    let done = match command {
        KvCommand::Get(args) => get(args),
        KvCommand::Put(args) => put(args),
        KvCommand::Delete(args) => delete(args),
        KvCommand::Scan(args) => scan(args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(MISSING),
        Err(failure) => failure.report(),
    }
}

/// Keys and values.
enum Bucket {
    /// Of a directory of a mounted file system.
    Mounted { daemon: Client, directory: String },
    /// Of a stack that this process carries out.
    Direct(DirectStack),
}

impl Bucket {
    fn open(path: &Path) -> Result<Self> {
        if let Some(stack) = DirectStack::find(path)? {
            return Ok(Self::Direct(stack));
        }
        let (mount, directory) = locate::within(path)?;
        Ok(Self::Mounted { daemon: locate::need_daemon(&mount)?, directory })
    }

    /// Opens it, works with it, and ends its use.
    fn with<T>(path: &Path, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut bucket = Self::open(path)?;
        let done = work(&mut bucket);
        let closed = bucket.close();
        done.and_then(|done| closed.map(|()| done))
    }

    fn ask(&mut self, operation: KvOperation, value: &[u8]) -> Result<(KvAnswer, Vec<u8>)> {
        match self {
            Self::Mounted { daemon, directory } => {
                let request = KvRequest { directory: directory.clone(), operation };
                daemon.kv(&request, value).map_err(|error| Failure::of_client(&error))
            }
            Self::Direct(stack) => stack.kv(&operation, value).map_err(|error| of_stack(&error)),
        }
    }

    fn sync(&mut self) -> Result<()> {
        match self {
            Self::Mounted { daemon, .. } => {
                locate::ask(daemon, &Request::Sync, |reply| matches!(reply, Reply::Done(_)).then_some(()))
            }
            Self::Direct(stack) => stack.sync().map_err(|error| of_stack(&error)),
        }
    }

    /// Ends its use.
    fn close(self) -> Result<()> {
        match self {
            Self::Mounted { .. } => Ok(()),
            Self::Direct(stack) => stack.close().map_err(|error| of_stack(&error)),
        }
    }
}

fn of_stack(error: &Error) -> Failure {
    Failure::new(error.to_string())
}

fn key(text: &OsStr, is_hex: bool) -> Result<Vec<u8>> {
    if !is_hex {
        return Ok(text.as_bytes().to_vec());
    }
    let wrong = || {
        Failure::usage(format!("{}: not pairs of hexadecimal digits (see --help)", Path::new(text).shown()))
    };
    let digits =
        text.to_str().filter(|text| text.is_ascii() && text.len().is_multiple_of(2)).ok_or_else(wrong)?;
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
    (0..digits.len()).step_by(2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown(key: &[u8]) -> String {
    Path::new(OsStr::from_bytes(key)).shown().to_string()
}

fn told(what: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", what.shown()))
}

/// Says on standard error why a key can't be used.
fn missing(key: &[u8], what: &str) -> bool {
    // The status says it too.
    let _ = writeln!(io::stderr(), "braid: the key {} {what}", shown(key));
    false
}

fn get(args: &KvGetArgs) -> Result<bool> {
    let key = key(&args.key, args.hex)?;
    let operation = KvOperation::Get { key: key.clone() };
    let (answer, value) = Bucket::with(&args.dir, |bucket| bucket.ask(operation, b""))?;
    if !answer.done {
        return Ok(missing(&key, "is not there"));
    }
    match &args.output {
        Some(file) => std::fs::write(file, value).map_err(|error| told(file, &error))?,
        None => write_out(&value)?,
    }
    Ok(true)
}

fn write_out(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| told(Path::new("standard output"), &error))
}

fn put(args: &KvPutArgs) -> Result<bool> {
    let (key, value) = (key(&args.key, args.hex)?, value(args)?);
    if value.len() > VALUE_MAX {
        return Err(Failure::new(format!("the value has more than {VALUE_MAX} bytes, which are the most")));
    }
    let when = match args.when {
        None => KvWhen::Always,
        Some(KeyState::Absent) => KvWhen::Absent,
        Some(KeyState::Present) => KvWhen::Present,
    };
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    let mode = 0o666 & !(mask.as_raw_mode() as u16);
    let operation = KvOperation::Put { key: key.clone(), bytes: value.len() as u64, when, mode };
    Bucket::with(&args.dir, |bucket| {
        let (answer, _) = bucket.ask(operation, &value)?;
        if !answer.done {
            let what = if when == KvWhen::Absent { "is there" } else { "is not there" };
            return Ok(missing(&key, what));
        }
        if args.sync { bucket.sync().map(|()| true) } else { Ok(true) }
    })
}

/// The value, or a little more than there can be.
fn value(args: &KvPutArgs) -> Result<Vec<u8>> {
    if let Some(value) = &args.value {
        return Ok(value.as_bytes().to_vec());
    }
    let (mut source, name): (Box<dyn Read>, &Path) = match &args.input {
        Some(file) => (Box::new(File::open(file).map_err(|error| told(file, &error))?), file),
        None => (Box::new(io::stdin()), Path::new("standard input")),
    };
    let mut value = Vec::new();
    source.by_ref().take(VALUE_MAX as u64 + 1).read_to_end(&mut value).map_err(|error| told(name, &error))?;
    Ok(value)
}

fn delete(args: &KvDeleteArgs) -> Result<bool> {
    let keys: Vec<Vec<u8>> =
        args.keys.iter().map(|text: &OsString| key(text, args.hex)).collect::<Result<_>>()?;
    Bucket::with(&args.dir, |bucket| {
        let mut all = true;
        for key in keys {
            let (answer, _) = bucket.ask(KvOperation::Delete { key: key.clone() }, b"")?;
            all &= answer.done || missing(&key, "is not there");
        }
        if args.sync {
            bucket.sync()?;
        }
        Ok(all)
    })
}

fn scan(args: &KvScanArgs) -> Result<()> {
    Bucket::with(&args.dir, |bucket| scan_in(bucket, args))
}

fn scan_in(bucket: &mut Bucket, args: &KvScanArgs) -> Result<()> {
    let bytes = |text: &OsString| text.as_bytes().to_vec();
    let (from, to, prefix) = (bytes(&args.from), args.to.as_ref().map(bytes), bytes(&args.prefix));
    let mut after = None;
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let (from, to, prefix) = (from.clone(), to.clone(), prefix.clone());
        let count = left.min(PAGE);
        let operation = KvOperation::Scan { from, to, prefix, after, count, values: args.values };
        let (answer, values) = bucket.ask(operation, b"")?;
        left -= answer.keys.len().min(left);
        write_out(page(&answer.keys, &values, args.json).as_bytes())?;
        after = answer.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

/// A line for each key.
fn page(keys: &[KvKey], mut values: &[u8], json: bool) -> String {
    let mut text = String::new();
    for KvKey { key, bytes } in keys {
        let (value, rest) = values.split_at(bytes.map_or(0, |len| len as usize).min(values.len()));
        values = rest;
        let line = if json {
            let mut object = serde_json::json!({ "key": String::from_utf8_lossy(key), "key_hex": hex(key) });
            if bytes.is_some() {
                object["value_hex"] = hex(value).into();
            }
            object.to_string()
        } else {
            shown(key)
        };
        text += &line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_hexadecimal_digits() {
        assert_eq!(key(OsStr::new("00fF"), true).unwrap(), [0, 255]);
        assert_eq!(key(OsStr::new("00fF"), false).unwrap(), b"00fF");
        for wrong in ["0", "0g", "\u{e4}"] {
            assert!(key(OsStr::new(wrong), true).unwrap_err().is_usage(), "{wrong}");
        }
    }
}
