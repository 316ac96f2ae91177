//! The documents against the command: every command, flag, key, policy and
//! variable has its line in `docs/`, and nothing else has; and tests use each
//! command with each flag. The command itself lists them, in its help and in
//! its messages about unknown ones.

use braid_ipc::protocol::Request;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether a text has this word: not as part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, behind) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(is_part) && !behind.is_some_and(is_part)
    })
}

/// Flags of a command, by the words that name it.
type Commands = BTreeMap<Vec<String>, BTreeSet<String>>;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_in(dir: &Path, extension: &str) -> Vec<(PathBuf, String)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn documents() -> Vec<(PathBuf, String)> {
    let readme = project().join("README.md");
    let mut files = files_in(&project().join("docs"), "md");
    files.push((readme.clone(), fs::read_to_string(readme).unwrap()));
    files
}

fn document(name: &str) -> String {
    fs::read_to_string(project().join("docs").join(name)).unwrap()
}

fn help(words: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_braid")).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Long flags at the start of a line's words: their descriptions are indented
/// further, and the command's less.
fn flags_of(help: &str) -> BTreeSet<String> {
    let options = help.split_once("Options:\n").map_or("", |(_, options)| options);
    let is_flag = |line: &&str| {
        let words = line.trim_start();
        words.starts_with('-') && (2..=6).contains(&(line.len() - words.len()))
    };
    let lines = options.lines().filter(is_flag);
    let long =
        |line: &str| line.split([' ', ',', '[']).find(|word| word.starts_with("--")).map(str::to_owned);
    lines.filter_map(long).filter(|flag| !["--help", "--version"].contains(&flag.as_str())).collect()
}

/// The commands in the help, including sub-commands.
fn commands() -> Commands {
    let (mut found, mut left) = (Commands::new(), vec![Vec::new()]);
    while let Some(words) = left.pop() {
        let help = help(&words);
        let below = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
        let names: Vec<&str> = below
            .lines()
            .take_while(|line| line.starts_with("  "))
            // A description may continue on the next line, indented further.
            .filter(|line| !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .collect();
        left.extend(names.iter().map(|name| [&words[..], &[(*name).to_owned()]].concat()));
        if names.is_empty() {
            found.insert(words, flags_of(&help));
        }
    }
    assert!(found.len() > 20 && found.contains_key(&["tier".to_owned(), "add".to_owned()][..]), "{found:?}");
    found
}

/// The calls of the command in code in a document: the words after `braid`.
fn calls(text: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    let mut enter = |code: &str| {
        let code = code.trim_start_matches("$ ").replace("\\|", "|");
        let code = code.split('#').next().unwrap();
        if let Some(rest) = code.strip_prefix("braid ") {
            calls.push(rest.split_whitespace().map(str::to_owned).collect());
        }
    };
    for (at, part) in text.split("```").enumerate() {
        if at % 2 == 1 {
            part.lines().for_each(&mut enter);
        } else {
            part.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).for_each(&mut enter);
        }
    }
    calls
}

/// The commands that a call names; `a|b` are two.
fn named(call: &[String], commands: &Commands) -> Vec<Vec<String>> {
    let is_deep = |command: &Vec<String>| command.len() > 2 && call.starts_with(&command[..2]);
    let depth = if commands.keys().any(is_deep) { 3 } else { 2 };
    let is_name = |word: &&String| word.chars().all(|c| c.is_ascii_lowercase() || c == '|');
    let mut named = vec![Vec::new()];
    for word in call.iter().take(depth).take_while(is_name) {
        let longer = |before: &Vec<String>| {
            word.split('|').map(|name| [&before[..], &[name.to_owned()]].concat()).collect::<Vec<_>>()
        };
        named = named.iter().flat_map(longer).collect();
    }
    named
}

#[test]
fn every_command_and_flag_is_documented_and_no_other_is() {
    let commands = commands();
    let documents = documents();
    let mut documented = BTreeSet::new();
    for (path, text) in &documents {
        for call in calls(text) {
            for words in named(&call, &commands).into_iter().filter(|words| !words.is_empty()) {
                let known = |words: &[String]| commands.keys().any(|command| command.starts_with(words));
                let whole = commands.contains_key(&words[..1]);
                assert!(known(&words) || whole && known(&words[..1]), "{}: braid {call:?}", path.display());
                documented.insert(if whole { words[..1].to_vec() } else { words });
            }
            let first = call.first().unwrap();
            let flags = call.iter().filter(|word| word.starts_with("--") && word.len() > 2);
            for flag in flags.map(|flag| flag.trim_end_matches([']', ',', '.']).split('=').next().unwrap()) {
                let of_this = commands.iter().filter(|(words, _)| words[0] == *first);
                assert!(
                    flag == "--help" || of_this.clone().any(|(_, flags)| flags.contains(flag)),
                    "{}: braid {call:?}: {flag}",
                    path.display()
                );
            }
        }
    }
    for (words, flags) in &commands {
        assert!(documented.contains(words), "braid {} is in no document", words.join(" "));
        for flag in flags {
            let told = documents.iter().any(|(_, text)| has_word(text, flag));
            assert!(told, "braid {} {flag} is in no document", words.join(" "));
        }
    }
}

/// The text of all tests of the command.
fn tests() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    // Each program has its parts in a directory.
    let programs = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    programs.flat_map(|program| files_in(&program, "rs")).map(|(_, text)| text).collect()
}

/// Flags that `common` adds to a command, or to all that begin with the word;
/// and those of the daemon itself, not of its file system.
const NOT_LISTED: [(&str, &str); 3] =
    [("mount", "--log-file"), ("mount", "--foreground"), ("mount", "--log-level")];

/// Functions that tests call with the rest of a command's arguments, and the
/// words that these put first.
const CALLERS: [(&str, &[&str]); 2] =
    [("calibrate(&", &["bench", "calibrate"]), ("Recording::start(&bench, &", &["trace", "record"])];

/// The texts in each pair of brackets of a source, roughly: lists of arguments
/// are among them.
fn lists(source: &str) -> Vec<Vec<String>> {
    let (mut lists, mut open) = (Vec::new(), Vec::<Vec<String>>::new());
    let mut rest = source;
    while let Some(at) = rest.find(['"', '[', ']', '\'', '/']) {
        let (before, here) = (&source[..source.len() - rest.len() + at], &rest[at..]);
        rest = &here[1..];
        match here.as_bytes() {
            [b'/', b'/', ..] => rest = rest.split_once('\n').map_or("", |(_, next)| next),
            [b'\'', _, b'\'', ..] => rest = &here[3..],
            [b'[', ..] => {
                let caller = CALLERS.iter().find(|(call, _)| before.ends_with(call));
                let begun = caller.map_or(&[][..], |(_, words)| words);
                open.push(begun.iter().map(|word| (*word).to_owned()).collect());
            }
            [b']', ..] => lists.extend(open.pop()),
            [b'"', ..] => {
                let mut escaped = false;
                let end = rest.find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                let (text, behind) = rest.split_at(end.unwrap());
                open.iter_mut().last().into_iter().for_each(|list| list.push(text.to_owned()));
                rest = &behind[1..];
            }
            _ => {}
        }
    }
    lists
}

#[test]
fn every_command_is_used_by_a_test_with_each_of_its_flags() {
    let lists = lists(&tests());
    let mut missing = Vec::new();
    for (words, flags) in commands() {
        let calls: Vec<&Vec<String>> = lists.iter().filter(|list| list.starts_with(&words)).collect();
        if calls.is_empty() {
            missing.push(format!("braid {}", words.join(" ")));
        }
        let used = |flag: &String| {
            let in_call = |call: &&Vec<String>| call.iter().any(|word| word.split('=').next() == Some(flag));
            calls.iter().any(in_call) || NOT_LISTED.contains(&(words[0].as_str(), flag))
        };
        let unused = flags.iter().filter(|flag| !used(flag));
        missing.extend(unused.map(|flag| format!("braid {} {flag}", words.join(" "))));
    }
    assert!(missing.is_empty(), "no test uses {missing:?}");
}

#[test]
fn every_verb_of_the_control_socket_is_documented_and_no_other() {
    let said = serde_json::from_str::<Request>(r#"{"verb":"qqqq"}"#).unwrap_err().to_string();
    let (_, verbs) = said.split_once("expected one of ").unwrap();
    let verbs: BTreeSet<String> = verbs.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(verbs.contains("replace-tier-by"), "{said}");
    let requests = column(&document("configuration.md"), "## Control socket", "| request | reply |", 1);
    let verb = |request: &String| {
        serde_json::from_str::<Value>(
            &request.split_once(',').map_or_else(|| request.clone(), |(verb, _)| format!("{verb}}}")),
        )
    };
    let documented: BTreeSet<String> =
        requests.iter().map(|request| verb(request).unwrap()["verb"].as_str().unwrap().to_owned()).collect();
    assert_eq!(verbs, documented);
}

/// The message about a stack file with these settings of the volume.
fn said_to(rest: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.yaml"), rest).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    let output = command.current_dir(dir.path()).args(["bench", "calibrate", "s.yaml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    String::from_utf8(output.stderr).unwrap()
}

/// The names of a list in a message, after `before`.
fn listed(said: &str, before: &str) -> BTreeSet<String> {
    let Some((_, list)) = said.split_once(before) else { panic!("{before}: {said}") };
    let list = list.lines().next().unwrap();
    list.replace(" or ", ", ").split(", ").map(|name| name.trim().to_owned()).collect()
}

/// The first column of the table that begins with this line after a heading;
/// the names without markup.
fn first_column(text: &str, heading: &str, header: &str) -> BTreeSet<String> {
    column(text, heading, header, 1)
}

/// The names in code in a column of a table.
fn column(text: &str, heading: &str, header: &str, number: usize) -> BTreeSet<String> {
    let Some((_, section)) = text.split_once(&format!("{heading}\n")) else { panic!("{heading}") };
    let Some((_, table)) = section.split_once(&format!("{header}\n")) else { panic!("{header}") };
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(number).unwrap().to_owned());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether the tests set this key somewhere.
fn sets(tests: &str, key: &str) -> bool {
    tests.match_indices(&format!("{key}: ")).any(|(at, _)| {
        let before = tests[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    })
}

/// A stack file with a text in place of `@`.
fn with(place: &str, what: &str) -> String {
    let text = format!(
        "@top\nstack: {{ volume: {{ home: fast, @volume policy: {{ {} }}, tiers: {{ fast: {{ dir: a, @tier }} }} }} }}\n\
         mount: {{ @mount }}\n",
        if place.starts_with("policy") { what } else { "weighted: { }" }
    );
    let placed = text.replace(&format!("@{place}"), what);
    ["@top", "@volume", "@tier", "@mount"].iter().fold(placed, |text, place| text.replace(place, ""))
}

#[test]
fn every_key_of_a_stack_file_is_documented_and_set_by_a_test_and_no_other_is() {
    let (configuration, tests) = (document("configuration.md"), tests());
    let keys = "| key | value | default | meaning |";
    for (place, what, heading, header) in [
        ("volume", "qqqq: 1,", "### `stack.….volume`", keys),
        ("tier", "qqqq: 1", "### `stack.….volume`", "| key of a tier | value | default | meaning |"),
        ("volume", "rules: [ { qqqq: 1 } ],", "### `stack.….volume`", "| key of a rule | value | meaning |"),
        ("volume", "movers: { qqqq: 1 },", "### `movers`", keys),
        ("mount", "qqqq: 1", "### `mount`", keys),
    ] {
        let known = listed(&said_to(&with(place, what)), "the keys here are ");
        assert_eq!(known, first_column(&configuration, heading, header), "{heading} {header}");
        // With a value after it, in a stack file.
        let is_set = |key: &String| sets(&tests, key);
        let unused: Vec<&String> = known.iter().filter(|key| !is_set(key)).collect();
        assert!(unused.is_empty(), "{heading} {header}: no test sets {unused:?}");
    }
    let known = listed(&said_to(&with("volume", "rules: [ { qqqq: 1 } ],")), "the keys here are ");
    assert_eq!(known, first_column(&document("placement.md"), "## Rules", "| key | meaning |"));
    assert!(configuration.contains("{ budget: SIZE }"));
    let known = listed(&said_to(&with("volume", "heat: { qqqq: 1 },")), "the keys here are ");
    assert_eq!(known, BTreeSet::from(["budget".to_owned()]));
    let known = listed(&said_to(&with("top", "qqqq: 1")), "the keys here are ");
    assert_eq!(known, BTreeSet::from(["stack", "exec", "mount"].map(str::to_owned)));
}

#[test]
fn every_policy_and_its_settings_are_documented_and_no_other() {
    let (configuration, placement) = (document("configuration.md"), document("placement.md"));
    let policies = listed(&said_to(&with("policy", "qqqq: { }")), "a policy is ");
    let table = "| policy | settings | meaning |";
    assert_eq!(policies, first_column(&configuration, "### `stack.….volume`", table));
    assert_eq!(policies, first_column(&placement, "## Policies", "| policy | in one line | its source |"));
    let flags = |policy: &str| {
        let mut told = configuration.split("| `--policy ").skip(1);
        told.any(|rest| rest.split(['`', ':', '[']).next() == Some(policy))
    };
    let (mut settings, mut documented) = (BTreeSet::new(), BTreeSet::new());
    for policy in &policies {
        assert!(flags(policy), "--policy {policy}");
        let said = said_to(&with("policy", &format!("{policy}: {{ qqqq: 1 }}")));
        if !said.contains("this takes no keys") {
            settings.extend(listed(&said, "the keys here are "));
        }
    }
    for name in column(&configuration, "### `stack.….volume`", table, 2) {
        // Values are in code too.
        if settings.contains(&name) {
            documented.insert(name);
        }
    }
    assert_eq!(settings, documented);
}

#[test]
fn every_variable_and_function_of_a_condition_is_documented_and_no_other() {
    let placement = document("placement.md");
    let rule = |when: &str| with("volume", &format!("rules: [ {{ when: '{when}', tier: fast }} ],"));
    let variables = listed(&said_to(&rule("qqqq")), "the variables are ");
    assert_eq!(variables, first_column(&placement, "## Rules", "| variable | type | what it is |"));
    let said = said_to(&rule("qqqq(path)"));
    assert!(said.contains("rules.1.when: qqqq(path): there is no function or operator 'qqqq'"), "{said}");
    let functions = said.split_once("the functions are ").unwrap().1;
    for function in ["matches", "startsWith", "endsWith", "contains", "size(text)"] {
        assert!(
            has_word(functions, function.trim_end_matches("(text)"))
                && placement.contains(&format!("`{function}`")),
            "{function}"
        );
    }
}
