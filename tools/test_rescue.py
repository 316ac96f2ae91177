#!/usr/bin/env python3
"""Tests of rescue.py on volumes made by hand from what docs/format.md says.

The maker below shares no code with rescue.py but the checksum, whose check
value is tested by itself. Run: python3 tools/test_rescue.py
"""

import contextlib
import io
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rescue  # noqa: E402

RANGE = 65536
VOLUME = bytes(range(16))
NAMES = ["fast", "slow", "far"]


def with_crc(block, offset, end=None):
    """The block with the CRC of its first `end` bytes at an offset."""
    end = len(block) if end is None else end
    block = bytearray(block)
    block[offset : offset + 4] = bytes(4)
    struct.pack_into("<I", block, offset, rescue.crc32c(bytes(block[:end])))
    return bytes(block)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def size_word(id_, offset, size):
    if size == 0:
        return bytes(8)
    crc = rescue.crc32c(id_ + struct.pack("<QQ", offset, size)) & 0xFFFF
    return struct.pack("<Q", size | crc << 48)


def entry(id_, number, tier, why=2, version=0):
    bits = tier | why << 8 | version << 16
    return struct.pack("<II", bits, rescue.crc32c(id_ + struct.pack("<QI", number, bits)))


def owners_word(id_, size, mtime, atime):
    owners = bytes([size, mtime, atime, 0])
    return owners + struct.pack("<I", rescue.crc32c(id_ + struct.pack("<Q", 272) + owners))


class Volume:
    """A volume of three tiers below a directory; number 0 is home."""

    def __init__(self, root):
        self.root = root
        for number, name in enumerate(NAMES):
            os.makedirs(os.path.join(root, name, ".braid"))
            label = struct.pack("<8sHHI16sBBBBI48s", b"BRAIDTIR", 1, 0, 0, VOLUME, number, number == 0, 1,
                                len(name), RANGE, name.encode())
            write(os.path.join(root, name, ".braid/label"), with_crc(label.ljust(512, b"\0"), 12))
        table = struct.pack("<8sHHI16sIB27x", b"BRAIDVOL", 1, 0, 0, VOLUME, RANGE, 0)
        for name in NAMES:
            table += struct.pack("<BB62s", 1, len(name), name.encode())
        write(self.home(".braid/volume"), with_crc(table.ljust(4096, b"\0"), 12))

    def home(self, path):
        return os.path.join(self.root, "fast", path)

    def index(self, id_):
        return self.home(".braid/index/%s/%s" % (id_.hex()[:2], id_.hex()))

    def object(self, tier, id_):
        return os.path.join(self.root, NAMES[tier], ".braid/data/%s/%s" % (id_.hex()[:2], id_.hex()))

    def spread(self, path, id_, size, owners, seed=1):
        """Makes a spread file whose range r lies on tier owners[r] (None: a
        hole), with rubbish wherever a tier does not own the range. Returns what
        the file holds."""
        expected = bytearray(size)
        pieces = [bytearray(b"\xee" * size) for _ in NAMES]
        entries = b""
        for number, tier in enumerate(owners):
            start, end = number * RANGE, min(size, (number + 1) * RANGE)
            if tier is None:
                entries += bytes(8)
                continue
            data = bytes([seed + number]) * max(0, end - start)
            expected[start:end] = data
            pieces[tier][start:end] = data
            entries += entry(id_, number, tier, version=number)
        write(self.home(path), bytes(pieces[0]))
        for tier in set(owners) - {None, 0}:
            write(self.object(tier, id_), bytes(pieces[tier]))
        info = os.stat(self.home(path))
        born = rescue.birth_time(os.fsencode(self.home(path))) or 0
        attribute = struct.pack("<BBHI16sQq", 1, 1, 0, 0, id_, info.st_ino, born)
        os.setxattr(self.home(path), "user.braid.id", with_crc(attribute, 4))
        header = struct.pack("<8sHHI16s16sIiQqQB", b"BRAIDIDX", 1, 0, 0, VOLUME, id_, RANGE, 0, info.st_ino,
                             born, 0, 0)
        header = with_crc(header.ljust(256, b"\0"), 12)
        header += size_word(id_, 256, size) + size_word(id_, 264, size) + owners_word(id_, 0, owners[-1] or 0, 0)
        write(self.index(id_), header.ljust(4096, b"\0") + entries)
        return bytes(expected)


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path, offset):
    with open(path, "rb") as file:
        file.seek(offset)
        byte = file.read(1)[0]
    patch(path, offset, bytes([byte ^ 0x40]))


ID = bytes.fromhex("ab" * 15 + "01")
OTHER = bytes.fromhex("cd" * 15 + "02")


class RescueTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="rescue-")
        self.addCleanup(shutil.rmtree, self.root)
        self.volume = Volume(self.root)
        self.out = os.path.join(self.root, "out")

    def run_rescue(self, *options, tiers=NAMES, out=True, root=None):
        """Runs it; (exit status, what it printed, its messages)."""
        arguments = ["--home", "fast", *options]
        for name in tiers:
            arguments += ["--tier", "%s=%s" % (name, os.path.join(root or self.root, name))]
        if out:
            arguments.append(self.out)
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            options = rescue.parse(arguments)
            if out:
                os.makedirs(self.out)
            run = rescue.Rescue(options.tiers, options.home_tier, os.fsencode(self.out), options.copied,
                                stderr, stdout)
            status = run.run(options.list)
        return status, stdout.getvalue(), stderr.getvalue()

    def rebuilt(self, path):
        with open(os.path.join(self.out, path), "rb") as file:
            return file.read()

    def snapshot(self):
        """Everything about the tiers that a write would change."""
        seen = {}
        for name in NAMES:
            for root, dirs, files in os.walk(os.path.join(self.root, name)):
                for entry_name in dirs + files:
                    info = os.lstat(os.path.join(root, entry_name))
                    seen[os.path.join(root, entry_name)] = (info.st_mtime_ns, info.st_ctime_ns, info.st_size)
        return seen

    # What is whole

    def test_check_value(self):
        self.assertEqual(rescue.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(rescue.crc32c(b"6789", rescue.crc32c(b"12345")), 0xE3069283)

    def test_everything_comes_back(self):
        home = self.volume.home
        write(home("dir/plain"), b"plain data")
        os.setxattr(home("dir/plain"), "user.note", b"value")
        os.chmod(home("dir/plain"), 0o4751)
        os.link(home("dir/plain"), home("other name"))
        os.symlink("dir/plain", home("link"))
        os.mkfifo(home("pipe"), 0o640)
        write(os.fsdecode(os.fsencode(home("odd ")) + b"\xff\n"), b"odd")
        expected = self.volume.spread("dir/big", ID, 5 * RANGE + 100, [0, 1, None, 2, 1, 0])
        os.link(home("dir/big"), home("big too"))
        os.chmod(home("dir"), 0o1750)
        if os.geteuid() == 0:
            os.chown(home("dir/big"), 1234, 4321)
        for path in ["dir/plain", "dir/big", "link", "pipe", "dir"]:
            os.utime(home(path), ns=(123456789012, 987654321098), follow_symlinks=False)
        before = self.snapshot()
        status, _, messages = self.run_rescue()
        self.assertEqual((status, messages), (0, "rescue: 3 files, 1 of them spread, 0 problems\n"))
        self.assertEqual(self.snapshot(), before)
        self.assertEqual(self.rebuilt("dir/plain"), b"plain data")
        self.assertEqual(self.rebuilt("dir/big"), expected)
        self.assertEqual(self.rebuilt(b"odd \xff\n".decode("utf-8", "surrogateescape")), b"odd")
        self.assertEqual(os.listxattr(os.path.join(self.out, "dir/plain")), ["user.note"])
        self.assertEqual(os.listxattr(os.path.join(self.out, "dir/big")), [])
        self.assertFalse(os.path.exists(os.path.join(self.out, ".braid")))
        for path in ["dir/plain", "dir/big", "link", "pipe", "dir", "other name", "big too"]:
            source, copy = os.lstat(home(path)), os.lstat(os.path.join(self.out, path))
            for field in ["st_mode", "st_uid", "st_gid", "st_nlink", "st_mtime_ns"]:
                self.assertEqual(getattr(source, field), getattr(copy, field), (path, field))
        for one, two in [("dir/plain", "other name"), ("dir/big", "big too")]:
            self.assertTrue(os.path.samefile(os.path.join(self.out, one), os.path.join(self.out, two)))

    def test_holes_stay_holes(self):
        path = self.volume.home("sparse")
        with open(path, "wb") as file:
            file.truncate(64 << 20)
            file.seek(32 << 20)
            file.write(b"x" * 4096)
        self.assertEqual(self.run_rescue()[0], 0)
        copy = os.stat(os.path.join(self.out, "sparse"))
        self.assertEqual(copy.st_size, 64 << 20)
        self.assertLess(copy.st_blocks * 512, 1 << 20)

    def test_short_objects_and_indexes_read_as_zeros(self):
        expected = self.volume.spread("big", ID, 4 * RANGE, [1, 1, None, None])
        with open(self.volume.object(1, ID), "r+b") as file:
            file.truncate(RANGE + 10)
        with open(self.volume.index(ID), "r+b") as file:
            file.truncate(4096 + 16)
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(self.rebuilt("big"), expected[: RANGE + 10].ljust(4 * RANGE, b"\0"))

    def test_entries_beyond_the_size_are_garbage(self):
        expected = self.volume.spread("big", ID, RANGE, [1])
        patch(self.volume.index(ID), 4096 + 8, b"\x77" * 8)
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(self.rebuilt("big"), expected)

    def test_emptied_file_is_empty(self):
        self.volume.spread("big", ID, 2 * RANGE, [1, 0])
        path = self.volume.home("big")
        value = bytearray(os.getxattr(path, "user.braid.id"))
        value[1] = 2
        os.setxattr(path, "user.braid.id", with_crc(value, 4))
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(self.rebuilt("big"), b"")

    def test_open_file_has_the_time_of_its_last_write(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.utime(self.volume.home("big"), ns=(10**18, 10**18))
        os.utime(self.volume.object(1, ID), ns=(2 * 10**18, 2 * 10**18))
        write(self.volume.home(".braid/open/" + ID.hex()), b"")
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(os.stat(os.path.join(self.out, "big")).st_mtime_ns, 2 * 10**18)

    def test_copied_attribute_is_ignored(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        write(self.volume.home("copy"), b"plain after all")
        value = os.getxattr(self.volume.home("big"), "user.braid.id")
        os.setxattr(self.volume.home("copy"), "user.braid.id", value)
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(self.rebuilt("copy"), b"plain after all")
        self.assertEqual(self.rebuilt("big"), expected)

    # What is missing or damaged

    def check_damage(self, expected, *words, path="big", **options):
        status, _, messages = self.run_rescue(**options)
        self.assertEqual(status, 1, messages)
        for word in words:
            self.assertIn(word, messages)
        self.assertEqual(self.rebuilt(path), expected)

    def test_missing_tier(self):
        expected = self.volume.spread("big", ID, 4 * RANGE, [0, 2, 2, 1])
        whole = self.volume.spread("whole", OTHER, 2 * RANGE, [0, 1])
        expected = expected[:RANGE] + bytes(2 * RANGE) + expected[3 * RANGE :]
        self.check_damage(expected, "big: bytes 65536 to 196608: tier 2 (far) is not there",
                          "1 problems", tiers=NAMES[:2])
        self.assertEqual(self.rebuilt("whole"), whole)

    def test_missing_object(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.unlink(self.volume.object(1, ID))
        self.check_damage(expected[:RANGE] + bytes(RANGE), "big: bytes 65536 to 131072: object on tier 1 (slow)")

    def test_missing_index(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.unlink(self.volume.index(ID))
        with open(self.volume.home("big"), "rb") as file:
            expected = file.read()
        self.check_damage(expected, "big: its index can't be read")

    def test_damaged_entry(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        flip(self.volume.index(ID), 4096 + 8)
        expected = expected[:RANGE] + bytes(RANGE) + expected[2 * RANGE :]
        self.check_damage(expected, "big: bytes 65536 to 131072: damaged index entry")

    def test_damaged_header(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        flip(self.volume.index(ID), 72)
        self.check_damage(expected, "big: the header of its index", "checksum is wrong")

    def test_damaged_size(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        flip(self.volume.index(ID), 257)
        self.check_damage(expected, "big: its size is damaged; 196608, the one of its last fsync")

    def test_both_sizes_damaged(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        flip(self.volume.index(ID), 257)
        flip(self.volume.index(ID), 265)
        self.check_damage(expected, "big: its size is damaged; 196608, that of its home file")

    def test_damaged_attribute(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        value = bytearray(os.getxattr(self.volume.home("big"), "user.braid.id"))
        value[9] ^= 1
        os.setxattr(self.volume.home("big"), "user.braid.id", bytes(value))
        self.check_damage(expected, "big: its id can't be used (its checksum is wrong); the index that names")

    def test_damaged_labels_and_table(self):
        for tier, path in [("fast", ".braid/label"), ("slow", ".braid/label"), ("fast", ".braid/volume")]:
            with self.subTest(tier=tier, path=path):
                self.setUp()
                expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
                flip(os.path.join(self.root, tier, path), 20)
                self.check_damage(expected, "label of tier %s" % tier if "label" in path else "volume table")

    def test_neither_label_nor_table(self):
        for path in [".braid/label", ".braid/volume"]:
            flip(self.volume.home(path), 20)
        status, _, messages = self.run_rescue()
        self.assertEqual(status, 1)
        self.assertIn("is this the home tier?", messages)

    def test_newer_format(self):
        with open(self.volume.home(".braid/label"), "rb") as file:
            label = bytearray(file.read())
        label[8] = 2
        write(self.volume.home(".braid/label"), with_crc(label, 12))
        self.assertIn("format version 2", self.run_rescue()[2])

    def test_tier_of_another_volume(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        path = os.path.join(self.root, "slow/.braid/label")
        with open(path, "rb") as file:
            label = bytearray(file.read())
        label[16] ^= 1
        write(path, with_crc(label, 12))
        self.check_damage(expected[:RANGE] + bytes(RANGE), "tier slow belongs to another volume")

    # Copied directories

    def test_copied_directories(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 2])
        copies = os.path.join(self.root, "copies")
        shutil.copytree(self.root, copies, ignore=shutil.ignore_patterns("copies"))
        status, _, messages = self.run_rescue(root=copies)
        self.assertEqual(status, 1)
        self.assertIn("use --copied", messages)
        shutil.rmtree(self.out)
        status, _, messages = self.run_rescue("--copied", root=copies)
        self.assertEqual(status, 0, messages)
        self.assertEqual(self.rebuilt("big"), expected)

    def test_copied_directories_with_a_copied_attribute(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        write(self.volume.home("copy"), b"plain after all")
        value = os.getxattr(self.volume.home("big"), "user.braid.id")
        os.setxattr(self.volume.home("copy"), "user.braid.id", value)
        status, _, messages = self.run_rescue("--copied")
        self.assertEqual(status, 1)
        self.assertIn("carries the id of", messages)

    # The command line

    def test_list(self):
        write(self.volume.home("plain"), b"12345")
        self.volume.spread("big", ID, 3 * RANGE + 5, [0, 1, 1, None])
        os.link(self.volume.home("big"), self.volume.home("same"))
        status, printed, _ = self.run_rescue("--list", out=False)
        self.assertEqual(status, 0)
        self.assertEqual(printed.splitlines(), [
            "spread big 196613 " + ID.hex(),
            "       0 to 65536: tier 0 (fast)",
            "       65536 to 196608: tier 1 (slow)",
            "       196608 to 196613: hole",
            "plain  plain 5",
            "link   same -> big",
        ])
        self.assertFalse(os.path.exists(self.out))
        status, printed, _ = self.run_rescue("--list", tiers=["fast"], out=False)
        self.assertEqual(status, 1)
        self.assertIn("65536 to 196608: tier 1 (slow), not there", printed)

    def test_wrong_usage(self):
        fast = "fast=" + os.path.join(self.root, "fast")
        full = os.path.join(self.root, "full")
        write(os.path.join(full, "file"), b"")
        for arguments in [
            [],
            ["--tier", fast, self.out],
            ["--tier", fast, "--home", "slow", self.out],
            ["--tier", "fast", "--home", "fast", self.out],
            ["--tier", "fast=/nonexistent", "--home", "fast", self.out],
            ["--tier", fast, "--tier", fast, "--home", "fast", self.out],
            ["--tier", fast, "--home", "fast"],
            ["--tier", fast, "--home", "fast", full],
            ["--tier", fast, "--home", "fast", os.path.join(self.root, "fast/out")],
            ["--tier", fast, "--home", "fast", self.root],
            ["--tier", fast, "--home", "fast", "--list", self.out],
        ]:
            with self.subTest(arguments=arguments):
                program = os.path.join(os.path.dirname(os.path.abspath(rescue.__file__)), "rescue.py")
                done = subprocess.run([sys.executable, program, *arguments], capture_output=True)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertFalse(os.path.exists(self.out))

    def test_as_a_program(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        program = os.path.join(os.path.dirname(os.path.abspath(rescue.__file__)), "rescue.py")
        arguments = ["--home", "fast", self.out]
        for name in NAMES:
            arguments += ["--tier", "%s=%s" % (name, os.path.join(self.root, name))]
        done = subprocess.run([sys.executable, program, *arguments], capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rebuilt("big"), expected)
        self.assertTrue(stat.S_ISDIR(os.stat(self.out).st_mode))


if __name__ == "__main__":
    unittest.main()
