//! The rescue script with every kind of damage.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

use braid_testkit::damage::{Answer, Applied, Error, Finding, Kind, Repair, Sample, Target};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// The output and the files of a run of the rescue script.
struct Rescued {
    status: i32,
    /// By path, its word for the state of a file.
    states: HashMap<PathBuf, String>,
    out: PathBuf,
    messages: String,
}

fn rescue(sample: &Sample, out: PathBuf) -> Rescued {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/rescue/rescue.py");
    let mut command = Command::new("python3");
    command.arg(script).args(["--json", "--home", "fast"]);
    for (name, dir) in
        ["fast", "slow", "far"].iter().zip([&sample.volume.home].into_iter().chain(&sample.volume.others))
    {
        command.arg("--tier").arg(format!("{name}={}", dir.display()));
    }
    let output = command.arg(&out).output().expect("python3 runs");
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut states = HashMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        if let (Some(path), Some(state)) = (record["path"].as_str(), record["state"].as_str()) {
            states.insert(path.into(), state.to_owned());
        }
    }
    Rescued { status: output.status.code().expect("it is not killed"), states, out, messages }
}

/// Damages a sample; the file is one that suits the kind.
fn damage(kind: &Kind, sample: &Sample, seed: u64) -> Applied {
    let paths = ["big", "dir/second", "sparse"].map(|path| Target::Path(path.into()));
    for target in [Target::Any].into_iter().chain(paths) {
        match kind.apply(&sample.volume, &target, seed) {
            Err(Error::Unsuited(_)) => {}
            applied => return applied.unwrap(),
        }
    }
    panic!("no file suits {}", kind.name)
}

/// Whether a rebuilt file is as `answer` has it.
fn agrees(answer: &Answer, before: &[u8], home: &[u8], path: &Path) -> Result<(), String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map(|stat| stat.len());
    answer.check(before, home, size, |range| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start)?;
        Ok::<_, io::Error>(bytes)
    })
}

fn check(kind: &Kind, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::make(&dir.path().join("tiers")).unwrap();
    let applied = damage(kind, &sample, seed);
    let rescued = rescue(&sample, dir.path().join("out"));
    let context = format!("{}: {applied:?}\nstatus {}\n{}", kind.name, rescued.status, rescued.messages);
    assert!(rescued.status == 0 || rescued.status == 1, "{context}");
    if kind.finding == Finding::Legal {
        assert_eq!(rescued.status, 0, "{context}");
    }
    for file in &sample.files {
        let home = fs::read(sample.volume.home.join(&file.path)).unwrap();
        let hit = applied.path.as_ref() == Some(&file.path);
        let allowed = if hit { &applied.answer } else { &Answer::Same };
        let is = |answer| agrees(answer, &file.contents, &home, &rescued.out.join(&file.path));
        let mut right = is(&Answer::Same);
        if kind.finding == Finding::Either {
            // By the format, the answer of the damaged file is the truth.
            right = right.or_else(|_| is(allowed));
        }
        if kind.repair == Repair::Lossless {
            assert_eq!(right, Ok(()), "{}\n{context}", file.path.display());
        }
        // Damaged data is never passed off as sound.
        if let Err(why) = right {
            assert_eq!(rescued.status, 1, "{}: {why}\n{context}", file.path.display());
            assert_ne!(rescued.states[&file.path], "whole", "{}: {why}\n{context}", file.path.display());
        }
    }
}

#[test]
fn what_is_rebuilt_from_a_damaged_volume_is_right_or_said_not_to_be() {
    let kinds: Vec<_> = Kind::all().collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for kinds in kinds.chunks(kinds.len().div_ceil(threads)) {
            scope.spawn(|| kinds.iter().for_each(|kind| check(kind, 5)));
        }
    });
}
