//! Streams of a volume besides those of its rules: the section `hints` of a stack file, and
//! profiles of programs, which are files of their own.

use crate::paths::join;
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section, nearest};
use crate::text_file;
use crate::yaml::{self, Value};
use braid_contract::{Shown, StreamId, WriteLife};
use braid_hint::{Glob, HintConfig, Hints, LearnWhere, Profile, ProfileStream};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The profiles that come with Braid, in the order in which they are asked: those
/// whose patterns are narrow come first.
const SHIPPED: &[(&str, &str)] = &[
    ("kafka.yaml", include_str!("../hints/kafka.yaml")),
    ("rocksdb.yaml", include_str!("../hints/rocksdb.yaml")),
    ("leveldb.yaml", include_str!("../hints/leveldb.yaml")),
    ("mongodb.yaml", include_str!("../hints/mongodb.yaml")),
    ("postgresql.yaml", include_str!("../hints/postgresql.yaml")),
    ("mariadb.yaml", include_str!("../hints/mariadb.yaml")),
    ("sqlite.yaml", include_str!("../hints/sqlite.yaml")),
    ("redis.yaml", include_str!("../hints/redis.yaml")),
    ("cachelib.yaml", include_str!("../hints/cachelib.yaml")),
    ("logs.yaml", include_str!("../hints/logs.yaml")),
];
/// They are read once.
static PROFILES: LazyLock<Result<Vec<Arc<Profile>>, Refusal>> =
    LazyLock::new(|| SHIPPED.iter().map(|(name, text)| parse(text, name).map(Arc::new)).collect());
/// In place of a name: all that come with Braid.
const ALL: &str = "all";
const EXAMPLE: &str = "profiles: [ mine.yaml, all ]";
const PROFILE_EXAMPLE: &str = "write it as in: streams: { wal: { files: [ \"*.wal\" ], life: short } }";

/// The profiles that come with Braid.
///
/// # Errors
/// None but for a fault of Braid.
pub(crate) fn shipped() -> Result<&'static [Arc<Profile>], Refusal> {
    PROFILES.as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// The default of a volume: all profiles.
pub(crate) fn usual() -> Result<HintConfig, Refusal> {
    Ok(HintConfig { on: true, profiles: shipped()?.to_vec(), learned: LearnWhere::default() })
}

/// `hints: off`, or `hints: { learned: TRUTH, profiles: [ NAME or FILE, … ] }`
pub(crate) fn from_file(field: &Field, base: &Path) -> Result<HintConfig, Refusal> {
    if matches!(field.node.value, Value::Scalar(_)) {
        return if field.truth()?.value { usual() } else { Ok(HintConfig::default()) };
    }
    let mut section = Section::of(field, &["learned", "profiles"])?;
    let learned = section.take("learned").map(|field| field.truth()).transpose()?;
    let learned = learned.map_or_else(LearnWhere::default, |learned| match learned.value {
        true => LearnWhere::Always,
        false => LearnWhere::Never,
    });
    let Some(listed) = section.take("profiles") else { return Ok(HintConfig { learned, ..usual()? }) };
    let mut profiles: Vec<Arc<Profile>> = Vec::new();
    for item in listed.items(EXAMPLE)? {
        let named = item.text("a profile")?;
        for profile in profiles_of(&named, base)? {
            if profiles.iter().any(|other| other.name == profile.name) {
                let found = format!("there are two profiles '{}'", profile.name);
                return Err(named.place.refuse(found, "list each once, or give yours another name"));
            }
            profiles.push(profile);
        }
    }
    Ok(HintConfig { on: true, profiles, learned })
}

/// The profiles of one item: a shipped one, all of them, or one in a file.
fn profiles_of(named: &Located<String>, base: &Path) -> Result<Vec<Arc<Profile>>, Refusal> {
    let name = named.value.as_str();
    if name == ALL {
        return Ok(shipped()?.to_vec());
    }
    if is_file(name) {
        let path = join(base, name);
        let text = text_file::read(&path).map_err(|error| {
            let found = format!("{} can't be read: {error}", path.shown());
            named.place.refuse(found, "name a file, relative to the stack file, or a profile of Braid's")
        })?;
        return Ok(vec![Arc::new(parse(&text, &path.to_string_lossy())?)]);
    }
    let shipped = shipped()?;
    match shipped.iter().find(|profile| profile.name == name) {
        Some(profile) => Ok(vec![Arc::clone(profile)]),
        None => {
            let names: Vec<&str> = shipped.iter().map(|profile| profile.name.as_str()).collect();
            let meant =
                nearest(name, &names).map_or_else(String::new, |near| format!("did you mean '{near}'? "));
            let advice =
                format!("{meant}Name one of {}, all, or a file that ends with .yaml", names.join(", "));
            Err(named.place.refuse(format!("there is no profile '{name}'"), advice))
        }
    }
}

/// Whether an item of `profiles` is a file, and no name.
pub(crate) fn is_file(item: &str) -> bool {
    item.contains('/') || item.ends_with(".yaml") || item.ends_with(".yml")
}

/// Reads a profile, which is called `file` in messages.
pub(crate) fn parse(text: &str, file: &str) -> Result<Profile, Refusal> {
    let place = Place::file(file);
    let root = Field::root(yaml::parse(text, &place)?, &place);
    let mut section = Section::of(&root, &["name", "about", "programs", "streams"])?;
    let name = section.require("name", "name: a word")?.text("the name of the profile")?;
    check_word(&name)?;
    let about = section.take("about").map(|field| field.text("what it is for")).transpose()?;
    let programs = section.take("programs").map(|field| globs(&field)).transpose()?.unwrap_or_default();
    let listed = section.require("streams", "streams: { NAME: { files: [ … ], life: … } }")?;
    let below = Section::open(&listed)?.into_fields();
    let streams: Vec<ProfileStream> =
        below.map(|field| stream(&field, &name.value)).collect::<Result<_, _>>()?;
    if streams.is_empty() {
        return Err(listed.place.refuse("the profile has no stream", PROFILE_EXAMPLE));
    }
    let about = about.map(|about| about.value).unwrap_or_default();
    Ok(Profile { name: name.value, about, programs, streams })
}

fn stream(field: &Field, profile: &str) -> Result<ProfileStream, Refusal> {
    check_word(&Located::new(field.name.clone(), field.place.clone()))?;
    let mut section = Section::of(field, &["files", "programs", "threads", "life"])?;
    let files = section.require("files", "files: [ \"*.wal\" ]")?;
    let found = globs(&files)?;
    if found.is_empty() {
        return Err(files.place.refuse("the stream has no files", PROFILE_EXAMPLE));
    }
    let mut optional = |key: &str| -> Result<Vec<Glob>, Refusal> {
        Ok(section.take(key).map(|field| globs(&field)).transpose()?.unwrap_or_default())
    };
    let (programs, threads) = (optional("programs")?, optional("threads")?);
    let life = section.require("life", "life: short, medium, long or extreme")?;
    let life = life.parse("how long the data lives", |text| {
        WriteLife::named(text).ok_or_else(|| "write short, medium, long or extreme".to_owned())
    })?;
    let name = format!("{profile}/{}", field.name);
    Ok(ProfileStream { name, files: found, programs, threads, life: life.value })
}

/// A list of patterns.
fn globs(field: &Field) -> Result<Vec<Glob>, Refusal> {
    let glob = |item: Field| {
        let pattern = item.text("a pattern")?;
        Glob::new(&pattern.value).map_err(|error| {
            let found = format!("'{}' is not a pattern: {error}", pattern.value);
            pattern.place.refuse(found, "a pattern has *, **, ? and [a-z]; it is no regular expression")
        })
    };
    field.items("[ \"*.wal\", \"**/pg_wal/**\" ]")?.into_iter().map(glob).collect()
}

/// The name of a profile or stream.
pub(crate) fn check_word(name: &Located<String>) -> Result<(), Refusal> {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !name.value.is_empty() && name.value.len() <= 64 && is_word(&name.value) {
        return Ok(());
    }
    let found = format!("'{}' is no name", name.value);
    Err(name.place.refuse(found, "use up to 64 letters, digits, '-', '_' and '.'"))
}

/// The name of a stream, as a rule gives it.
pub(crate) fn stream_name(field: &Field) -> Result<Located<String>, Refusal> {
    let name = field.text("the name of a stream")?;
    // One of a profile may be meant too.
    for word in name.value.splitn(2, '/') {
        check_word(&Located::new(word.to_owned(), name.place.clone()))?;
    }
    Ok(name)
}

/// Refuses two streams that would have one number.
pub(crate) fn check_names(rules: &[crate::config::Rule], hints: &HintConfig) -> Result<(), Refusal> {
    let named = || rules.iter().filter_map(|rule| rule.stream.as_ref());
    let known = Hints::new(named().map(|stream| stream.value.as_str()), hints);
    for stream in named() {
        let id = StreamId::named(&stream.value);
        if let Some(other) = known.stream(id).filter(|known| known.name != stream.value) {
            let found = format!("the streams '{}' and '{}' would be one", stream.value, other.name);
            return Err(stream.place.refuse(found, "give it another name"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_file;
    use braid_hint::{Task, Writer};

    const STACK: &str = "stack:\n  volume:\n    home: a\n    tiers: { a: { dir: x } }\n    hints: ";

    /// The hints of a stack file below `base`; or the reason why it is refused.
    fn hints(setting: &str, base: &Path) -> Result<HintConfig, String> {
        let config = stack_file::parse(&format!("{STACK}{setting}\n"), "s.yaml", base);
        let config = config.map_err(|refusal| refusal.to_string())?;
        Ok(config.stack.volume().unwrap().hints.clone())
    }

    fn names(config: &HintConfig) -> Vec<&str> {
        config.profiles.iter().map(|profile| profile.name.as_str()).collect()
    }

    #[test]
    fn what_programs_write_is_known() {
        let hints = Hints::new([], &usual().unwrap());
        let stream = |path: &str, program: &str, thread: &str| {
            let task = || Some(Task { program: program.to_owned(), thread: thread.to_owned() });
            hints.classify(path, &Writer::new(&task)).map(|stream| hints.name(stream))
        };
        for (path, program, thread, expected) in [
            ("db/000012.log", "", "", "rocksdb/wal"),
            ("db/1000012.sst", "app", "rocksdb:high", "rocksdb/flushed"),
            ("db/000012.sst", "app", "rocksdb:low", "rocksdb/compacted"),
            ("db/MANIFEST-000004", "", "", "rocksdb/manifest"),
            ("db/000005.ldb", "", "", "leveldb/tables"),
            ("d/journal/WiredTigerLog.0000000001", "mongod", "", "mongodb/journal"),
            ("d/collection-7-123.wt", "mongod", "", "mongodb/collections"),
            ("pg/pg_wal/000000010000000000000001", "postgres", "", "postgresql/wal"),
            ("pg/base/16384/2619", "postgres", "", "postgresql/tables"),
            ("mysql/#ib_redo12", "mysqld", "", "mariadb/redo"),
            ("mysql/shop/orders.ibd", "mariadbd", "", "mariadb/tables"),
            ("kafka/topic-0/00000000000000000000.log", "java", "", "kafka/segments"),
            ("redis/appendonlydir/appendonly.aof.1.incr.aof", "redis-server", "", "redis/append-only"),
            ("redis/temp-12.rdb", "redis-server", "", "redis/snapshots"),
            ("app.sqlite-wal", "", "", "sqlite/journal"),
            ("cache/navy0", "", "", "cachelib/cache"),
            ("var/log/nginx/access.log.1", "", "", "logs/logs"),
        ] {
            assert_eq!(stream(path, program, thread).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(stream("pg/base/16384/2619", "tar", ""), None);
        assert_eq!(stream("photos/1.jpg", "", ""), None);
    }

    #[test]
    fn profiles_are_listed_by_name_or_in_files_of_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let own = "name: own\nstreams:\n  spool: { files: [ 'spool/**' ], threads: [ 'w*' ], life: short }\n";
        std::fs::write(dir.path().join("own.yaml"), own).unwrap();
        let (one, other) = (usual().unwrap(), hints("{ profiles: [ rocksdb ] }", dir.path()).unwrap());
        assert!(Arc::ptr_eq(&one.profiles[1], &other.profiles[0]), "they are read once");
        let all = names(&one).len();
        assert_eq!(all, SHIPPED.len());
        for (setting, expected) in [
            ("{ profiles: [ own.yaml, redis ] }", vec!["own", "redis"]),
            ("{ profiles: [ ] }", vec![]),
            ("off", vec![]),
        ] {
            assert_eq!(names(&hints(setting, dir.path()).unwrap()), expected, "{setting}");
        }
        assert!(!hints("off", dir.path()).unwrap().on && hints("on", dir.path()).unwrap().on);
        for (setting, learned, profiles) in [
            ("on", LearnWhere::WhereApart, all),
            ("{ learned: on }", LearnWhere::Always, all),
            ("{ learned: off, profiles: [ redis ] }", LearnWhere::Never, 1),
        ] {
            let found = hints(setting, dir.path()).unwrap();
            assert_eq!((found.learned, found.profiles.len()), (learned, profiles), "{setting}");
        }
        let own_first = hints("{ profiles: [ own.yaml, all ] }", dir.path()).unwrap();
        assert_eq!((names(&own_first)[0], names(&own_first).len()), ("own", all + 1));
    }

    #[test]
    fn wrong_profiles_are_refused_with_place_and_reason() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |setting: &str| hints(setting, dir.path()).unwrap_err();
        let said = refused("{ profiles: [ rocksdbb ] }");
        assert!(said.starts_with("s.yaml:5") && said.contains("did you mean 'rocksdb'?"), "{said}");
        assert!(refused("{ profiles: [ redis, redis ] }").contains("two profiles 'redis'"));
        assert!(refused("{ profiles: [ none.yaml ] }").contains("none.yaml can't be read"));
        assert!(refused("{ profile: [ redis ] }").contains("profile"));
        assert!(refused("{ learned: perhaps }").contains("s.yaml:5: stack.volume.hints.learned: "));
        assert!(refused("maybe").contains("expected yes or no"));
        for (text, reason) in [
            ("name: own\n", "own.yaml:1: the key 'streams' is missing"),
            ("streams: { a: { files: [ 'x' ], life: short } }\n", "the key 'name' is missing"),
            ("name: own\nstreams: {}\n", "own.yaml:2: streams: the profile has no stream"),
            (
                "name: own\nstreams:\n  a: { files: [], life: short }\n",
                "streams.a.files: the stream has no files",
            ),
            (
                "name: own\nstreams:\n  a: { files: [ 'x' ], life: brief }\n",
                "own.yaml:3: streams.a.life: found 'brief'",
            ),
            ("name: own\nstreams:\n  a: { files: [ '[x' ], life: short }\n", "'[x' is not a pattern"),
            ("name: own\nstreams:\n  a b: { files: [ 'x' ], life: short }\n", "'a b' is no name"),
            ("name: own\nstreams:\n  a: { file: [ 'x' ], life: short }\n", "file"),
            ("name: own\nstream: {}\n", "stream"),
            ("- a\n", "own.yaml"),
        ] {
            std::fs::write(dir.path().join("own.yaml"), text).unwrap();
            let said = refused("{ profiles: [ own.yaml ] }");
            assert!(said.contains(reason), "{text}: {said}");
        }
    }
}
