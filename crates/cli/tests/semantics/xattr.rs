//! Mounts that serve no extended attributes. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, RANGE, pattern, stack};
use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const MODES: [&str; 3] = ["writeback", "passthrough", "direct"];

/// `cap_net_raw` in the form of the kernel's second version, as `setcap` has it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Bench {
    fn mount_with_attributes(&self, cache: &str) {
        self.ok(&["mount", "s.yaml", "m", "--xattr", "--cache", cache]);
    }

    fn mount_without_attributes(&self, cache: &str) {
        self.ok(&["mount", "s.yaml", "m", "--no-xattr", "--cache", cache]);
    }

    fn attribute_of(&self, file: &str, name: &str) -> Result<Vec<u8>> {
        let mut value = vec![0; 256];
        let len = rustix::fs::getxattr(self.path(file), name, &mut value)?;
        value.truncate(len);
        Ok(value)
    }

    fn set(&self, file: &str, name: &str, value: &[u8]) -> Result<()> {
        rustix::fs::setxattr(self.path(file), name, value, XattrFlags::empty())
    }
}

#[test]
fn nothing_has_attributes_and_none_can_be_set() {
    let Some(bench) = Bench::new() else { return };
    for cache in MODES {
        bench.mount_with_attributes(cache);
        fs::write(bench.path("m/file"), "").unwrap();
        bench.set("m/file", "user.kept", b"value").unwrap();
        bench.ok(&["umount", "m"]);
        bench.mount_without_attributes(cache);
        // The kernel asks once, and answers by itself from then on.
        for _ in 0..2 {
            assert_eq!(bench.attribute_of("m/file", "user.kept"), Err(Errno::OPNOTSUPP), "{cache}");
            assert_eq!(bench.set("m/file", "user.new", b"value"), Err(Errno::OPNOTSUPP), "{cache}");
            let list = rustix::fs::listxattr(bench.path("m/file"), &mut [0_u8; 256]);
            assert_eq!(list.unwrap_or(0), 0, "{cache}");
            let removed = rustix::fs::removexattr(bench.path("m/file"), "user.kept");
            assert_eq!(removed, Err(Errno::OPNOTSUPP), "{cache}");
        }
        let data = pattern(1, 9 * RANGE);
        fs::write(bench.path("m/new"), &data).unwrap();
        assert!(fs::read(bench.path("m/new")).unwrap() == data);
        bench.ok(&["umount", "m"]);
        bench.mount_with_attributes(cache);
        assert_eq!(bench.attribute_of("m/file", "user.kept").unwrap(), b"value", "{cache}");
        assert!(fs::read(bench.path("m/new")).unwrap() == data);
        bench.unmount_clean();
    }
}

#[test]
fn the_kernel_asks_for_attributes_once() {
    let Some(bench) = Bench::new() else { return };
    for cache in MODES {
        fs::write(bench.path("log"), "").unwrap();
        bench.ok(&["mount", "s.yaml", "m", "--no-xattr", "--cache", cache, "--log-level", "debug"]);
        for name in ["m/one", "m/other"] {
            fs::write(bench.path(name), "x").unwrap();
            for _ in 0..5 {
                bench.attribute_of(name, "user.some").unwrap_err();
                bench.set(name, "user.some", b"value").unwrap_err();
            }
        }
        bench.unmount_clean();
        let log = fs::read_to_string(bench.path("log")).unwrap();
        for operation in ["getxattr", "setxattr"] {
            let asked = log.lines().filter(|line| line.contains(operation)).count();
            assert_eq!(asked, 1, "{cache}, {operation}: {log}");
        }
    }
}

/// The kernel does not see that there is one, and so does not take it away.
#[test]
fn a_file_that_is_written_to_loses_its_capabilities_all_the_same() {
    let Some(bench) = Bench::new() else { return };
    for cache in MODES {
        bench.mount_with_attributes(cache);
        for name in ["m/read", "m/plain", "m/spread"] {
            fs::write(bench.path(name), pattern(1, if name == "m/spread" { 9 * RANGE } else { 9 })).unwrap();
            bench.set(name, "security.capability", &CAPABILITY).unwrap();
        }
        bench.unmount_clean();
        bench.mount_without_attributes(cache);
        for name in ["m/plain", "m/spread"] {
            let file = File::options().write(true).open(bench.path(name)).unwrap();
            file.write_all_at(b"changed", 1).unwrap();
        }
        fs::read(bench.path("m/read")).unwrap();
        bench.unmount_clean();
        bench.mount_with_attributes(cache);
        for name in ["m/plain", "m/spread"] {
            let left = bench.attribute_of(name, "security.capability");
            assert_eq!(left, Err(Errno::NODATA), "{cache}: {name}");
        }
        assert_eq!(bench.attribute_of("m/read", "security.capability").unwrap(), CAPABILITY, "{cache}");
        bench.unmount_clean();
    }
}

#[test]
fn a_stack_file_can_say_it_and_a_flag_overrides_that() {
    let Some(bench) = Bench::new() else { return };
    bench.write_stack(&format!("{}mount: {{ xattr: off }}\n", stack(&bench)));
    for (flags, dump, answer) in
        [(&[][..], "xattr: false", Errno::OPNOTSUPP), (&["--xattr"][..], "xattr: true", Errno::NODATA)]
    {
        bench.ok(&[&["mount", "s.yaml", "m"], flags].concat());
        assert!(bench.ok(&["stack", "dump", "m"]).contains(dump));
        fs::write(bench.path("m/file"), "").unwrap();
        assert_eq!(bench.attribute_of("m/file", "user.absent"), Err(answer));
        bench.unmount_clean();
    }
}
