#!/usr/bin/env python3
"""Tests of rescue.py on volumes made by hand from what docs/format.md says.

The maker below shares no code with rescue.py but the checksum, whose check
value is tested by itself. Run: python3 crates/cli/rescue/test_rescue.py
"""

import contextlib
import io
import json
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
KEY = bytes(range(16, 32))
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


def own_attribute(path, id_, version=2, kind=1, volume=VOLUME, key=KEY, whole=(0, 0)):
    """The id attribute of a file with this id."""
    born = rescue.birth_time(os.fsencode(path)) or 0
    durable, tier = whole
    value = struct.pack("<BBHI16sQq", version, kind, durable, 0, id_, os.stat(path).st_ino, born)
    if version > 1:
        place = struct.pack("<BBB5x", tier, 16, 2) if kind == 3 else bytes(8)
        bare = value + volume[:8] + bytes(8) + place
        value = bare[:48] + struct.pack("<Q", rescue.siphash(key, bare)) + place
    return with_crc(value, 4)


def flag_word(id_, offset):
    return struct.pack("<II", 1, rescue.crc32c(id_ + struct.pack("<QI", offset, 1)))


class Volume:
    """A volume of three tiers below a directory; number 0 is home."""

    def __init__(self, root, version=2):
        self.root, self.version = root, version
        key = KEY if version > 1 else bytes(16)
        for number, name in enumerate(NAMES):
            os.makedirs(os.path.join(root, name, ".braid"))
            label = struct.pack("<8sHHI16sBBBBI48s16s", b"BRAIDTIR", version, 0, 0, VOLUME, number, number == 0, 1,
                                len(name), RANGE, name.encode(), key)
            write(os.path.join(root, name, ".braid/label"), with_crc(label.ljust(512, b"\0"), 12))
        table = struct.pack("<8sHHI16sIB3x16s8x", b"BRAIDVOL", version, 0, 0, VOLUME, RANGE, 0, key)
        for name in NAMES:
            table += struct.pack("<BB62s", 1, len(name), name.encode())
        write(self.home(".braid/volume"), with_crc(table.ljust(4096, b"\0"), 12))

    def replace(self, tier):
        """Says in the volume table that a tier is lost; its directory goes."""
        with open(self.home(".braid/volume"), "rb") as file:
            table = bytearray(file.read())
        table[64 + 64 * tier] = 2
        write(self.home(".braid/volume"), with_crc(table, 12))
        shutil.rmtree(os.path.join(self.root, NAMES[tier]))

    def set_range_size(self, size):
        """Says in label and table that ranges are so long."""
        for path, offset in [(".braid/label", 36), (".braid/volume", 32)]:
            with open(self.home(path), "rb") as file:
                block = bytearray(file.read())
            struct.pack_into("<I", block, offset, size)
            write(self.home(path), with_crc(bytes(block), 12))

    def allow_range_size(self, size):
        """Says in the table that rules gave files ranges so long."""
        with open(self.home(".braid/volume"), "rb") as file:
            table = bytearray(file.read())
        table[38] |= size // 65536
        write(self.home(".braid/volume"), with_crc(bytes(table), 12))

    def home(self, path):
        return os.path.join(self.root, "fast", path)

    def index(self, id_):
        return self.home(".braid/index/%s/%s" % (id_.hex()[:2], id_.hex()))

    def object(self, tier, id_):
        return os.path.join(self.root, NAMES[tier], ".braid/data/%s/%s" % (id_.hex()[:2], id_.hex()))

    def spread(self, path, id_, size, owners, seed=1, rubbish=True, range_size=RANGE):
        """Makes a spread file whose range r lies on tier owners[r] (None: a
        hole), with rubbish (or a hole) wherever a tier does not own the range.
        Returns what the file holds."""
        expected = bytearray(size)
        pieces = [bytearray(b"\xee" * size) for _ in NAMES]
        entries = b""
        for number, tier in enumerate(owners):
            start, end = number * range_size, min(size, (number + 1) * range_size)
            if tier is None:
                entries += bytes(8)
                continue
            data = bytes([seed + number]) * max(0, end - start)
            expected[start:end] = data
            pieces[tier][start:end] = data
            entries += entry(id_, number, tier, version=number)
        for tier in {0, *owners} - {None}:
            place = self.object(tier, id_) if tier else self.home(path)
            write(place, bytes(pieces[tier]) if rubbish else b"")
            os.truncate(place, size)
            for number in (n for n, owner in enumerate(owners) if owner == tier and not rubbish):
                start = number * range_size
                patch(place, start, bytes(pieces[tier][start : start + range_size]))
        info = os.stat(self.home(path))
        born = rescue.birth_time(os.fsencode(self.home(path))) or 0
        os.setxattr(self.home(path), "user.braid.id", own_attribute(self.home(path), id_, self.version))
        header = struct.pack("<8sHHI16s16sIiQqQB", b"BRAIDIDX", 1, 0, 0, VOLUME, id_, range_size, 0, info.st_ino,
                             born, 0, 0)
        header = with_crc(header.ljust(256, b"\0"), 12)
        header += size_word(id_, 256, size) + size_word(id_, 264, size) + owners_word(id_, 0, owners[-1] or 0, 0)
        header = header.ljust(512, b"\0")
        header += b"".join(flag_word(id_, 512 + 8 * tier) if tier in owners and tier else bytes(8) for tier in range(3))
        write(self.index(id_), header.ljust(4096, b"\0") + entries)
        return bytes(expected)


    def whole(self, path, id_, data, tier=1, durable=True, size=None):
        """Makes a whole file on a tier; its home file is a hole of `size`."""
        write(self.home(path), b"")
        os.truncate(self.home(path), len(data) if size is None else size)
        if data is not None:
            write(self.object(tier, id_), data)
        attribute = own_attribute(self.home(path), id_, kind=3, whole=(int(durable), tier))
        os.setxattr(self.home(path), "user.braid.id", attribute)


class Zones:
    """A tier of a volume as a zoned device, emulated, in place of its directory; records are added to its index."""

    CAPACITY, BLOCK = 1 << 20, 4096

    def __init__(self, volume, tier, conventional=0):
        self.root, self.conventional, self.at = os.path.join(volume.root, NAMES[tier]), conventional, 0
        with open(os.path.join(self.root, ".braid/label"), "rb") as file:
            label = file.read()
        shutil.rmtree(self.root)
        shape = "braid emulated zones 1\nzones 8\nconventional %d\ncapacity %d\nopen 4\nactive 4\n"
        write(os.path.join(self.root, ".braid-zones"), (shape % (conventional, self.CAPACITY)).encode())
        for zone in range(8):
            write(self.path(zone), bytes(self.CAPACITY) if zone < conventional else b"")
        self.frames, self.first = 0, max(2, conventional)
        self.add(2, struct.pack("<BH", 1, len(label)) + label)

    def path(self, zone):
        kind = ("cnv", zone) if zone < self.conventional else ("seq", zone - self.conventional)
        return os.path.join(self.root, "%s/%d" % kind)

    def add(self, kind, *records, version=1):
        """Adds a frame, by the number of its kind, with records."""
        payload = b"".join(records)
        head = struct.pack("<8sHHIIIQQ16sQ", b"BRAIDZLG", version, kind, 0, len(payload), 0, 1, self.frames, b"s" * 16, 5)
        frame = with_crc(head + payload, 12)
        frame += bytes(-len(frame) % self.BLOCK)
        with open(self.path(0), "r+b") as file:
            file.seek(self.at)
            file.write(frame)
        self.frames, self.at = self.frames + 1, self.at + len(frame)

    def write(self, zone, data):
        with open(self.path(zone), "ab") as file:
            file.write(data)

    @staticmethod
    def made(number, id_):
        return struct.pack("<BQ16s", 2, number, id_)

    @staticmethod
    def piece(number, start, end, zone, at):
        return struct.pack("<BQQQII", 3, number, start, end, zone, at)

    @staticmethod
    def punched(number, start, end):
        return struct.pack("<BQQQ", 5, number, start, end)


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path, offset):
    with open(path, "rb") as file:
        file.seek(offset)
        byte = file.read(1)[0]
    patch(path, offset, bytes([byte ^ 0x40]))


def summary(files, spread, lost=0, guessed=0, orphans=0):
    """The last line of messages."""
    return ("rescue: %d files, %d of them spread; %d with losses, %d guessed, %d that no name leads to\n"
            % (files, spread, lost, guessed, orphans))


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
            run = rescue.Rescue(options, os.fsencode(self.out) if out else None, stderr, stdout)
            status = run.run()
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

    def test_siphash_is_that_of_its_paper(self):
        self.assertEqual(rescue.siphash(bytes(range(16)), bytes(range(15))), 0xA129CA6149BE45E5)

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
        self.assertEqual((status, messages), (0, summary(3, 1)))
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

    def test_file_that_was_synced_as_it_grew_is_as_long_as_its_last_part(self):
        for tier, known in [(0, 0), (1, 40), (2, RANGE - 100)]:
            with self.subTest(tier=tier, known=known):
                self.setUp()
                expected = self.volume.spread("big", ID, 2 * RANGE - 100, [1, tier])
                patch(self.volume.index(ID), 256, size_word(ID, 256, RANGE + known))
                patch(self.volume.index(ID), 296, size_word(ID, 296, 2 * RANGE))
                self.check(0, expected, summary(1, 1))

    def test_growth_on_a_tier_that_is_missing_is_told(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [1, 2])
        patch(self.volume.index(ID), 256, size_word(ID, 256, RANGE))
        patch(self.volume.index(ID), 296, size_word(ID, 296, 2 * RANGE))
        self.check(1, expected[:RANGE], "big: guessed: it may go on past byte 65536, on a tier that can't be asked",
                   tiers=NAMES[:2])

    def test_growth_that_an_earlier_size_left_is_ignored(self):
        expected = self.volume.spread("big", ID, RANGE - 10, [1])
        patch(self.volume.index(ID), 296, size_word(ID, 296, 4 * RANGE))
        self.check(0, expected, summary(1, 1))

    def test_emptied_file_is_empty(self):
        self.volume.spread("big", ID, 2 * RANGE, [1, 0])
        path = self.volume.home("big")
        os.setxattr(path, "user.braid.id", own_attribute(path, ID, kind=2))
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(self.rebuilt("big"), b"")

    def test_open_file_has_the_time_of_its_last_write(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.utime(self.volume.home("big"), ns=(10**18, 10**18))
        os.utime(self.volume.object(1, ID), ns=(2 * 10**18, 2 * 10**18))
        write(self.volume.home(".braid/open/" + ID.hex()), b"")
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(os.stat(os.path.join(self.out, "big")).st_mtime_ns, 2 * 10**18)

    def test_file_has_the_time_of_its_last_read(self):
        self.volume.spread("read", ID, 2 * RANGE, [0, 1])
        self.volume.whole("whole", bytes([7]) * 16, b"whole")
        self.volume.whole("never", bytes([8]) * 16, b"never")
        for name, id_ in [("read", ID), ("whole", bytes([7]) * 16), ("never", bytes([8]) * 16)]:
            os.utime(self.volume.home(name), ns=(10**18, 10**18))
            if name != "never":
                os.utime(self.volume.object(1, id_), ns=(2 * 10**18, 10**17))
        patch(self.volume.index(ID), 272, owners_word(ID, 0, 0, 1))
        self.assertEqual(self.run_rescue()[0], 0)
        for name, time in [("read", 2 * 10**18), ("whole", 2 * 10**18), ("never", 10**18)]:
            found = os.stat(os.path.join(self.out, name))
            self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (time, 10**18), name)
        # The home inode has a later one, or owns it.
        patch(self.volume.index(ID), 272, owners_word(ID, 0, 0, 0))
        os.utime(self.volume.home("whole"), ns=(3 * 10**18, 10**18))
        shutil.rmtree(self.out)
        self.assertEqual(self.run_rescue()[0], 0)
        for name, time in [("read", 10**18), ("whole", 3 * 10**18)]:
            self.assertEqual(os.stat(os.path.join(self.out, name)).st_atime_ns, time, name)

    def test_copied_attribute_is_ignored(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        write(self.volume.home("copy"), b"plain after all")
        value = os.getxattr(self.volume.home("big"), "user.braid.id")
        os.setxattr(self.volume.home("copy"), "user.braid.id", value)
        self.assertEqual(self.run_rescue()[0], 0)
        self.assertEqual(self.rebuilt("copy"), b"plain after all")
        self.assertEqual(self.rebuilt("big"), expected)

    # Whose attributes are believed

    def test_version_1(self):
        shutil.rmtree(self.root)
        self.volume = Volume(self.root, version=1)
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        status, _, said = self.run_rescue()
        self.assertEqual((status, self.rebuilt("big")), (0, expected))
        self.assertNotIn("verified", said)

    def test_attributes_of_version_1_on_a_volume_that_became_one_of_version_2(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        path = self.volume.home("big")
        os.setxattr(path, "user.braid.id", own_attribute(path, ID, version=1))
        self.assertEqual((self.run_rescue()[0], self.rebuilt("big")), (0, expected))

    def test_forged_id(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        write(self.volume.home("mine"), b"mine")
        mine = self.volume.home("mine")
        os.setxattr(mine, "user.braid.id", own_attribute(mine, ID, key=bytes(16)))
        self.check(1, expected, "mine: guessed: its id can't be used (its MAC is wrong, so Braid did not write it")
        self.assertEqual(self.rebuilt("mine"), b"mine")

    def test_id_of_another_volume(self):
        write(self.volume.home("big"), b"old")
        path = self.volume.home("big")
        os.setxattr(path, "user.braid.id", own_attribute(path, ID, volume=b"abcdefghijklmnop"))
        self.check(1, b"old", "big: guessed: its id can't be used (it is of another volume, whose id begins with 6162")

    def test_without_the_key_nothing_is_verified_and_everything_used(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        path = self.volume.home("big")
        os.setxattr(path, "user.braid.id", own_attribute(path, ID, key=bytes(16)))
        for name in NAMES:
            with open(os.path.join(self.root, name, ".braid/label"), "rb") as file:
                label = bytearray(file.read())
            label[8] = 1
            write(os.path.join(self.root, name, ".braid/label"), with_crc(bytes(label), 12))
        os.unlink(self.volume.home(".braid/volume"))
        self.check(0, expected, "note: no label or volume table tells the volume's key")

    # What is missing or damaged

    def check(self, status, expected, *words, path="big", **options):
        """The exit status, what path came back as, and what was said."""
        found, _, messages = self.run_rescue(**options)
        self.assertEqual(found, status, messages)
        for word in words:
            self.assertIn(word, messages)
        self.assertEqual(self.rebuilt(path), expected)

    def test_missing_tier(self):
        expected = self.volume.spread("big", ID, 4 * RANGE, [0, 2, 2, 1])
        whole = self.volume.spread("whole", OTHER, 2 * RANGE, [0, 1])
        expected = expected[:RANGE] + bytes(2 * RANGE) + expected[3 * RANGE :]
        self.check(1, expected, "big: lost: bytes 65536 to 196608: tier 2 (far) is not there", summary(2, 2, lost=1),
                   tiers=NAMES[:2])
        self.assertEqual(self.rebuilt("whole"), whole)

    def test_tier_that_was_replaced_is_named(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        self.volume.replace(1)
        self.check(1, expected[:RANGE] + bytes(RANGE),
                   "big: lost: bytes 65536 to 131072: tier 1 (slow, lost) is not there", tiers=["fast", "far"])

    def test_whole_file_comes_back_from_its_object(self):
        self.volume.whole("big", ID, b"whole" * 100)
        self.check(0, b"whole" * 100, summary(1, 1))

    def test_whole_file_that_was_in_use_has_the_size_of_its_object(self):
        for mark in [ID.hex(), ID.hex() + ".1.0a0b"]:
            with self.subTest(mark):
                self.setUp()
                self.volume.whole("big", ID, b"longer than its home inode says", size=4)
                write(self.volume.home(".braid/open/" + mark), b"")
                self.check(0, b"longer than its home inode says", summary(1, 1))

    def test_whole_file_without_its_object(self):
        self.volume.whole("big", ID, b"data")
        os.unlink(self.volume.object(1, ID))
        self.check(1, bytes(4), "big: lost: bytes 0 to 4: tier 1 (slow): its object is missing")
        self.setUp()
        self.volume.whole("big", ID, b"data", durable=False)
        os.unlink(self.volume.object(1, ID))
        self.check(0, bytes(4), "big: note: bytes 0 to 4: tier 1 (slow): its object is missing, and was never durable")

    def test_missing_durable_object_is_a_loss(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.unlink(self.volume.object(1, ID))
        self.check(1, expected[:RANGE] + bytes(RANGE), "big: lost: bytes 65536 to 131072: tier 1 (slow): its object")

    def test_missing_object_that_was_never_durable_is_zeros(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 2])
        os.unlink(self.volume.object(1, ID))
        patch(self.volume.index(ID), 512 + 8, bytes(8))
        self.check(0, expected[:RANGE] + bytes(RANGE) + expected[2 * RANGE :],
                   "big: note: bytes 65536 to 131072: tier 1 (slow): its object is missing, and was never durable")

    def test_object_in_the_wrong_shard_is_found(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        there = os.path.join(self.root, "slow/.braid/data/00", ID.hex())
        os.makedirs(os.path.dirname(there))
        os.rename(self.volume.object(1, ID), there)
        self.check(0, expected)

    def test_missing_index_is_guessed_from_where_there_is_data(self):
        for way in ["missing", "short", "symbolic link"]:
            with self.subTest(way=way):
                self.setUp()
                expected = self.volume.spread("big", ID, 4 * RANGE, [0, 1, None, 2], rubbish=False)
                index = self.volume.index(ID)
                if way == "short":
                    os.truncate(index, 100)
                else:
                    os.rename(index, self.volume.home(".braid/aside"))
                if way == "symbolic link":
                    os.symlink("../../aside", index)
                self.check(1, expected, "big: guessed: its index can't be used", summary(1, 1, guessed=1))

    def test_index_in_the_wrong_shard_is_found(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.makedirs(self.volume.home(".braid/index/00"))
        os.rename(self.volume.index(ID), self.volume.home(".braid/index/00/" + ID.hex()))
        self.check(0, expected)

    def test_where_several_tiers_have_data_the_last_written_is_taken_and_told(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.unlink(self.volume.index(ID))
        os.utime(self.volume.home("big"), ns=(10**18, 10**18))
        with open(self.volume.object(1, ID), "rb") as file:
            expected = file.read()
        self.check(1, expected, "big: guessed: bytes 0 to 65536: no index; taken from the first of the tiers with data "
                   "there: 1 (slow) and 0 (fast)")

    def test_one_flipped_bit_of_an_entry_is_corrected(self):
        for offset in range(8):
            with self.subTest(offset=offset):
                self.setUp()
                expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
                flip(self.volume.index(ID), 4096 + 8 + offset)
                self.check(0, expected, "big: note: bytes 65536 to 131072: one bit of their index entry")

    def test_damaged_entry_is_guessed(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1], rubbish=False)
        patch(self.volume.index(ID), 4096 + 8, b"\x77" * 8)
        self.check(1, expected, "big: guessed: bytes 65536 to 131072: damaged index entry")

    def test_damaged_entry_of_a_range_that_no_tier_has_is_a_loss(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 2, 1], rubbish=False)
        patch(self.volume.index(ID), 4096 + 8, b"\x77" * 8)
        self.check(1, expected[:RANGE] + bytes(RANGE) + expected[2 * RANGE :],
                   "big: lost: bytes 65536 to 131072: damaged index entry, and no tier has data", tiers=NAMES[:2])

    def test_entries_are_used_where_the_header_is_damaged(self):
        for offset, damage, rubbish in [(72, b"\xff", True), (0, bytes(256), False), (32, OTHER, False)]:
            with self.subTest(offset=offset):
                self.setUp()
                expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1], rubbish=rubbish)
                patch(self.volume.index(ID), offset, damage)
                self.check(0, expected, "big: note: the header of its index can't be used")

    def test_ranges_are_as_long_as_the_index_says(self):
        for size, owners in [(8 * RANGE, [0, 1, None, 2]), (2 * RANGE, [0, 1, 1, 2, 0])]:
            expected = self.volume.spread("big", ID, len(owners) * size - 5, owners, range_size=size)
            self.assertEqual(self.run_rescue()[0], 0)
            self.assertEqual(self.rebuilt("big"), expected)
            self.setUp()

    def test_range_size_is_inferred_where_the_header_is_damaged(self):
        for size in [2 * RANGE, 64 * RANGE]:
            for offset, damage in [(50, b"\x41"), (0, bytes(256)), (48, b"\xff" * 4), (32, OTHER)]:
                with self.subTest(size=size, offset=offset):
                    self.setUp()
                    expected = self.volume.spread("big", ID, 4 * size, [0, 1, 1, 2], rubbish=False, range_size=size)
                    patch(self.volume.index(ID), offset, damage)
                    self.check(0, expected, "big: note: the header of its index can't be used")

    def leave(self, tier, start, end):
        """Makes data of the other file that a crash left of a move."""
        patch(self.volume.object(tier, ID) if tier else self.volume.home("big"), start, b"\xdd" * (end - start))

    def test_range_size_is_inferred_beside_what_a_crash_left(self):
        for size, owners, tier in [(RANGE, [0, 1, 1, 2], 2), (4 * RANGE, [0, 1, 1, 2], 0), (RANGE, [1] * 8 + [2], 1)]:
            with self.subTest(size=size, owners=owners):
                self.setUp()
                self.volume.set_range_size(4 * RANGE)
                expected = self.volume.spread("big", ID, len(owners) * size, owners, rubbish=False, range_size=size)
                number = len(owners) - 1 if tier == 1 else 1
                self.leave(tier, number * size, (number + 1) * size)
                patch(self.volume.index(ID), 0, bytes(256))
                self.check(0, expected, "big: note: the header of its index can't be used")

    def test_range_size_is_inferred_without_a_tier(self):
        self.volume.set_range_size(4 * RANGE)
        expected = self.volume.spread("big", ID, 6 * RANGE, [0, 2, 2, 1, 0, 1], rubbish=False)
        patch(self.volume.index(ID), 0, bytes(256))
        expected = expected[:RANGE] + bytes(2 * RANGE) + expected[3 * RANGE :]
        self.check(1, expected, "big: note: the header of its index can't be used",
                   "big: lost: bytes 65536 to 196608: tier 2 (far) is not there", summary(1, 1, lost=1), tiers=NAMES[:2])

    def test_range_size_that_nothing_tells_is_guessed(self):
        self.volume.spread("big", ID, 4 * RANGE, [0, 1, 1, 2], rubbish=False)
        self.leave(2, 0, 4 * RANGE)
        os.truncate(self.volume.object(1, ID), 0)
        patch(self.volume.index(ID), 0, bytes(256))
        status, _, messages = self.run_rescue()
        self.assertEqual(status, 1)
        self.assertIn("big: guessed: nothing tells how long its ranges are", messages)

    def test_missing_index_of_a_file_with_short_ranges(self):
        self.volume.set_range_size(4 * RANGE)
        self.volume.allow_range_size(RANGE)
        expected = self.volume.spread("big", ID, 9 * RANGE + 7, [0, 1, 2, 2, 0, 1, None, 2, 0, 1], rubbish=False)
        os.unlink(self.volume.index(ID))
        self.check(1, expected, "big: guessed: its index can't be used", summary(1, 1, guessed=1))

    def test_missing_index_beside_what_a_crash_left_is_guessed_by_whole_ranges(self):
        self.volume.set_range_size(4 * RANGE)
        expected = bytearray(self.volume.spread("big", ID, 8 * RANGE, [1, 2], rubbish=False, range_size=4 * RANGE))
        self.leave(2, 0, RANGE)
        place = self.volume.object(1, ID)
        write(place, b"")
        os.truncate(place, 8 * RANGE)
        patch(place, RANGE, bytes(expected[RANGE : 4 * RANGE]))
        expected[:RANGE] = bytes(RANGE)
        os.utime(self.volume.object(2, ID), ns=(1, 1))
        os.unlink(self.volume.index(ID))
        self.check(1, bytes(expected), "big: guessed: bytes 0 to 262144: no index; taken from the first of the tiers")

    def test_zeros_in_place_of_the_header_are_not_taken_for_an_empty_file(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        for length in [512, 4096]:
            patch(self.volume.index(ID), 0, bytes(length))
            self.check(1, expected, "big: guessed: its size is damaged; 196608, that of its home file")
            shutil.rmtree(self.out)

    def test_damaged_size_is_that_of_the_home_file_if_that_agreed(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        flip(self.volume.index(ID), 257)
        flip(self.volume.index(ID), 265)
        self.check(1, expected, "big: guessed: its size is damaged; 196608, that of its home file")

    def test_damaged_size_of_a_file_in_use_is_the_one_that_was_synced(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        flip(self.volume.index(ID), 257)
        os.truncate(self.volume.home("big"), RANGE)
        write(self.volume.home(".braid/open/" + ID.hex()), b"")
        self.check(1, expected, "big: guessed: its size is damaged; 196608, the larger of its last fsync's and")

    def test_home_file_that_is_behind_its_size_word_is_no_loss(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        os.truncate(self.volume.home("big"), RANGE)
        self.check(0, expected)

    def test_what_was_written_after_the_last_fsync_of_a_file_in_use_is_told(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 1])
        patch(self.volume.index(ID), 264, size_word(ID, 264, RANGE))
        write(self.volume.home(".braid/open/" + ID.hex()), b"")
        self.check(0, expected, "big: note: it was in use: bytes 65536 to 196608 were written after its last fsync")

    def test_damaged_attribute(self):
        for marked in [False, True]:
            self.setUp()
            expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
            value = bytearray(os.getxattr(self.volume.home("big"), "user.braid.id"))
            value[9] ^= 1
            os.setxattr(self.volume.home("big"), "user.braid.id", bytes(value))
            if marked:
                write(self.volume.home(".braid/open/" + ID.hex()), b"")
            self.check(0, expected, "big: note: its id can't be used (its checksum is wrong); the index that")

    def test_damaged_attribute_without_an_index(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.setxattr(self.volume.home("big"), "user.braid.id", bytes(64))
        os.unlink(self.volume.index(ID))
        with open(self.volume.home("big"), "rb") as file:
            expected = file.read()
        self.check(1, expected, "big: guessed: its id can't be used", summary(2, 1, guessed=2, orphans=1))
        with open(self.volume.object(1, ID), "rb") as file:
            self.assertEqual(self.rebuilt("lost+found.braid/" + ID.hex()), file.read())

    def test_two_files_with_one_id(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        for name in ["a copy", "the copy"]:
            write(self.volume.home(name), b"copy")
            os.setxattr(self.volume.home(name), "user.braid.id", own_attribute(self.volume.home(name), ID))
        self.check(1, expected, "a copy: guessed: it carries the id of big", "the copy: guessed: it carries",
                   summary(3, 1, guessed=2))
        self.assertEqual(self.rebuilt("the copy"), b"copy")

    def test_two_files_with_one_id_that_the_index_can_not_settle(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        write(self.volume.home("copy"), b"copy")
        os.setxattr(self.volume.home("copy"), "user.braid.id", own_attribute(self.volume.home("copy"), ID))
        flip(self.volume.index(ID), 72)
        self.check(1, expected, "big: guessed: other files carry its id too", "copy: guessed: it carries the id of big")

    # What no file leads to

    def test_data_whose_attribute_was_removed_is_put_together_from_its_home_file(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 0])
        write(self.volume.home("lost+found.braid/mine"), b"not Braid's")
        os.removexattr(self.volume.home("big"), "user.braid.id")
        name = "lost+found.braid-/" + ID.hex()
        self.check(1, expected, name + ": note: its index names the inode of big",
                   "big: guessed: an index names its inode", summary(3, 1, guessed=1, orphans=1), path=name)
        self.assertEqual(self.rebuilt("lost+found.braid/mine"), b"not Braid's")

    def test_data_without_home_file_and_index(self):
        expected = self.volume.spread("big", ID, 3 * RANGE, [0, 1, 2], rubbish=False)
        os.unlink(self.volume.home("big"))
        os.unlink(self.volume.index(ID))
        self.check(1, bytes(RANGE) + expected[RANGE:], "guessed: its index can't be used (it is missing)",
                   path="lost+found.braid/" + ID.hex())

    def test_data_of_a_removed_file_is_not_brought_back(self):
        self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        os.unlink(self.volume.home("big"))
        write(self.volume.home(".braid/open/" + ID.hex()), b"")
        status, _, messages = self.run_rescue()
        self.assertEqual(status, 0, messages)
        self.assertIn("no file leads to it, because its file was being removed", messages)
        self.assertEqual(os.listdir(self.out), [])

    # What the volume is made of

    def test_damaged_labels_and_table(self):
        for tier, path in [("fast", ".braid/label"), ("slow", ".braid/label"), ("fast", ".braid/volume")]:
            with self.subTest(tier=tier, path=path):
                self.setUp()
                expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
                flip(os.path.join(self.root, tier, path), 20)
                self.check(0, expected, "note: label of tier %s" % tier if "label" in path else "note: volume table")

    def test_neither_label_nor_table(self):
        for path in [".braid/label", ".braid/volume"]:
            flip(self.volume.home(path), 20)
        status, _, messages = self.run_rescue()
        self.assertEqual(status, 1)
        self.assertIn("is this the home tier?", messages)

    def test_newer_format(self):
        with open(self.volume.home(".braid/label"), "rb") as file:
            label = bytearray(file.read())
        label[8] = 3
        write(self.volume.home(".braid/label"), with_crc(label, 12))
        self.assertIn("format version 3", self.run_rescue()[2])

    def test_tier_of_another_volume(self):
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        path = os.path.join(self.root, "slow/.braid/label")
        with open(path, "rb") as file:
            label = bytearray(file.read())
        label[16] ^= 1
        write(path, with_crc(label, 12))
        self.check(1, expected[:RANGE] + bytes(RANGE), "tier slow belongs to another volume",
                   "big: lost: bytes 65536 to 131072: tier 1 (slow) is not there")

    # A tier on a zoned device

    def zoned(self, conventional=0):
        """A file of which the second range is on a zoned tier, in its first zone for data, and what it holds."""
        expected = self.volume.spread("big", ID, 2 * RANGE, [0, 1])
        zones = Zones(self.volume, 1, conventional)
        zones.write(zones.first, expected[RANGE:])
        zones.add(3, zones.made(1, ID), zones.piece(1, RANGE, 2 * RANGE, zones.first, 0))
        return expected, zones

    def test_objects_in_zones_come_back(self):
        for conventional in [0, 1, 3]:
            with self.subTest(conventional):
                self.setUp()
                expected, zones = self.zoned(conventional)
                # What never was durable is not taken, nor what it says of its gaps.
                zones.add(3, zones.piece(1, RANGE, RANGE + 9000, 5, 0), zones.punched(1, RANGE + 100, RANGE + 200))
                self.check(0, expected, summary(1, 1))

    def test_data_that_a_device_has_lost_is_told(self):
        for zone in [2**32 - 1, 5]:
            with self.subTest(zone):
                self.setUp()
                expected, zones = self.zoned()
                zones.add(3, zones.piece(1, RANGE + 8192, RANGE + 16384, zone, 0))
                if zone == 5:
                    # Else it may never have been durable.
                    zones.add(3)
                self.check(1, expected[: RANGE + 8192] + bytes(8192) + expected[RANGE + 16384 :],
                           "big: lost: bytes 73728 to 81920: [Errno 5] the device has lost this data")

    def test_newer_index_is_named(self):
        expected, zones = self.zoned()
        zones.add(3, zones.punched(1, RANGE, 2 * RANGE), version=2)
        self.check(1, expected, "big: guessed: tier 1 (slow): a part of its index has format version 2, and this program"
                   " knows up to 1")

    def test_newer_index_without_an_older_one_is_named(self):
        expected, zones = self.zoned()
        os.truncate(zones.path(0), 0)
        zones.at = 0
        zones.add(2, version=2)
        self.check(1, expected[:RANGE] + bytes(RANGE), "note: label of tier slow in", "its index has format version 2")

    def test_conventional_zones_that_are_shorter_than_others(self):
        for conventional in [1, 2]:
            with self.subTest(conventional):
                self.setUp()
                expected, zones = self.zoned(conventional)
                os.truncate(zones.path(0), zones.at)
                self.check(1, expected, "big: guessed: tier 1 (slow): a part of its index can't be read ([Errno 5] zone 0 ends"
                           " before byte %d)\n" % (zones.at + rescue.FRAME_HEAD))

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

    def test_nothing_is_written_to_the_tiers_of_a_damaged_volume(self):
        self.volume.spread("big", ID, 3 * RANGE, [0, 1, 2])
        self.volume.spread("second", OTHER, 3 * RANGE, [0, 1, 2])
        flip(self.volume.index(ID), 72)
        os.unlink(self.volume.index(OTHER))
        write(self.volume.home(".braid/open/" + ID.hex()), b"")
        before = self.snapshot()
        self.assertEqual(self.run_rescue()[0], 1)
        self.assertEqual(self.snapshot(), before)

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

    def test_json(self):
        write(self.volume.home("plain"), b"12345")
        self.volume.spread("big", ID, 3 * RANGE + 5, [0, 2, 2, None])
        for out in [True, False]:
            status, printed, _ = self.run_rescue("--json", *([] if out else ["--list"]), tiers=NAMES[:2], out=out)
            self.assertEqual(status, 1)
            lost = [{"start": RANGE, "end": 3 * RANGE, "why": "tier 2 (far) is not there"}]
            runs = [{"start": 0, "end": RANGE, "tier": "fast"}, {"start": RANGE, "end": 3 * RANGE, "tier": "far"},
                    {"start": 3 * RANGE, "end": 3 * RANGE + 5, "tier": None}]
            self.assertEqual([json.loads(line) for line in printed.splitlines()], [
                {"path": "big", "kind": "spread", "size": 3 * RANGE + 5, "state": "lost", "lost": lost, "guessed": [],
                 "notes": [], "id": ID.hex(), "runs": runs},
                {"path": "plain", "kind": "plain", "size": 5, "state": "whole", "lost": [], "guessed": [], "notes": []},
                {"summary": {"files": 2, "spread": 1, "guessed": 0, "lost": 1, "orphans": 0}},
            ])

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
