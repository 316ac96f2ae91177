//! The rules of an island, and their decisions.

use crate::Pattern;
use serde::Deserialize;
use std::path::Path;

/// Something that a rule allows or denies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Right {
    /// Reading data and extended attributes, and executing.
    Read,
    /// Every change: of data, attributes and names.
    Write,
    /// Reading a directory.
    List,
}

impl Right {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::List];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
        }
    }
}

/// The default where no rule holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fallback {
    #[default]
    Allow,
    Deny,
}

/// The rules, in their order, and the default.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings {
    rules: Vec<Rule>,
    allows: bool,
}

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    rules: Vec<Rule>,
    #[serde(default)]
    default: Fallback,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "GivenRule")]
struct Rule {
    /// Without, all paths.
    paths: Option<Vec<Pattern>>,
    /// Without, all users.
    uid: Option<Vec<u32>>,
    /// Without, all groups.
    gid: Option<Vec<u32>>,
    allow: Vec<Right>,
    deny: Vec<Right>,
}

/// A rule as a stack file gives it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenRule {
    paths: Option<Vec<Pattern>>,
    uid: Option<Vec<u32>>,
    gid: Option<Vec<u32>>,
    allow: Option<Vec<Right>>,
    deny: Option<Vec<Right>>,
    read_only: Option<bool>,
}

impl TryFrom<GivenRule> for Rule {
    type Error = String;

    fn try_from(given: GivenRule) -> Result<Self, String> {
        let GivenRule { paths, uid, gid, allow, deny, read_only } = given;
        let lists = [
            ("paths", paths.as_ref().map(Vec::len)),
            ("uid", uid.as_ref().map(Vec::len)),
            ("gid", gid.as_ref().map(Vec::len)),
            ("allow", allow.as_ref().map(Vec::len)),
            ("deny", deny.as_ref().map(Vec::len)),
        ];
        if let Some((key, _)) = lists.iter().find(|(_, len)| *len == Some(0)) {
            return Err(format!("{key}: with an empty list, the rule is for nothing: leave the key out"));
        }
        let (allow, mut deny) = (allow.unwrap_or_default(), deny.unwrap_or_default());
        if read_only == Some(true) {
            if !(allow.is_empty() && deny.is_empty()) {
                return Err("'read_only' says all: leave 'allow' and 'deny' out".to_owned());
            }
            deny.push(Right::Write);
        }
        if let Some(both) = allow.iter().find(|right| deny.contains(right)) {
            return Err(format!("the rule allows and denies '{}'", both.name()));
        }
        if allow.is_empty() && deny.is_empty() {
            return Err("the rule says nothing: write 'allow', 'deny' or 'read_only: yes'".to_owned());
        }
        Ok(Self { paths, uid, gid, allow, deny })
    }
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        let Given { rules, default } = given;
        for (number, rule) in rules.iter().enumerate() {
            let settled = |right: &Right| rules[..number].iter().any(|before| before.settles(*right, rule));
            if Right::ALL.iter().filter(|right| rule.says(**right).is_some()).all(settled) {
                let number = number + 1;
                return Err(format!(
                    "rules: rule {number} never counts, as those before it decide all of that: put it before \
                     them, or take it out"
                ));
            }
        }
        let allows = default == Fallback::Allow;
        if !allows && rules.iter().all(|rule| rule.allow.is_empty()) {
            return Err("default: 'deny', and no rule that allows anything, denies all to all".to_owned());
        }
        Ok(Self { rules, allows })
    }
}

/// The user of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who<'a> {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// `None` if they are unknown.
    pub(super) groups: Option<&'a [u32]>,
}

/// The place that a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The file of this path.
    At(&'a Path),
    /// All files that have, or may get, a path below this directory.
    Below(&'a Path),
    /// A file whose path is unknown.
    Anywhere,
}

/// Whether a rule applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fit {
    No,
    Perhaps,
    Yes,
}

impl Fit {
    fn of(yes: bool, perhaps: bool) -> Self {
        match (yes, perhaps) {
            (true, _) => Self::Yes,
            (_, true) => Self::Perhaps,
            _ => Self::No,
        }
    }
}

impl Settings {
    /// Whether the right is granted there. In doubt, it is not.
    pub(super) fn grant(&self, who: Who<'_>, right: Right, place: Place<'_>) -> bool {
        for rule in &self.rules {
            let Some(allows) = rule.says(right) else { continue };
            match rule.fit(who, place) {
                Fit::Yes => return allows,
                Fit::Perhaps if !allows => return false,
                Fit::Perhaps | Fit::No => {}
            }
        }
        self.allows
    }

    /// Whether the path counts for this user and this right.
    pub(super) fn depends_on_path(&self, who: Who<'_>, right: Right) -> bool {
        for rule in &self.rules {
            match (rule.says(right), rule.fit_who(who), &rule.paths) {
                (None, ..) | (_, Fit::No, _) => {}
                (_, Fit::Yes, None) => return false,
                (_, Fit::Perhaps, None) => {}
                (_, _, Some(_)) => return true,
            }
        }
        false
    }

    /// Whether the same rules apply to both paths, and, for directories, to all below them.
    pub(super) fn treat_alike(&self, old: &Path, new: &Path, directories: bool) -> bool {
        let patterns = || self.rules.iter().filter_map(|rule| rule.paths.as_ref()).flatten();
        let alike = |pattern: &Pattern| match directories {
            false => pattern.includes(old) == pattern.includes(new),
            true => {
                let none = !pattern.may_match_below(old) && !pattern.may_match_below(new);
                let all = pattern.covers_below(old) && pattern.covers_below(new);
                (none || pattern.is_of_names()) && pattern.includes(old) == pattern.includes(new) || all
            }
        };
        patterns().all(alike)
    }

    /// Whether a rule asks for groups.
    pub(super) fn asks_for_groups(&self) -> bool {
        self.rules.iter().any(|rule| rule.gid.is_some())
    }
}

impl Rule {
    /// Whether it allows or denies this; `None` if neither.
    fn says(&self, right: Right) -> Option<bool> {
        match (self.allow.contains(&right), self.deny.contains(&right)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    fn fit(&self, who: Who<'_>, place: Place<'_>) -> Fit {
        match self.fit_who(who) {
            Fit::No => Fit::No,
            fit => fit.min(self.fit_place(place)),
        }
    }

    fn fit_who(&self, who: Who<'_>) -> Fit {
        if self.uid.as_ref().is_some_and(|uids| !uids.contains(&who.uid)) {
            return Fit::No;
        }
        let Some(gids) = &self.gid else { return Fit::Yes };
        let is_in =
            gids.contains(&who.gid) || who.groups.is_some_and(|all| all.iter().any(|gid| gids.contains(gid)));
        Fit::of(is_in, who.groups.is_none())
    }

    fn fit_place(&self, place: Place<'_>) -> Fit {
        let Some(patterns) = &self.paths else { return Fit::Yes };
        let any = |is: &dyn Fn(&Pattern) -> bool| patterns.iter().any(is);
        match place {
            Place::At(path) => Fit::of(any(&|pattern| pattern.includes(path)), false),
            Place::Below(dir) => Fit::of(
                any(&|pattern| pattern.covers_below(dir)),
                any(&|pattern| pattern.may_match_below(dir)),
            ),
            Place::Anywhere => Fit::Perhaps,
        }
    }

    /// Whether it decides about this right wherever a later rule would.
    fn settles(&self, right: Right, later: &Self) -> bool {
        fn includes<T: PartialEq>(all: Option<&Vec<T>>, some: Option<&Vec<T>>) -> bool {
            match (all, some) {
                (None, _) => true,
                (Some(all), Some(some)) => some.iter().all(|one| all.contains(one)),
                (Some(_), None) => false,
            }
        }
        self.says(right).is_some()
            && includes(self.paths.as_ref(), later.paths.as_ref())
            && includes(self.uid.as_ref(), later.uid.as_ref())
            && includes(self.gid.as_ref(), later.gid.as_ref())
    }
}
