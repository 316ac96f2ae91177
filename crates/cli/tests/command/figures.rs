//! Modules as users of a mount see them: figures in `braid status`, times around the model of a
//! device, and the maker of a file. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, pattern};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const VOLUME: &str = "volume: { home: fast, range: 64KiB, measure: no, tiers: { fast: { dir: a } } }";

impl Bench {
    /// A stack file with these modules, from the top down, each without its closing brace.
    fn with_modules(&self, name: &str, modules: &[&str]) {
        let open: String = modules.iter().map(|module| format!("{module} ")).collect();
        let closed = " }".repeat(modules.len());
        let text = format!("stack: {{ {open}{VOLUME}{closed} }}\nmount: {{ cache: direct }}\n");
        fs::write(self.path(name), text).unwrap();
    }

    /// A figure of the module at a place.
    fn figure(&self, place: u64, name: &str, operation: Option<&str>) -> Option<Value> {
        let status = self.status();
        let modules = status["modules"].as_array().unwrap();
        let module = modules.iter().find(|module| module["place"] == place)?;
        let mut figures = module["figures"].as_array().unwrap().iter();
        let is_it = |figure: &&Value| {
            figure["name"] == name && operation.is_none_or(|of| figure["labels"]["operation"] == of)
        };
        figures.find(is_it).cloned()
    }

    fn count(&self, place: u64, name: &str) -> f64 {
        let figure = self.figure(place, name, None);
        figure.map_or(0.0, |figure| figure["counter"].as_f64().unwrap())
    }
}

/// How many values a histogram has.
fn values(figure: Option<Value>) -> u64 {
    let figure = figure.unwrap();
    figure["histogram"]["buckets"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum()
}

#[test]
fn what_modules_counted_is_shown() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    bench.with_modules(
        "s.yaml",
        &[
            "permissions: { rules: [ { paths: [ 'kept/**' ], deny: [ write ] } ],",
            "deny: { paths: [ '*.iso' ],",
            "consistency: { mode: close-to-open,",
            "compress: {",
        ],
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let at = |name: &str| bench.path("m").join(name);
    assert!(fs::create_dir(at("kept")).is_err());
    assert!(fs::write(at("a.iso"), b"1").is_err() && fs::write(at("b.iso"), b"1").is_err());
    fs::write(at("f"), vec![7; 1 << 20]).unwrap();
    assert!(fs::read(at("f")).unwrap() == vec![7; 1 << 20]);
    assert_eq!((bench.count(1, "refused"), bench.count(2, "refused")), (1.0, 2.0));
    assert!(bench.count(3, "syncs_asked") >= 1.0 && bench.count(3, "syncs_done") >= 1.0);
    let (data, stored) = (bench.count(4, "data_bytes"), bench.count(4, "stored_bytes"));
    assert!(data >= f64::from(1 << 20) && stored > 0.0 && stored < data / 100.0, "{data} {stored}");
    assert!(bench.count(4, "frames_checked") >= 16.0 && bench.count(4, "frames_damaged") == 0.0);
    let shown = bench.ok(&["status", "m"]);
    assert!(shown.contains("module 1 permissions: refused 1\n"), "{shown}");
    assert!(shown.contains("module 4 frames: frames checked "), "{shown}");
    bench.unmount_clean();
}

#[test]
fn two_around_a_module_show_what_it_does_and_come_and_go_in_use() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    bench.with_modules("s.yaml", &["noop: {"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(bench.path("m/f")).unwrap();
    bench.with_modules("n.yaml", &["metrics: {", "model: { device: nvme, depth: 1,", "metrics: {"]);
    let changed = bench.ok(&["stack", "modify", "m", "n.yaml"]);
    assert!(changed.contains("module metrics: added\nmodule model: added\n"), "{changed}");
    let data = pattern(1, 1 << 20);
    for chunk in 0..16 {
        file.write_all_at(&data[chunk << 16..][..1 << 16], (chunk << 16) as u64).unwrap();
    }
    file.sync_all().unwrap();
    for place in [1, 3] {
        let count = |name, operation| values(bench.figure(place, name, Some(operation)));
        assert_eq!((count("operation_seconds", "write"), count("transfer_bytes", "write")), (16, 16));
        assert_eq!(count("operation_seconds", "fsync"), 1);
        let sizes = bench.figure(place, "transfer_bytes", Some("write")).unwrap();
        assert_eq!(sizes["histogram"]["sum"].as_f64(), Some(f64::from(1 << 20)));
    }
    // On any machine, the module above the model took at least as long as the model.
    let took = |place| {
        let figure = bench.figure(place, "operation_seconds", Some("fsync")).unwrap();
        figure["histogram"]["sum"].as_f64().unwrap()
    };
    assert!(took(1) >= 300e-6 && took(1) >= took(3), "{} {}", took(1), took(3));
    assert!(bench.ok(&["status", "m"]).contains("module 1 metrics, write: operation 16 times, "));
    bench.with_modules("n.yaml", &["metrics: {"]);
    bench.ok(&["stack", "modify", "m", "n.yaml"]);
    let mut found = vec![0; 1 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data);
    drop(file);
    bench.unmount_clean();
}

fn provenance(file: &Path) -> String {
    let mut command = Command::new("getfattr");
    command.args(["--absolute-names", "--only-values", "-n", "braid.provenance"]).arg(file);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn who_made_and_wrote_a_file_is_kept_with_it() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    bench.with_modules("s.yaml", &["provenance: {"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    let file = bench.path("m/f");
    let by = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).arg(&file).status().unwrap();
        assert!(done.success());
    };
    by("cp", &["/etc/hostname"]);
    let told = provenance(&file);
    assert!(told.starts_with("created time=1") && told.contains("\nwritten time=1"), "{told}");
    assert_eq!(told.matches(" uid=0 gid=0 pid=").count(), 2, "{told}");
    assert_eq!(told.matches(" command=cp\n").count(), 2, "{told}");
    by("truncate", &["-s", "3"]);
    let told = provenance(&file);
    assert!(told.contains("command=cp\nwritten ") && told.ends_with("command=truncate\n"), "{told}");
    // It goes with the file, through renames and mounts, and no program sees where it is.
    fs::rename(&file, bench.path("m/g")).unwrap();
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(provenance(&bench.path("m/g")), told);
    let listed =
        Command::new("getfattr").args(["-m", "-", "--absolute-names"]).arg(bench.path("m/g")).output();
    assert!(!String::from_utf8(listed.unwrap().stdout).unwrap().contains("provenance"));
    let forged = Command::new("setfattr")
        .args(["-n", "trusted.braid-provenance", "-v", "me"])
        .arg(bench.path("m/g"))
        .status();
    assert!(!forged.unwrap().success());
    bench.unmount_clean();
}
