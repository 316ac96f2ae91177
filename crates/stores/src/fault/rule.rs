//! Rules of faults: operations, errors and times.

use braid_contract::Errno;
use std::fmt;
use std::str::FromStr;

/// The operations of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOp {
    /// Every operation.
    All,
    /// Every operation but `Read`, `Write` and `Sync`.
    Metadata,
    /// `read_at`, each of `read_pieces`, and `object_file`.
    Read,
    /// `write_at` and `share_range`.
    Write,
    /// `sync` and `sync_all`.
    Sync,
    /// `create`.
    Create,
    /// `remove`.
    Remove,
    /// `allocate`.
    Allocate,
    /// `punch`.
    Punch,
    /// `truncate`.
    Truncate,
    /// `stat`, `next_data` and `object_file`.
    Stat,
    /// `usage`.
    Usage,
    /// `label` and `set_label`.
    Label,
    /// `probe`.
    Probe,
    /// `list`.
    List,
}

const OPS: [(FaultOp, &str); 15] = [
    (FaultOp::All, "all"),
    (FaultOp::Metadata, "metadata"),
    (FaultOp::Read, "read"),
    (FaultOp::Write, "write"),
    (FaultOp::Sync, "sync"),
    (FaultOp::Create, "create"),
    (FaultOp::Remove, "remove"),
    (FaultOp::Allocate, "allocate"),
    (FaultOp::Punch, "punch"),
    (FaultOp::Truncate, "truncate"),
    (FaultOp::Stat, "stat"),
    (FaultOp::Usage, "usage"),
    (FaultOp::Label, "label"),
    (FaultOp::Probe, "probe"),
    (FaultOp::List, "list"),
];

impl FaultOp {
    /// Whether a rule for these operations includes that one.
    pub(super) fn covers(self, op: Self) -> bool {
        match self {
            Self::All => true,
            Self::Metadata => !matches!(op, Self::Read | Self::Write | Self::Sync),
            one => one == op,
        }
    }

    /// Whether the operation leaves an object with something to sync.
    pub(super) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Create | Self::Allocate | Self::Punch | Self::Truncate)
    }
}

/// How an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// With this error, without effect. With [`FaultOp::Sync`], the error is
    /// reported like the kernel's after failed writeback: once per object, and
    /// again after it was changed. With [`FaultOp::All`], as for a device that
    /// is gone, it is reported each time.
    Fail(Errno),
    /// A read or a write handles half of its bytes, rounded up; other
    /// operations are carried out.
    Short,
    /// The operation waits until the rules change, and is then carried out
    /// under the new ones.
    Hang,
}

/// One rule: which operations fail, how and when. Each rule counts its
/// operations from the moment it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultRule {
    /// Which operations.
    pub op: FaultOp,
    /// How they fail.
    pub kind: FaultKind,
    /// Number of operations that pass first.
    pub after: u64,
    /// After those, one in so many fails, beginning with the first; 0 and 1
    /// mean each.
    pub every: u64,
    /// Number of failures in all; `None` is no limit.
    pub count: Option<u64>,
}

impl FaultRule {
    /// A rule that makes each of the operations fail.
    #[must_use]
    pub fn each(op: FaultOp, kind: FaultKind) -> Self {
        Self { op, kind, after: 0, every: 1, count: None }
    }

    /// A rule that makes only the next of the operations fail.
    #[must_use]
    pub fn once(op: FaultOp, kind: FaultKind) -> Self {
        Self { count: Some(1), ..Self::each(op, kind) }
    }
}

/// As `OPERATION:FAULT[,after=N][,every=N][,count=N|,once]`, where the fault is
/// the name of an error, `short` or `hang`: `write:ENOSPC,after=100`.
impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = OPS.iter().find(|(op, _)| *op == self.op).map_or("", |(_, name)| name);
        write!(f, "{op}:")?;
        match self.kind {
            // An unknown number is parsed back as written.
            FaultKind::Fail(errno) => match errno.name() {
                Some(name) => f.write_str(name)?,
                None => write!(f, "{}", errno.0)?,
            },
            FaultKind::Short => f.write_str("short")?,
            FaultKind::Hang => f.write_str("hang")?,
        }
        if self.after > 0 {
            write!(f, ",after={}", self.after)?;
        }
        if self.every > 1 {
            write!(f, ",every={}", self.every)?;
        }
        match self.count {
            None => Ok(()),
            Some(1) => f.write_str(",once"),
            Some(count) => write!(f, ",count={count}"),
        }
    }
}

/// Why a text is not a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseFaultError(String);

impl fmt::Display for ParseFaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseFaultError {}

impl FromStr for FaultRule {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let mut parts = text.split(',');
        let (op, kind) = parts.next().and_then(|first| first.split_once(':')).ok_or_else(|| {
            ParseFaultError(format!("`{text}` is not OPERATION:FAULT, as in `write:EIO` or `read:hang,once`"))
        })?;
        let mut rule = Self::each(parse_op(op)?, parse_kind(kind)?);
        for part in parts {
            let (name, number) = part.split_once('=').unwrap_or((part, ""));
            let number =
                || number.parse().map_err(|_| ParseFaultError(format!("`{part}` should be `{name}=NUMBER`")));
            match name {
                "after" => rule.after = number()?,
                "every" => rule.every = number()?,
                "count" => rule.count = Some(number()?),
                "once" if part == "once" => rule.count = Some(1),
                _ => {
                    let known = "after=N, every=N, count=N and once";
                    return Err(ParseFaultError(format!("`{part}` is unknown; there are {known}")));
                }
            }
        }
        Ok(rule)
    }
}

fn parse_op(text: &str) -> Result<FaultOp, ParseFaultError> {
    OPS.iter().find(|(_, name)| *name == text).map(|(op, _)| *op).ok_or_else(|| {
        let names: Vec<&str> = OPS.iter().map(|(_, name)| *name).collect();
        ParseFaultError(format!("`{text}` is no operation; there are {}", names.join(", ")))
    })
}

fn parse_kind(text: &str) -> Result<FaultKind, ParseFaultError> {
    /// Linux has no higher error number.
    const ERRNO_MAX: i32 = 4095;
    let named = || (1..=ERRNO_MAX).map(Errno).find(|errno| errno.name() == Some(text));
    let numbered = || text.parse().ok().filter(|number| (1..=ERRNO_MAX).contains(number)).map(Errno);
    match text {
        "short" => Ok(FaultKind::Short),
        "hang" => Ok(FaultKind::Hang),
        _ => named().or_else(numbered).map(FaultKind::Fail).ok_or_else(|| {
            ParseFaultError(format!("`{text}` is no fault; it is an error such as EIO, `short` or `hang`"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in [
            "all:ESTALE",
            "read:EIO,after=10,every=3,count=5",
            "write:short",
            "sync:EIO,once",
            "metadata:hang,after=1",
            "usage:112",
        ] {
            let rule: FaultRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        for (op, name) in OPS {
            assert_eq!(format!("{name}:EIO").parse(), Ok(FaultRule::each(op, FaultKind::Fail(Errno::EIO))));
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "OPERATION:FAULT"),
            ("read", "OPERATION:FAULT"),
            ("reed:EIO", "`reed` is no operation"),
            ("read:EIEIO", "`EIEIO` is no fault"),
            ("read:0", "`0` is no fault"),
            ("read:-5", "`-5` is no fault"),
            ("read:EIO,after", "`after=NUMBER`"),
            ("read:EIO,once=2", "`once=2` is unknown"),
            ("read:EIO,", "`` is unknown"),
        ] {
            let error = text.parse::<FaultRule>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
