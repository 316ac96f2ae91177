//! Client and server over a real socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_contract::{Caller, TierId};
use braid_ipc::protocol::{
    AffectedFile, Amount, Drill, DrillTier, Ended, ErrorReply, Explanation, FsckProblem, FsckProgress,
    FsckRequest, FsckSummary, Hello, HomeReplaced, ImportSurvey, Job, JobChange, JobId, JobKind, JobState,
    KvAnswer, KvOperation, KvRequest, KvWhen, LearnedStreams, Modified, ModifyStack, ModuleUpgraded, Mover,
    NamedTier, PinRequest, Pinned, Reloaded, Replaced, Replacing, Reply, Request, Saved, StackDump, StartJob,
    Status, TierAdded, TierRemoved, TierSet, TraceBegun, TraceEnded, TraceLines, TraceRequest, Upgrading,
};
use braid_ipc::{Client, ClientError, Handler, Server, VolumeHandler};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

struct Fake;

impl Handler for Fake {
    fn hello(&self) -> Hello {
        Hello { version: "1.2.3".into(), pid: 42, mountpoint: "/mnt/x".into(), serving: true, upgrade: None }
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        Err(ErrorReply { errno: Some(5), message: "no status today".into() })
    }

    fn volume(&self) -> Result<&dyn VolumeHandler, ErrorReply> {
        Ok(self)
    }

    fn sync(&self) -> Result<(), ErrorReply> {
        Err(ErrorReply { errno: Some(5), message: "nothing is durable today".into() })
    }

    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        let KvOperation::Put { key, .. } = &request.operation else {
            return Err(ErrorReply { errno: Some(13), message: "not today".into() });
        };
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        let both = [&key[..], value].concat();
        Ok((KvAnswer { done: true, ..KvAnswer::default() }, both))
    }

    fn set_options(&self, options: &[String]) -> Result<(), ErrorReply> {
        Err(ErrorReply::new(format!("no option of {options:?}")))
    }

    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply> {
        Ok(Reloaded { file: "/s.yaml".into(), changes: vec![dry_run.to_string()] })
    }

    fn upgrade_module(&self, module: &str, file: Option<&str>) -> Result<ModuleUpgraded, ErrorReply> {
        let (from, to) = ("1".to_owned(), file.unwrap_or_default().to_owned());
        Ok(ModuleUpgraded { module: module.to_owned(), from, to, paused_ns: 7 })
    }

    fn upgrade(&self, program: &str) -> Result<Upgrading, ErrorReply> {
        Ok(Upgrading { pid: 43, version: program.to_owned() })
    }

    fn may_modify(&self, _: u32) -> bool {
        false
    }

    fn modify_stack(&self, _: &ModifyStack) -> Result<Modified, ErrorReply> {
        Err(ErrorReply::new("not here"))
    }

    fn dump_stack(&self) -> Result<StackDump, ErrorReply> {
        Ok(StackDump { text: "stack:\n".into() })
    }

    fn runtime(&self) -> Result<braid_contract::RuntimeStatus, ErrorReply> {
        Ok(braid_contract::RuntimeStatus::default())
    }

    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        let mut say = |reply| tell(reply).map_err(|error| ErrorReply::new(error.to_string()));
        say(Reply::TraceBegun(TraceBegun { id: 7, head: request.path.clone().unwrap_or_default() }))?;
        for ops in 0..1000 {
            say(Reply::TraceLines(TraceLines { lines: "line\n".into(), ops, ..TraceLines::default() }))?;
        }
        say(Reply::TraceEnded(TraceEnded { age_ns: 5, unmounted: false }))
    }

    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply> {
        Err(ErrorReply { errno: Some(2), message: format!("there is no recording {id}") })
    }
}

impl VolumeHandler for Fake {
    fn explain(&self, ino: u64) -> Result<Explanation, ErrorReply> {
        Ok(Explanation {
            layout: "plain".into(),
            object: Some("0".repeat(32)),
            owner: Some(4711),
            size: ino,
            range_size: 65536,
            volume_range_size: Some(65536),
            durable: true,
            volatile_tiers: vec![],
            rule: None,
            stream: None,
            policy: None,
            next: None,
            pin: None,
            runs: vec![],
        })
    }

    fn affected(&self, tell: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply> {
        for number in 0..3000 {
            let file = AffectedFile { path: format!("file{number}"), unknown: None, runs: vec![] };
            tell(file).map_err(|error| ErrorReply::new(error.to_string()))?;
        }
        Ok(())
    }

    fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply> {
        let tier = tier.unwrap_or("all").to_owned();
        Ok(Drill {
            tiers: vec![DrillTier {
                tier,
                faults: vec![],
                hanging: rules.map_or(0, |rules| rules.len() as u64),
            }],
        })
    }

    fn replace_tier(&self, tier: &str, dir: &str) -> Result<Replaced, ErrorReply> {
        Err(ErrorReply { errno: Some(16), message: format!("tier {tier} is online; {dir} is not needed") })
    }

    fn start_job(&self, request: &StartJob) -> Result<Job, ErrorReply> {
        Ok(Job { what: Some(request.what.clone()), bandwidth: request.bandwidth, ..job(1) })
    }

    fn jobs(&self) -> Vec<Job> {
        vec![job(1), job(2)]
    }

    fn job(&self, id: JobId, change: Option<JobChange>) -> Result<Job, ErrorReply> {
        Ok(Job { id, message: change.map(|change| format!("{change:?}")), ..job(0) })
    }

    fn undo_evacuation(&self, tier: &str) -> Result<(), ErrorReply> {
        Err(ErrorReply { errno: Some(22), message: format!("tier {tier} was not emptied") })
    }

    fn pin(&self, request: &PinRequest) -> Result<Pinned, ErrorReply> {
        Ok(Pinned { files: 1, changed: u64::from(request.pin) })
    }

    fn add_tier(
        &self,
        tier: &str,
        dir: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<TierAdded, ErrorReply> {
        let tier = NamedTier { id: TierId(settings.len() as u8), name: tier.to_owned() };
        Ok(TierAdded { tier, location: dir.to_owned(), saved: Saved::default() })
    }

    fn set_tier(&self, tier: &str, _: &BTreeMap<String, String>) -> Result<TierSet, ErrorReply> {
        Ok(TierSet { tier: tier.to_owned(), saved: Saved::default() })
    }

    fn remove_tier(&self, tier: &str, evacuate: bool) -> Result<TierRemoved, ErrorReply> {
        let not_cleared = Some(format!("evacuate: {evacuate}"));
        let location = String::new();
        Ok(TierRemoved { tier: tier.to_owned(), location, not_cleared, saved: Saved::default() })
    }

    fn survey_import(&self, tier: &str) -> Result<ImportSurvey, ErrorReply> {
        Ok(ImportSurvey { tier: tier.to_owned(), files: 3, ..ImportSurvey::default() })
    }

    fn learned_streams(&self) -> LearnedStreams {
        LearnedStreams::default()
    }

    fn replace_tier_by(
        &self,
        _: &str,
        by: &str,
        dir: &str,
        settings: &BTreeMap<String, String>,
        bandwidth: Option<u64>,
    ) -> Result<Replacing, ErrorReply> {
        Ok(Replacing { added: self.add_tier(by, dir, settings)?, job: Job { bandwidth, ..job(2) } })
    }

    fn replace_home(
        &self,
        dir: &str,
        _: Option<u64>,
        _: &mut dyn FnMut(Job) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply> {
        Err(ErrorReply::new(format!("{dir} is not empty")))
    }

    fn fsck(
        &self,
        request: &FsckRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply> {
        let mut say = |reply| tell(reply).map_err(|error| ErrorReply::new(error.to_string()));
        for done in 0..1000 {
            say(Reply::FsckProgress(FsckProgress { phase: "files".into(), done, total: None }))?;
        }
        say(Reply::FsckProblem(problem()))?;
        let files = request.paths.len() as u64;
        Ok(FsckSummary { files, damage: 1, left: 1, ..FsckSummary::default() })
    }
}

fn job(id: u64) -> Job {
    Job {
        id: id.into(),
        what: Some(JobKind::Rebalance {}),
        text: "rebalance".into(),
        state: JobState::Running,
        done: Amount { bytes: 1, ranges: 1, files: 0 },
        total: None,
        skipped: [("pinned".to_owned(), 3)].into(),
        errors: 0,
        waiting_for: 0,
        phase: None,
        bandwidth: None,
        tier_bandwidth: None,
        guarded: true,
        slowed: BTreeMap::new(),
        rate: 0.5,
        eta_seconds: None,
        created_ns: 7,
        started_ns: Some(8),
        ended_ns: None,
        message: None,
        stack_file: None,
    }
}

/// A possible finding of a check.
fn problem() -> FsckProblem {
    FsckProblem {
        code: "object-missing".into(),
        severity: "damage".into(),
        path: Some("dir/file".into()),
        id: None,
        tier: Some("slow".into()),
        offset: Some(65536),
        len: Some(1),
        what: "its object is missing".into(),
        repair: "nothing is done".into(),
        repaired: false,
    }
}

struct Bench {
    server: Server,
    path: PathBuf,
    _dir: TempDir,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let server = Server::start(&path, true, Arc::new(Fake)).unwrap();
    Bench { server, path, _dir: dir }
}

impl Bench {
    fn client(&self) -> Client {
        Client::connect(&self.path, rustix::process::geteuid().as_raw()).unwrap()
    }

    fn raw(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(&self.path).unwrap())
    }
}

fn say(stream: &mut BufReader<UnixStream>, line: &str) -> String {
    stream.get_mut().write_all(line.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_line(&mut reply).unwrap();
    reply
}

const CLEAN: Ended = Ended { error: None };

#[test]
fn every_verb_is_answered_on_one_connection() {
    let bench = bench();
    let mut client = bench.client();
    assert_eq!(client.request(&Request::Hello).unwrap(), Reply::Hello(Fake.hello()));
    let Reply::Explanation(explanation) = client.request(&Request::Explain { ino: u64::MAX }).unwrap() else {
        panic!("not an explanation")
    };
    assert_eq!(explanation.size, u64::MAX);
    let Err(ClientError::Refused(error)) = client.request(&Request::Status) else { panic!("not refused") };
    assert_eq!(error, ErrorReply { errno: Some(5), message: "no status today".into() });
    assert_eq!(client.peer_pid(), Some(std::process::id() as i32));
}

#[test]
fn a_process_that_takes_the_socket_and_gives_up_leaves_it() {
    let Bench { server, path, _dir } = bench();
    let (at, listener) = server.give().unwrap();
    let again = || Server::resume(&at, listener.try_clone().unwrap(), Arc::new(Fake)).unwrap();
    drop(again());
    let server = again();
    let mut client = Client::connect(&path, rustix::process::geteuid().as_raw()).unwrap();
    assert_eq!(client.request(&Request::Hello).unwrap(), Reply::Hello(Fake.hello()));
    server.finish(CLEAN);
    assert!(!path.exists());
}

#[test]
fn the_wire_is_one_json_object_a_line() {
    let bench = bench();
    let mut stream = bench.raw();
    let hello = "{\"protocol\":2,\"hello\":{\"version\":\"1.2.3\",\"pid\":42,\"mountpoint\":\"/mnt/x\",\"serving\":true}}\n";
    assert_eq!(say(&mut stream, "{\"verb\":\"hello\"}\n"), hello);
    assert_eq!(say(&mut stream, "{\"protocol\":2,\"verb\":\"hello\",\"new\":true}\n"), hello);
}

#[test]
fn files_come_one_by_one_and_then_the_end() {
    let bench = bench();
    let mut client = bench.client();
    let mut paths = Vec::new();
    client
        .request_all(&Request::Affected, &mut |reply| match reply {
            Reply::Affected(file) => {
                paths.push(file.path);
                true
            }
            _ => false,
        })
        .unwrap();
    assert_eq!((paths.len(), paths[2999].as_str()), (3000, "file2999"));
    client.request(&Request::Hello).unwrap();
}

#[test]
fn a_drill_and_a_replacement_are_asked_for_in_one_line() {
    let bench = bench();
    let mut stream = bench.raw();
    let said = say(&mut stream, "{\"verb\":\"drill\",\"tier\":\"slow\",\"rules\":[\"read:EIO\"]}\n");
    assert_eq!(
        said,
        "{\"protocol\":2,\"drill\":{\"tiers\":[{\"tier\":\"slow\",\"faults\":[],\"hanging\":1}]}}\n"
    );
    let said = say(&mut stream, "{\"verb\":\"replace-home\",\"dir\":\"/x\"}\n");
    assert_eq!(said, "{\"protocol\":2,\"error\":{\"message\":\"/x is not empty\"}}\n");
    let said = say(&mut stream, "{\"verb\":\"replace-tier\",\"tier\":\"slow\",\"dir\":\"/x\"}\n");
    let expected =
        "{\"protocol\":2,\"error\":{\"errno\":16,\"message\":\"tier slow is online; /x is not needed\"}}\n";
    assert_eq!(said, expected);
}

#[test]
fn what_changes_a_volume_or_tells_names_is_for_its_owner() {
    let drill = Request::Drill { tier: None, rules: None };
    let replace = Request::ReplaceTier { tier: "a".into(), dir: "/b".into() };
    assert!([Request::Affected, drill, replace].iter().all(Request::is_for_owner));
    assert!(
        ![Request::Hello, Request::Status, Request::Explain { ino: 1 }].iter().any(Request::is_for_owner)
    );

    // Only root can act as another user.
    if !rustix::process::geteuid().is_root() {
        braid_testkit::skipped("root");
        return;
    }
    let bench = bench();
    for dir in [bench.path.parent().unwrap(), &bench.path] {
        std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&bench.path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  s.sendall(b'{\"verb\":\"drill\"}\\n{\"verb\":\"hello\"}\\n'); f=s.makefile(); print(f.readline()+f.readline())";
    use std::os::unix::process::CommandExt;
    let output = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&bench.path)
        .uid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("\"errno\":1,\"message\":\"only root and the user who mounted may ask"), "{said}");
    assert!(said.contains("\"hello\""), "{said}");
}

#[test]
fn malformed_requests_get_an_error_and_the_daemon_lives() {
    let bench = bench();
    let mut stream = bench.raw();
    for line in [
        "\n",
        "nonsense\n",
        "{}\n",
        "{\"verb\":\"format\"}\n",
        "{\"verb\":\"explain\"}\n",
        "[1]\n",
        "\u{0}\n",
    ] {
        let reply = say(&mut stream, line);
        assert!(
            reply.starts_with("{\"protocol\":2,\"error\":{\"message\":\"the request is not"),
            "{line:?}: {reply}"
        );
    }
    let reply = say(&mut stream, "{\"protocol\":1,\"verb\":\"hello\"}\n");
    assert_eq!(
        reply,
        "{\"protocol\":2,\"error\":{\"message\":\"the request is of protocol version 1; this daemon speaks 2\"}}\n"
    );

    let mut stream = bench.raw();
    // It hangs up before the end of this.
    let _ = stream.get_mut().write_all(&[b'x'; (1 << 20) + 900]);
    let mut reply = String::new();
    stream.read_line(&mut reply).unwrap();
    assert!(reply.contains("at most 1048576 bytes"), "{reply}");
    bench.client().request(&Request::Hello).unwrap();
}

#[test]
fn a_daemon_of_another_version_is_named_whatever_it_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut client = Client::connect(&path, rustix::process::geteuid().as_raw()).unwrap();
    let (mut daemon, _) = listener.accept().unwrap();
    daemon.write_all(b"{\"protocol\":1,\"home-progress\":{\"phase\":\"copying\"}}\n").unwrap();
    let error = client.receive().unwrap_err().to_string();
    assert!(error.contains("it speaks version 1 of the control protocol, this program 2"), "{error}");
}

#[test]
fn silent_clients_do_not_block_others_and_are_limited() {
    let bench = bench();
    let _silent: Vec<_> = (0..15).map(|_| bench.raw()).collect();
    let mut last = bench.client();
    last.request(&Request::Hello).unwrap();

    let mut reply = String::new();
    bench.raw().read_line(&mut reply).unwrap();
    assert!(reply.contains("too many control connections"), "{reply}");
    last.request(&Request::Hello).unwrap();
}

#[test]
fn waiting_ends_with_the_daemon() {
    let bench = bench();
    let (mut waiting, mut idle) = (bench.client(), bench.raw());
    waiting.request(&Request::Hello).unwrap();
    waiting.send(&Request::Wait).unwrap();
    say(&mut idle, "{\"verb\":\"hello\"}\n");

    let ended = Ended { error: Some("tier 'slow': Input/output error".into()) };
    let Bench { server, path, _dir } = bench;
    server.finish(ended.clone());
    assert!(!path.exists());
    match waiting.receive() {
        Ok(Reply::Ended(told)) => assert_eq!(told, ended),
        // The daemon may end before it has read the request.
        Err(ClientError::Io(_)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(idle.read_to_string(&mut String::new()).unwrap(), 0, "the idle client was hung up on");
}

#[test]
fn a_socket_left_by_a_dead_daemon_is_replaced_and_a_successors_is_left_alone() {
    let bench = bench();
    let second = Server::start(&bench.path, true, Arc::new(Fake)).unwrap();
    bench.server.finish(CLEAN);
    assert!(bench.path.exists(), "the first server removed the second one's socket");
    Client::connect(&bench.path, rustix::process::geteuid().as_raw())
        .unwrap()
        .request(&Request::Hello)
        .unwrap();
    second.finish(CLEAN);
    assert!(!bench.path.exists());
}

#[test]
fn somebody_elses_socket_is_not_spoken_to() {
    let bench = bench();
    // Root may answer for every user, so this tests something only for a user.
    if !rustix::process::geteuid().is_root() {
        let error = Client::connect(&bench.path, 1).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
    std::fs::set_permissions(
        bench.path.parent().unwrap(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let error = Client::connect(&bench.path, rustix::process::geteuid().as_raw()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_check_tells_its_progress_its_problems_and_what_they_come_to() {
    let bench = bench();
    let request = FsckRequest { repair: true, verbose: false, paths: vec!["a".into(), "b".into()] };
    let (mut progress, mut problems, mut summaries) = (0, Vec::new(), Vec::new());
    let asked = bench.client().request_all(&Request::Fsck(request), &mut |reply| {
        match reply {
            Reply::FsckProgress(_) => progress += 1,
            Reply::FsckProblem(problem) => problems.push(problem),
            Reply::FsckSummary(summary) => summaries.push(summary),
            _ => return false,
        }
        true
    });
    asked.unwrap();
    assert_eq!((progress, problems), (1000, vec![problem()]));
    let expected = FsckSummary { files: 2, damage: 1, left: 1, ..FsckSummary::default() };
    assert_eq!(summaries, [expected]);
}

#[test]
fn a_check_may_be_asked_for_many_long_paths() {
    let bench = bench();
    let paths: Vec<String> = (0..1000).map(|number| format!("{number}{}", "/directory".repeat(50))).collect();
    let (asked, mut files) = (paths.len() as u64, 0);
    let request = Request::Fsck(FsckRequest { paths, ..FsckRequest::default() });
    let told = bench.client().request_all(&request, &mut |reply| {
        if let Reply::FsckSummary(summary) = reply {
            files = summary.files;
        }
        true
    });
    told.unwrap();
    assert_eq!(files, asked);
}

#[test]
fn an_answer_to_something_else_is_an_error() {
    let bench = bench();
    let asked = bench.client().request_all(&Request::Affected, &mut |_| false);
    assert!(matches!(asked, Err(ClientError::Protocol(_))), "{asked:?}");
    let asked = bench.client().request_all(&Request::Hello, &mut |reply| matches!(reply, Reply::Affected(_)));
    assert!(matches!(asked, Err(ClientError::Protocol(_))), "{asked:?}");
}

#[test]
fn jobs_are_started_changed_and_told() {
    let bench = bench();
    let mut client = bench.client();
    let what = JobKind::Move { path: "d/a".into(), to: "slow".into() };
    let start = Request::StartJob(StartJob { what: what.clone(), bandwidth: Some(5) });
    let Reply::Job(started) = client.request(&start).unwrap() else { panic!("no job") };
    assert_eq!((started.what, started.bandwidth), (Some(what), Some(5)));
    assert_eq!(client.request(&Request::Jobs).unwrap(), Reply::Jobs(vec![job(1), job(2)]));
    assert_eq!(client.request(&Request::Job { id: 9.into() }).unwrap(), Reply::Job(job(9)));
    for change in [JobChange::Pause, JobChange::Bandwidth(None), JobChange::Bandwidth(Some(7))] {
        let Reply::Job(changed) = client.request(&Request::ChangeJob { id: 3.into(), change }).unwrap()
        else {
            panic!("no job")
        };
        assert_eq!(changed.message, Some(format!("{change:?}")));
    }
    let demote = JobId::Mover(Mover::Demote);
    let Reply::Job(told) = client.request(&Request::Job { id: demote }).unwrap() else { panic!("no job") };
    assert_eq!(told.id, demote);
    let undo = client.request(&Request::UndoEvacuation { tier: "slow".into() });
    assert!(matches!(undo, Err(ClientError::Refused(error)) if error.message.contains("slow was not")));
    let pin = PinRequest { path: "a".into(), pin: true, tier: None, recursive: false };
    assert_eq!(client.request(&Request::Pin(pin)).unwrap(), Reply::Pinned(Pinned { files: 1, changed: 1 }));
    let said = say(&mut bench.raw(), "{\"verb\":\"start-job\",\"what\":{\"kind\":\"fly\"}}\n");
    assert!(said.contains("the request is not understood"), "{said}");
}

#[test]
fn jobs_are_the_owners_business() {
    for request in [
        Request::Jobs,
        Request::Job { id: 1.into() },
        Request::ChangeJob { id: JobId::Mover(Mover::Demote), change: JobChange::Cancel },
        Request::StartJob(StartJob { what: JobKind::Rebalance {}, bandwidth: None }),
        Request::UndoEvacuation { tier: "slow".into() },
        Request::Pin(PinRequest { path: String::new(), pin: false, tier: None, recursive: true }),
    ] {
        assert!(request.is_for_owner(), "{request:?}");
    }
}

#[test]
fn a_socket_goes_from_one_server_to_the_next() {
    let Bench { server, path, _dir } = bench();
    let client = || Client::connect(&path, rustix::process::geteuid().as_raw()).unwrap();
    let mut before = client();
    let module = Request::UpgradeModule { module: "m".into(), file: Some("/m.so".into()) };
    assert!(
        matches!(before.request(&module), Ok(Reply::ModuleUpgraded(now)) if now.module == "m" && now.to == "/m.so")
    );
    let upgrade = Request::Upgrade { program: "/next".into() };
    assert!(matches!(before.request(&upgrade), Ok(Reply::Upgrading(next)) if next.version == "/next"));
    let (same, listener) = server.give().unwrap();
    assert_eq!(same, path);
    assert!(matches!(before.receive(), Err(ClientError::Io(_))), "it hung up");
    // A client that connects meanwhile waits.
    let mut meanwhile = client();
    meanwhile.send(&Request::Hello).unwrap();
    let next = Server::resume(&path, listener, Arc::new(Fake)).unwrap();
    assert!(matches!(meanwhile.receive(), Ok(Reply::Hello(hello)) if hello.pid == 42));
    assert!(client().request(&Request::Hello).is_ok());
    next.finish(CLEAN);
    assert!(!path.exists());
}

#[test]
fn tiers_are_added_set_and_removed() {
    let bench = bench();
    let mut client = bench.client();
    let settings = BTreeMap::from([("weight".to_owned(), "4".to_owned())]);
    let add = Request::AddTier { tier: "new".into(), dir: "/x".into(), settings: settings.clone() };
    let Ok(Reply::TierAdded(added)) = client.request(&add) else { panic!("not added") };
    assert_eq!((added.tier.id, added.location.as_str()), (TierId(1), "/x"));
    let set = Request::SetTier { tier: "new".into(), settings };
    assert!(matches!(client.request(&set), Ok(Reply::TierSet(set)) if set.tier == "new"));
    let reload = Request::Reload { dry_run: true };
    assert!(matches!(client.request(&reload), Ok(Reply::Reloaded(done)) if done.changes == ["true"]));
    let remove = Request::RemoveTier { tier: "new".into(), evacuate: true };
    let Ok(Reply::TierRemoved(removed)) = client.request(&remove) else { panic!("not removed") };
    assert_eq!(removed.not_cleared.as_deref(), Some("evacuate: true"));
    assert!(
        matches!(client.request(&Request::DumpStack), Ok(Reply::StackDump(dump)) if dump.text == "stack:\n")
    );
    let (settings, bandwidth) = (BTreeMap::new(), Some(7));
    let replace = Request::ReplaceTierBy {
        tier: "old".into(),
        by: "new".into(),
        dir: "/x".into(),
        settings,
        bandwidth,
    };
    let Ok(Reply::Replacing(replacing)) = client.request(&replace) else { panic!("not replaced") };
    assert_eq!((replacing.added.tier.name.as_str(), replacing.job.bandwidth), ("new", bandwidth));
    let survey = Request::SurveyImport { tier: "slow".into() };
    assert!(matches!(client.request(&survey), Ok(Reply::ImportSurvey(found)) if found.tier == "slow"));
    assert!(
        [add, set, remove, replace, survey, Request::DumpStack, Request::LearnedStreams, Request::Runtime]
            .iter()
            .all(Request::is_for_owner)
    );
}

#[test]
fn a_recording_is_told_to_its_end_and_is_for_the_owner() {
    let bench = bench();
    let request = Request::RecordTrace(TraceRequest { path: Some("*.wal".into()) });
    let mut told = Vec::new();
    let asked = bench.client().request_all(&request, &mut |reply| {
        told.push(reply);
        true
    });
    asked.unwrap();
    assert_eq!(told.len(), 1002);
    assert_eq!(told[0], Reply::TraceBegun(TraceBegun { id: 7, head: "*.wal".into() }));
    assert_eq!(told[1001], Reply::TraceEnded(TraceEnded { age_ns: 5, unmounted: false }));
    let stop = Request::StopTrace { id: 9 };
    let Err(ClientError::Refused(error)) = bench.client().request(&stop) else { panic!("not refused") };
    assert_eq!((error.errno, error.message.as_str()), (Some(2), "there is no recording 9"));
    assert!([request, stop].iter().all(Request::is_for_owner));
}

#[test]
fn values_follow_the_line_and_the_next_request_is_understood() {
    let bench = bench();
    let mut client = bench.client();
    let request = |operation| KvRequest { directory: "d".into(), operation };
    let put = |bytes| KvOperation::Put { key: vec![0, 255], bytes, when: KvWhen::Absent, mode: 0o600 };
    for value in [vec![b'\n'; 3], Vec::new(), vec![7; 3_000_000]] {
        let (answer, both) = client.kv(&request(put(value.len() as u64)), &value).unwrap();
        assert!(answer.done && answer.bytes == both.len() as u64);
        assert_eq!(both, [&[0, 255], &value[..]].concat());
        let refused = client.kv(&request(KvOperation::Get { key: vec![1] }), b"").unwrap_err();
        assert_eq!(refused.to_string(), "not today");
    }
    let refused = client.kv(&request(put(u64::MAX)), b"").unwrap_err();
    assert!(refused.to_string().contains("16777216 are the most"), "{refused}");
}
