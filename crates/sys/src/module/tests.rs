//! The interface as C and Rust see it.

use super::raw::{
    Answers, Attributes, Capabilities, Numbers, PASSTHROUGH, RawCrash, RawModule, c_header, layout,
};
use super::{
    Answer, Child, Entries, Failure, Listed, Message, ModuleLibrary, Plugin, Target, describe, module_image,
};
use std::ffi::CStr;
use std::fs;
use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The effect of an operation of the tests, by its number.
const PLAIN: u32 = 0;
const LIST: u32 = 1;
const PANIC: u32 = 2;
const PASS: u32 = 3;
const FAIL: u32 = 4;
const SHORT: u32 = 5;

/// The file system below.
struct Bottom;

impl Target for Bottom {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let mut answer = Answer::default();
        match message.numbers.operation {
            LIST => {
                let entries = message.entries.unwrap();
                let name = |number: u64| Listed {
                    ino: number,
                    next_offset: -1,
                    name: b"name",
                    kind: 7,
                    attributes: number
                        .is_multiple_of(2)
                        .then(|| Attributes { ino: number, ..Attributes::default() }),
                    damaged: false,
                };
                answer.answers.count = (1..9).take_while(|number| entries.add(&name(*number))).count() as u64;
            }
            PANIC => panic!("as the test wants"),
            PASS => {
                answer.answers.io_mode = PASSTHROUGH;
                answer.descriptor = Some(fs::File::open("/dev/null").unwrap().into());
            }
            FAIL => return Err(Failure { errno: 28, why: "no room".into() }),
            // Counts bytes that it has not read.
            SHORT => answer.answers.count = message.buffer.len() as u64,
            _ => {
                message.buffer.fill(9);
                answer.bytes = [message.name, message.new_name, message.data].concat();
                answer.answers.count = message.groups.iter().map(|group| u64::from(*group)).sum();
            }
        }
        Ok(answer)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { flags: 5, ..Capabilities::default() }
    }
}

/// A module that counts, and passes all on.
struct Counter {
    child: Child,
    count: AtomicU64,
}

impl Target for Counter {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.child.call(message)
    }

    fn capabilities(&self) -> Capabilities {
        let below = self.child.capabilities();
        Capabilities { flags: below.flags | 8, ..below }
    }
}

impl Plugin for Counter {
    const NAME: &'static CStr = c"counter";
    const VERSION: &'static CStr = c"1";
    const EXPORTS_IN_USE: bool = true;

    fn check(settings: &[u8]) -> Result<(), Failure> {
        if settings == b"{}" { Ok(()) } else { Err(Failure { errno: 22, why: "wrong".into() }) }
    }

    fn create(settings: &[u8], child: Child) -> Result<Self, Failure> {
        Self::check(settings)?;
        Ok(Self { child, count: AtomicU64::new(0) })
    }

    fn end(&self) {}

    fn export(&self) -> (u32, Vec<u8>) {
        (1, self.count.load(Ordering::Relaxed).to_le_bytes().to_vec())
    }

    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        assert_eq!(version, 1);
        self.count.store(u64::from_le_bytes(state.try_into().unwrap()), Ordering::Relaxed);
        Ok(())
    }

    fn repair(&self, crash: &RawCrash) -> Result<(), Failure> {
        self.count.fetch_add(1000 * crash.count, Ordering::Relaxed);
        match crash.has_state {
            0 => Err(Failure { errno: 5, why: "without what was counted".into() }),
            _ => Ok(()),
        }
    }
}

struct Three(Vec<(u64, Option<u64>)>);

impl Entries for Three {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        assert_eq!((entry.name, entry.kind, entry.next_offset), (&b"name"[..], 7, -1));
        self.0.push((entry.ino, entry.attributes.map(|attributes| attributes.ino)));
        self.0.len() < 3
    }
}

fn numbered<'a>(operation: u32) -> Message<'a> {
    Message::new(Numbers { operation, ..Numbers::default() })
}

#[test]
fn operations_come_through_the_interface_and_back() {
    let library = Arc::new(ModuleLibrary::linked(describe::<Counter>()));
    assert_eq!(library.check("[]"), Err("wrong".into()));
    assert!(library.create("[]", Box::new(Bottom)).is_err_and(|failure| failure.why == "wrong"));
    let module = library.create("{}", Box::new(Bottom)).unwrap();
    assert_eq!(module.capabilities().flags, 13);

    let mut buffer = [0; 5];
    let plain = Message {
        name: b"a",
        new_name: b"b",
        data: b"cd",
        groups: &[3, 4],
        buffer: &mut buffer[..],
        ..numbered(PLAIN)
    };
    let answer = module.call(plain).unwrap();
    assert_eq!(
        (answer.bytes, answer.answers.count, answer.descriptor.is_none()),
        (b"abcd".to_vec(), 7, true)
    );
    assert_eq!(buffer, [9; 5]);
    let answer = module.call(Message { buffer: &mut buffer[..], ..numbered(SHORT) }).unwrap();
    assert_eq!((answer.answers.count, buffer), (5, [0; 5]), "nothing of before is read");

    let mut three = Three(Vec::new());
    let answer = module.call(Message { entries: Some(&mut three), ..numbered(LIST) }).unwrap();
    assert_eq!(answer.answers, Answers { count: 2, descriptor: -1, ..Answers::default() });
    assert_eq!(three.0, [(1, None), (2, Some(2)), (3, None)]);

    let failed = module.call(numbered(FAIL)).unwrap_err();
    assert_eq!(failed, Failure { errno: 28, why: "no room".into() });
    assert_eq!(module.call(numbered(PANIC)).unwrap_err().errno, libc::EIO);
    assert!(module.call(numbered(PASS)).unwrap().descriptor.is_some());

    let next = library.create("{}", Box::new(Bottom)).unwrap();
    let (version, state) = module.export().unwrap();
    next.import(version, &state).unwrap();
    drop(module);
    assert_eq!(next.export().unwrap(), (1, 6_u64.to_le_bytes().to_vec()));
    assert!(next.import(2, &state).is_err(), "a panic is an error");
    next.end();
}

#[test]
fn a_module_repairs_and_one_made_before_that_could_be_said_does_not() {
    let library = Arc::new(ModuleLibrary::linked(describe::<Counter>()));
    assert!(library.exports_in_use());
    let module = library.create("{}", Box::new(Bottom)).unwrap();
    module.repair(&RawCrash { count: 2, has_state: 1, ..RawCrash::default() }).unwrap();
    let failed = module.repair(&RawCrash { count: 1, ..RawCrash::default() }).unwrap_err();
    assert_eq!(failed, Failure { errno: 5, why: "without what was counted".into() });
    assert_eq!(module.export().unwrap(), (1, 3000_u64.to_le_bytes().to_vec()));

    // SAFETY: the description lives as long as the program.
    let whole = unsafe { *describe::<Counter>() };
    // Memory behind it is another's.
    let before = RawModule { flags: 0, ..whole };
    let library = Arc::new(ModuleLibrary::linked(&raw const before));
    assert!(!library.exports_in_use());
    let module = library.create("{}", Box::new(Bottom)).unwrap();
    module.repair(&RawCrash { count: 7, ..RawCrash::default() }).unwrap();
    assert_eq!(module.export().unwrap(), (1, 0_u64.to_le_bytes().to_vec()));
}

#[test]
fn an_image_is_as_long_as_it_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("library");
    fs::write(&path, [7; 10]).unwrap();
    let image = |longest| module_image(&fs::File::open(&path).unwrap(), longest);
    let mut read = Vec::new();
    image(10).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, [7; 10]);
    assert_eq!(image(9).unwrap_err().to_string(), "it is longer than 9 bytes");
}

#[test]
fn c_and_rust_agree_on_every_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("braid_module.h"), c_header(&["lookup", "forget"])).unwrap();
    let mut source = String::from("#include \"braid_module.h\"\n#include <stdio.h>\nint main(void) {\n");
    for (what, _) in layout() {
        source.push_str(&format!("  printf(\"%zu\\n\", {what});\n"));
    }
    source.push_str("  return 0;\n}\n");
    fs::write(path("layout.c"), source).unwrap();
    for compiler in ["gcc", "g++"] {
        let built = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([path("layout"), path("layout.c")])
            .status();
        assert!(built.unwrap().success());
        let printed = Command::new(path("layout")).output().unwrap().stdout;
        let printed: Vec<usize> =
            String::from_utf8(printed).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        let wanted = layout();
        assert_eq!(printed.len(), wanted.len());
        for ((what, ours), theirs) in wanted.iter().zip(printed) {
            assert_eq!(*ours, theirs, "{what}");
        }
    }
}
