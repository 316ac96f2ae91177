#!/usr/bin/env python3
"""Rebuild every file of a Braid volume from the directories of its tiers.

Needs neither Braid nor anything beyond Python's standard library (3.9 or
newer), and never writes into a tier. docs/format.md describes what it reads.

    rescue.py --tier fast=/mnt/nvme --tier slow=/mnt/sata --home fast OUT

The volume may have crashed, tiers may be gone (leave them out), indexes may be
damaged. For each file it is said which bytes are lost (zeros in OUT) and what
could only be guessed. Data that no file leads to is put into a directory
lost+found.braid in OUT, by its id.

Exit status: 0 everything was rebuilt, 1 something is lost or was guessed, or
no file leads to it, 2 wrong usage.
"""

import argparse
import bisect
import ctypes
import errno
import fcntl
import json
import os
import stat
import struct
import sys

# Of labels, volume tables and attributes; index headers count by themselves.
VERSIONS, HEADER_VERSIONS = (1, 2), (1,)
LABEL_SIZE, TABLE_SIZE, HEADER_SIZE = 512, 4096, 4096
ATTRIBUTE_SIZES = {1: 40, 2: 64}
TIERS_MAX = 63
NAMESPACES = ("trusted.", "user.")
KIND_SPREAD, KIND_EMPTIED, KIND_WHOLE = 1, 2, 3
SLOT_IN_USE, SLOT_LOST = 1, 2
SIZE_WORD, SYNCED_SIZE_WORD, OWNERS_WORD, GROWTH_WORD, DURABLE_FLAGS = 256, 264, 272, 296, 512
RANGE_SIZE_MIN, RANGE_SIZE_MAX = 1 << 16, 1 << 26
CHUNK = 1 << 20
# Of zoned tiers.
ZONES_FILE, BLOCK, FRAME_HEAD, FRAME_PAYLOAD_MAX, FRAME_VERSION = ".braid-zones", 4096, 64, 1 << 20, 1
CHECKPOINT_END, CHANGES, MOVED_ON = 2, 3, 4
# Of each record, but for labels: its fields.
RECORDS = {2: "<Q16s", 3: "<QQQII", 4: "<QQ", 5: "<QQQ", 6: "<QqIBqI", 7: "<Q", 8: "<II", 9: "<", 10: "<QQQ"}
NOT_THERE = -1
# In place of a zone: the device has lost what was there.
LOST_ZONE = 0xFFFFFFFF
# Of devices: the kernel's requests, and its unit of places.
BLKREPORTZONE, BLKGETZONESZ, BLKGETNRZONES, BLKSSZGET = 0xC0101282, 0x80041284, 0x80041285, 0x1268
ZONES_AT_A_TIME, DEVICE_SECTOR = 128, 512
# Of devices that are cut into units.
UNIT_MAGIC, UNIT_HEAD, UNIT_HEAD_ROOM, INDEX_UNITS = b"BRAIDUNT", 4096, 1 << 20, 2
SECTOR = 4096


# The format's structures


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data, crc=0):
    """The CRC-32C of data, or of what had the CRC crc followed by data."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def siphash(key, data):
    """SipHash-2-4 of data."""
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    a, b, c, d = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)

    def left(number, bits):
        return (number << bits | number >> (64 - bits)) & mask

    def mix(a, b, c, d):
        a, c = (a + b) & mask, (c + d) & mask
        b, d, a = left(b, 13) ^ a, left(d, 16) ^ c, left(a, 32)
        c, a = (c + b) & mask, (a + d) & mask
        return a, left(b, 17) ^ c, left(c, 32), left(d, 21) ^ a

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        a, b, c, d = mix(*mix(a, b, c, d ^ word))
        a ^= word
    a, b, c, d = mix(*mix(*mix(*mix(a, b, c ^ 0xFF, d))))
    return a ^ b ^ c ^ d


class Damaged(Exception):
    """A structure that can't be used; the text says why."""


def check_crc(block, offset):
    """Checks the CRC at offset: that of the block with this field zero."""
    if crc32c(block[:offset] + bytes(4) + block[offset + 4 :]) != struct.unpack_from("<I", block, offset)[0]:
        raise Damaged("its checksum is wrong")


def check_block(block, size, magic, crc_end, versions=VERSIONS):
    """Checks magic, version and CRC, which all blocks have in the same places."""
    if len(block) < size:
        raise Damaged("it has %d bytes and not %d" % (len(block), size))
    if block[:8] != magic:
        raise Damaged("it does not begin with %s" % magic.decode())
    (version,) = struct.unpack_from("<H", block, 8)
    if version not in versions:
        raise Damaged("it has format version %d, and this program knows up to %d" % (version, versions[-1]))
    check_crc(block[:crc_end], 12)
    return version


def check_range_size(size):
    """A range size is a power of two from 64 KiB to 64 MiB."""
    if size & (size - 1) or not RANGE_SIZE_MIN <= size <= RANGE_SIZE_MAX:
        raise Damaged("its range size is %d" % size)


class Label:
    """The label of a tier."""

    def __init__(self, block):
        version = check_block(block, LABEL_SIZE, b"BRAIDTIR", LABEL_SIZE)
        self.key = block[88:104] if version > 1 else None
        self.volume = block[16:32]
        self.number, self.role, namespace, length = struct.unpack_from("<4B", block, 32)
        if self.number >= TIERS_MAX or namespace >= len(NAMESPACES) or length > 48:
            raise Damaged("its fields make no sense")
        self.namespace = NAMESPACES[namespace]
        (self.range_size,) = struct.unpack_from("<I", block, 36)
        check_range_size(self.range_size)
        self.name = block[40 : 40 + length].decode("ascii", "replace")


class VolumeTable:
    """The table of tiers on the home tier."""

    def __init__(self, block):
        version = check_block(block, TABLE_SIZE, b"BRAIDVOL", TABLE_SIZE)
        self.key = block[40:56] if version > 1 else None
        self.volume = block[16:32]
        self.range_size, self.home = struct.unpack_from("<IB", block, 32)
        check_range_size(self.range_size)
        (bits,) = struct.unpack_from("<H", block, 38)
        self.range_size_min = min([self.range_size] + [RANGE_SIZE_MIN << bit for bit in range(11) if bits >> bit & 1])
        slots = [(number, block[64 + 64 * number :]) for number in range(TIERS_MAX)]
        named = [(slot[0], number, slot[2 : 2 + slot[1]].decode("ascii", "replace")) for number, slot in slots]
        self.names = {number: name for state, number, name in named if state == SLOT_IN_USE}
        self.lost_names = {number: name for state, number, name in named if state == SLOT_LOST}


class Attribute:
    """The extended attribute of a spread file's home inode."""

    def __init__(self, value):
        self.version = value[0] if value else 0
        if self.version not in ATTRIBUTE_SIZES:
            raise Damaged("it has version %d" % self.version)
        if len(value) != ATTRIBUTE_SIZES[self.version]:
            raise Damaged("it has %d bytes and not %d" % (len(value), ATTRIBUTE_SIZES[self.version]))
        check_crc(value, 4)
        self.value, self.kind = value, value[1]
        if self.kind not in (KIND_SPREAD, KIND_EMPTIED) + (KIND_WHOLE,) * (self.version > 1):
            raise Damaged("it has version %d and kind %d" % (self.version, self.kind))
        self.id = value[8:24]
        self.ino, self.btime = struct.unpack_from("<Qq", value, 24)
        if self.kind == KIND_WHOLE:
            self.durable, self.tier, self.range_size = value[2] & 1, value[56], 1 << min(value[57], 63)
            check_range_size(self.range_size)

    def verify(self, volume, key):
        """Whether Braid wrote it on this volume, as far as that can be told."""
        if self.version == 1:
            return
        if self.value[40:48] != volume[:8]:
            raise Damaged("it is of another volume, whose id begins with %s" % self.value[40:48].hex())
        bare = self.value[:4] + bytes(4) + self.value[8:48] + bytes(8) + self.value[56:]
        if key is not None and siphash(key, bare) != struct.unpack_from("<Q", self.value, 48)[0]:
            raise Damaged("its MAC is wrong, so Braid did not write it on this volume")


class Header:
    """The header of an index."""

    def __init__(self, block, volume, id_):
        check_block(block, HEADER_SIZE, b"BRAIDIDX", 256, HEADER_VERSIONS)
        if block[16:32] != volume:
            raise Damaged("it belongs to another volume")
        if block[32:48] != id_:
            raise Damaged("it belongs to another file")
        (self.range_size,) = struct.unpack_from("<I", block, 48)
        check_range_size(self.range_size)
        self.ino, self.btime = struct.unpack_from("<Qq", block, 56)


def correct_range_size(block, volume, id_, usual):
    """The range size in a damaged header of this index: before one bit of it
    flipped, or if it is the usual one, which damage does not make. None if
    nothing tells."""
    if block[16:48] == volume + id_ and struct.unpack_from("<I", block, 48) == (usual,):
        return usual
    for bit in range(8 * 256):
        other = bytearray(block)
        other[bit >> 3] ^= 1 << (bit & 7)
        try:
            return Header(bytes(other), volume, id_).range_size
        except Damaged:
            pass
    return None


def size_of_word(block, offset, id_):
    """The size that a size word holds; None if its check is wrong."""
    (word,) = struct.unpack_from("<Q", block, offset)
    size = word & ((1 << 48) - 1)
    crc = crc32c(id_ + struct.pack("<QQ", offset, size)) & 0xFFFF
    return size if word == 0 or crc == word >> 48 else None


def time_owners(block, id_):
    """The tiers that own the modification time and the access time; None if
    that is not known."""
    word = block[OWNERS_WORD : OWNERS_WORD + 8]
    crc = crc32c(id_ + struct.pack("<Q", OWNERS_WORD) + word[:4])
    return (word[1], word[2]) if any(word) and crc == struct.unpack_from("<I", word, 4)[0] else (None, None)


def tier_of_entry(seed, number, word):
    """The tier that an entry names, None if none; Damaged if its check is wrong."""
    if word == 0:
        return None
    low = word & 0xFFFFFFFF
    if crc32c(struct.pack("<QI", number, low), seed) != word >> 32:
        raise Damaged("damaged index entry")
    return low & 0xFF


def correct_entry(seed, number, word):
    """The tier that a damaged entry named before one bit of it flipped; None
    if it was more than one."""
    for bit in range(64):
        try:
            return tier_of_entry(seed, number, word ^ 1 << bit)
        except Damaged:
            pass
    return None


# How long ranges are, by where data is: owners are tiers by the number of their
# entries (None: damaged, it may have said anything), data is pieces by tier


def split(data, size):
    """Pieces of data, cut where ranges begin: (tier, range, start, end) each."""
    for tier, pieces in data.items():
        for start, end in pieces:
            for number in range(start // size, -(-end // size)):
                yield tier, number, max(start, number * size), min(end, (number + 1) * size)


def all_owned(owners, data, size):
    """Whether all data is on the tier that the entry of its range names."""
    return all(number in owners and owners[number] in (tier, None) for tier, number, _, _ in split(data, size))


def shown_data(owners, data, missing, size, file_size):
    """The pieces of data that a file shows, and where those of missing tiers
    may be; None if there is other data where the entry's tier has none, or an
    entry lies behind the end."""
    shown = []

    def show(tier, start, end):
        if shown and shown[-1][0] == tier and shown[-1][2] == start:
            start = shown.pop()[1]
        shown.append((tier, start, end))

    if any(number * size >= file_size for number in owners):
        return None
    for tier, number, start, end in split(data, size):
        if number not in owners:
            return None
        if owners[number] in (tier, None):
            show(tier, start, end)
        elif not covers(data.get(owners[number], []), start, end):
            return None
    for number in sorted(owners):
        if owners[number] in missing:
            show(owners[number], number * size, min(file_size, (number + 1) * size))
    return shown


def covers(pieces, start, end):
    """Whether there is data everywhere between two places."""
    at = max(0, bisect.bisect_right(pieces, (start, end)) - 1)
    while at < len(pieces) and pieces[at][0] <= start < end:
        start = max(start, pieces[at][1])
        at += 1
    return start >= end


# Reading without leaving traces


def open_quietly(path):
    """Opens a file for reading, without a change of its access time if possible."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        fd = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def read_all(fd, size, offset):
    """Size bytes from offset on; fewer only at the end of the file."""
    parts = []
    while size > 0:
        part = os.pread(fd, min(size, CHUNK), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def read_file(path, size):
    """The first size bytes of a file."""
    fd = open_quietly(path)
    try:
        return read_all(fd, size, 0)
    finally:
        os.close(fd)


def birth_time(path):
    """A file's birth time in nanoseconds; None where it can't be had."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    buf = ctypes.create_string_buffer(256)
    at_fdcwd, nofollow, want_btime = -100, 0x100, 0x800
    if statx(at_fdcwd, ctypes.c_char_p(path), nofollow, want_btime, buf) != 0:
        return None
    secs, nanos = struct.unpack_from("=qI", buf, 80)
    return secs * 10**9 + nanos if struct.unpack_from("=I", buf, 0)[0] & want_btime else None


def data_pieces(fd, start, end):
    """The stretches between start and end that are not holes."""
    while start < end:
        try:
            data = os.lseek(fd, start, os.SEEK_DATA)
            hole = os.lseek(fd, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                # The file system can't tell: all of it counts as data.
                yield start, end
            return
        if data >= end:
            return
        yield data, min(hole, end)
        start = hole


def entry_owners(fd, id_):
    """The tiers that an index names, by the numbers of their entries."""
    seed, owners = crc32c(id_), {}
    for start, end in data_pieces(fd, HEADER_SIZE, os.fstat(fd).st_size):
        start -= start % 8
        block = read_all(fd, end - start, start)
        for at in range(0, len(block) - 7, 8):
            (word,) = struct.unpack_from("<Q", block, at)
            if word:
                number = (start + at - HEADER_SIZE) // 8
                try:
                    owners[number] = tier_of_entry(seed, number, word)
                except Damaged:
                    owners[number] = None
    return owners


class FileSource:
    """An open file that holds data."""

    def __init__(self, path):
        self.fd = open_quietly(path)
        info = os.fstat(self.fd)
        self.size, self.mtime_ns = info.st_size, info.st_mtime_ns

    def read(self, length, offset):
        """Up to length bytes; none at the end."""
        return os.pread(self.fd, length, offset)

    def pieces(self, start, end):
        """The stretches between start and end that are not holes."""
        return data_pieces(self.fd, start, end)

    def close(self):
        """Nothing more is read."""
        os.close(self.fd)


class Tier:
    """A tier's directory, as given on the command line."""

    # Why what it says can't be relied on.
    doubt = None

    def __init__(self, name, directory):
        self.name, self.directory = name, os.fsencode(directory)
        self.label = self.number = None
        self.found = {}

    def read_label(self):
        """The bytes of its label."""
        return read_file(self.braid(b"label"), LABEL_SIZE)

    def open(self, id_):
        """The object of a file, for reading."""
        return FileSource(self.found[id_])

    def times(self, id_):
        """Length and times of an object: last write, and last read, 0 if that was never set."""
        info = os.stat(self.found[id_])
        read = 0 if info.st_atime_ns == birth_time(self.found[id_]) else info.st_atime_ns
        return info.st_size, info.st_mtime_ns, read

    def braid(self, *parts):
        """A path below the tier's .braid."""
        return os.path.join(self.directory, b".braid", *parts)

    def list_ids(self, kind):
        """Finds all objects or indexes, in whatever shard they are."""
        for root, _, files in os.walk(self.braid(kind)):
            for file in files:
                if len(file) == 32 and not file.strip(b"0123456789abcdef"):
                    id_ = bytes.fromhex(file.decode())
                    if id_ not in self.found or os.path.basename(root) == file[:2]:
                        self.found[id_] = os.path.join(root, file)


# Tiers on zoned devices


class Runs:
    """Stretches with a value each that neither overlap nor touch with the same one."""

    def __init__(self):
        self.runs = []

    def cut(self, start, end):
        """Removes what is between two places."""
        if start >= end:
            return
        first = max(0, bisect.bisect_right(self.runs, (start,)) - 1)
        last = first
        kept = []
        while last < len(self.runs) and self.runs[last][0] < end:
            low, high, value = self.runs[last]
            if low < start:
                kept.append((low, min(high, start), value))
            if high > end:
                kept.append((end, high, None if value is None else (value[0], value[1] + end - low)))
            last += 1
        self.runs[first:last] = kept

    def put(self, start, end, value=None):
        """Adds a stretch, in place of what is there. A value is a place: its first part goes on with it."""
        self.cut(start, end)
        bisect.insort(self.runs, (start, end, value))

    def within(self, start, end):
        """The parts between two places."""
        at = max(0, bisect.bisect_right(self.runs, (start,)) - 1)
        while at < len(self.runs) and self.runs[at][0] < end:
            low, high, value = self.runs[at]
            first, last = max(low, start), min(high, end)
            if first < last:
                yield first, last, None if value is None else (value[0], value[1] + first - low)
            at += 1


class ZonedObject:
    """An object on a zoned tier: its bytes, and where their blocks are."""

    def __init__(self, id_, block):
        self.id, self.block, self.size, self.mtime_ns, self.atime_ns = id_, block, 0, 0, 0
        self.present, self.blocks = Runs(), Runs()

    def cut(self, start, end):
        """Bytes are gone, and blocks of which no byte is left."""
        self.present.cut(start, end)
        first, last = start // self.block, -(-end // self.block)
        self.blocks.cut(first + self.keeps(first), last - self.keeps(last - 1))

    def keeps(self, block):
        """Whether a byte of a block is left."""
        return any(self.present.within(block * self.block, (block + 1) * self.block))


class ZonedSource:
    """An object on a zoned tier, for reading."""

    def __init__(self, tier, found):
        self.tier, self.found, self.size, self.mtime_ns = tier, found, found.size, found.mtime_ns

    def pieces(self, start, end):
        """The stretches between start and end that were written."""
        return [(low, high) for low, high, _ in self.found.present.within(start, min(end, self.size))]

    def read(self, length, offset):
        """Up to length bytes; none at the end."""
        length = max(0, min(length, self.size - offset))
        data, block = bytearray(length), self.found.block
        for low, high, _ in self.found.present.within(offset, offset + length):
            for first, last, place in self.found.blocks.within(low // block, -(-high // block)):
                if place[0] == NOT_THERE:
                    raise OSError(errno.EIO, "the device has lost this data")
                start, end = max(low, first * block), min(high, last * block)
                part = self.tier.place.read(place[0], place[1] * block + start - first * block, end - start)
                data[start - offset : end - offset] = part
        return bytes(data)

    def close(self):
        """Nothing more is read."""


class ZoneFiles:
    """Zones that are files: of an emulated device, or of a mounted zonefs."""

    def __init__(self, directory):
        self.directory, self.block, self.capacity_of_all = directory, BLOCK, None
        if is_zonefs(directory):
            self.block = max(BLOCK, os.statvfs(directory).f_bsize)
            conventional = os.path.join(directory, b"cnv")
            self.conventional = len(os.listdir(conventional)) if os.path.isdir(conventional) else 0
            return
        text = read_file(os.path.join(directory, os.fsencode(ZONES_FILE)), SECTOR).decode("ascii", "replace")
        lines = text.splitlines()
        try:
            figures = {key: int(value) for key, value in (line.split(" ") for line in lines[1:])}
            self.conventional, self.capacity_of_all = figures["conventional"], figures["capacity"]
        except (ValueError, KeyError, IndexError) as error:
            raise Damaged("it is not the shape of emulated zones") from error
        if not lines or lines[0] != "braid emulated zones 1" or not 0 < self.capacity_of_all <= 1 << 40:
            raise Damaged("it is not the shape of emulated zones")

    def path(self, zone):
        """The file of a zone."""
        sequential = zone - self.conventional
        name = "cnv/%d" % zone if sequential < 0 else "seq/%d" % sequential
        return os.path.join(self.directory, os.fsencode(name))

    def capacity(self, zone):
        """Bytes that a zone can hold."""
        return self.capacity_of_all or os.stat(self.path(zone)).st_blocks * DEVICE_SECTOR

    def written(self, zone):
        """Bytes of a zone that were written; None if it is none for data."""
        try:
            size = min(os.stat(self.path(zone)).st_size, self.capacity(zone))
        except OSError:
            return 0
        return size if zone >= self.conventional else None

    def read(self, zone, offset, length):
        """All bytes of a part of a zone."""
        fd = open_quietly(self.path(zone))
        try:
            data = read_all(fd, length, offset)
        finally:
            os.close(fd)
        if len(data) < length:
            raise OSError(errno.EIO, "zone %d ends before byte %d" % (zone, offset + length))
        return data


class ZoneDevice:
    """Zones of a block device."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        number = os.fstat(self.fd).st_rdev
        granularity = "/sys/dev/block/%d:%d/queue/zone_write_granularity" % (os.major(number), os.minor(number))
        self.block = max(BLOCK, self.ask(BLKSSZGET))
        try:
            self.block = max(self.block, int(read_file(granularity, SECTOR)))
        except (OSError, ValueError):
            pass
        self.stride, count = self.ask(BLKGETZONESZ) * DEVICE_SECTOR, self.ask(BLKGETNRZONES)
        self.zones, self.conventional = [], 0
        while len(self.zones) < count:
            found = self.report(len(self.zones))
            if not found:
                raise Damaged("it reports %d of %d zones" % (len(self.zones), count))
            self.zones += found
        while self.conventional < len(self.zones) and self.zones[self.conventional][1] is None:
            self.conventional += 1

    def ask(self, request):
        """A figure of the device."""
        return struct.unpack("I", fcntl.ioctl(self.fd, request, bytes(4)))[0]

    def report(self, first):
        """Capacity, and bytes written, of some zones."""
        asked = bytearray(16 + 64 * ZONES_AT_A_TIME)
        struct.pack_into("=QII", asked, 0, first * self.stride // DEVICE_SECTOR, ZONES_AT_A_TIME, 0)
        fcntl.ioctl(self.fd, BLKREPORTZONE, asked, True)
        count, flags = struct.unpack_from("=II", asked, 8)
        zones = []
        for number in range(min(count, ZONES_AT_A_TIME)):
            start, length, pointer, kind, condition, capacity = struct.unpack_from("=QQQBB6xQ", asked, 16 + 64 * number)
            capacity = (capacity if flags & 1 else length) * DEVICE_SECTOR // self.block * self.block
            # Open, or closed: else it has no write pointer.
            begun = condition in (2, 3, 4)
            written = (pointer - start) * DEVICE_SECTOR if begun else 0 if condition == 1 else capacity
            zones.append((capacity, None if kind == 1 else written))
        return zones

    def capacity(self, zone):
        """Bytes that a zone can hold."""
        return self.zones[zone][0]

    def written(self, zone):
        """Bytes of a zone that were written; None if it is none for data."""
        return self.zones[zone][1] if zone < len(self.zones) else 0

    def read(self, zone, offset, length):
        """All bytes of a part of a zone."""
        data = read_all(self.fd, length, zone * self.stride + offset)
        if len(data) < length:
            raise OSError(errno.EIO, "zone %d ends before byte %d" % (zone, offset + length))
        return data


class UnitDevice:
    """A block device without zones that is cut into units."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        head = read_all(self.fd, UNIT_HEAD, 0)
        version, crc = struct.unpack_from("<H2xI", head, 8)
        if version != 1:
            raise Damaged("how it is cut into units has format version %d, and this program knows 1" % version)
        if len(head) < UNIT_HEAD or crc32c(head[:12] + bytes(4) + head[16:]) != crc:
            raise Damaged("how it is cut into units can't be read")
        self.unit, self.index, self.count, self.block = struct.unpack_from("<QQII", head, 16)
        self.conventional = INDEX_UNITS

    def capacity(self, zone):
        """Bytes that a zone can hold."""
        return self.index if zone < INDEX_UNITS else self.unit

    def written(self, zone):
        """Bytes of a zone that may have been written; None if it is none for data."""
        if zone < INDEX_UNITS:
            return None
        return self.unit if zone < INDEX_UNITS + self.count else 0

    def read(self, zone, offset, length):
        """All bytes of a part of a zone."""
        before = zone * self.index if zone < INDEX_UNITS else INDEX_UNITS * self.index + (zone - INDEX_UNITS) * self.unit
        data = read_all(self.fd, length, UNIT_HEAD_ROOM + before + offset)
        if len(data) < length:
            raise OSError(errno.EIO, "zone %d ends before byte %d" % (zone, offset + length))
        return data


def zones_at(path):
    """The zones at a path, of the kind that is there."""
    if not is_device(path):
        return ZoneFiles(path)
    with open(path, "rb", buffering=0) as device:
        return (UnitDevice if device.read(SECTOR)[:8] == UNIT_MAGIC else ZoneDevice)(path)


def is_zonefs(directory):
    """Whether a directory is on a mounted zonefs."""
    device = os.stat(directory).st_dev
    number = b"%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", "rb") as mounts:
        return any(number == line.split(b" ")[2] and b" - zonefs " in line for line in mounts)


def is_device(path):
    """Whether a path leads to a block device."""
    return os.path.exists(path) and stat.S_ISBLK(os.stat(path).st_mode)


def tier_at(name, path):
    """The tier at a path, of the kind that is there."""
    zoned = is_device(path) or os.path.lexists(os.path.join(path, ZONES_FILE)) or is_zonefs(path)
    return (ZonedTier if zoned else Tier)(name, path)


class ZonedTier(Tier):
    """A tier on a zoned device, emulated or not."""

    def __init__(self, name, directory):
        super().__init__(name, directory)
        self.objects, self.label_bytes, self.place = {}, None, None
        # Bytes of an object that the last record was about, if those never were durable.
        self.passed_over = None

    def doubts(self, why):
        """What the index says can't be relied on."""
        if self.doubt is None or why.split(" (")[0] not in self.doubt:
            self.doubt = why if self.doubt is None else "%s; %s" % (self.doubt, why)

    def read_label(self):
        """The bytes of its label; reads the index."""
        self.place = zones_at(self.directory)
        self.replay(self.choose_log())
        if self.label_bytes is None:
            raise Damaged("its index has no label")
        return self.label_bytes

    def list_ids(self, kind):
        """Its objects, as the index has them."""
        if kind == b"data":
            for number in sorted(self.objects):
                self.found[self.objects[number].id] = self.objects[number]

    def open(self, id_):
        """The object of a file, for reading."""
        return ZonedSource(self, self.found[id_])

    def times(self, id_):
        """Length and times of an object."""
        found = self.found[id_]
        return found.size, found.mtime_ns, found.atime_ns

    def regions(self):
        """Where the log may be: zone, first byte, length."""
        if self.place.conventional == 1:
            half = self.place.capacity(0) // 2 // self.place.block * self.place.block
            return [(0, 0, half), (0, half, half)]
        return [(zone, 0, self.place.capacity(zone)) for zone in (0, 1)]

    def frames(self, zone, start, length):
        """The frames of a region, in their order: (generation, kind, records); and whether whole ones follow one
        that can't be read."""
        written, block = self.place.written(zone), self.place.block
        written = length if written is None else min(written, length)
        found, at, log = [], 0, None
        while at + block <= written:
            self.check_version(zone, start + at)
            frame = self.frame(zone, start, at, written)
            if frame is None or frame[0][2] != len(found) or log not in (None, frame[0][:2] + frame[0][3:]):
                break
            log = frame[0][:2] + frame[0][3:]
            found.append((frame[0][1], frame[1], frame[2]))
            at += frame[3]
        end, probe = min(written, at + FRAME_PAYLOAD_MAX + 2 * block), at
        while found and probe + block <= end:
            frame = self.frame(zone, start, probe, written)
            if frame is not None and log == frame[0][:2] + frame[0][3:] and frame[0][2] > len(found):
                return found, True
            probe += block
        return found, False

    def check_version(self, zone, at):
        """Tells if a frame is of a newer version: it may be the newest of all."""
        try:
            magic, version = struct.unpack("<8sH", self.place.read(zone, at, 10))
        except OSError:
            return
        if magic == b"BRAIDZLG" and version > FRAME_VERSION:
            self.doubts("a part of its index has format version %d, and this program knows up to %d"
                        % (version, FRAME_VERSION))

    def frame(self, zone, start, at, written):
        """One frame: ((store, generation, sequence, chance), kind, records, length); None if there is none."""
        try:
            head = self.place.read(zone, start + at, FRAME_HEAD)
        except OSError as error:
            self.doubts("a part of its index can't be read (%s)" % error)
            return None
        version, kind, crc, payload = struct.unpack_from("<HHII", head, 8)
        generation, sequence, store, chance = struct.unpack_from("<QQ16sQ", head, 24)
        length = -(-(FRAME_HEAD + payload) // self.place.block) * self.place.block
        if head[:8] != b"BRAIDZLG" or version > FRAME_VERSION or payload > FRAME_PAYLOAD_MAX or at + length > written:
            return None
        try:
            whole = self.place.read(zone, start + at, FRAME_HEAD + payload)
        except OSError as error:
            self.doubts("a part of its index can't be read (%s)" % error)
            return None
        if crc32c(whole[:12] + bytes(4) + whole[16:]) != crc:
            return None
        return (store, generation, sequence, chance), kind, whole[FRAME_HEAD:], length

    def choose_log(self):
        """The newest log whose checkpoint is whole."""
        logs = [self.frames(*region) for region in self.regions()]
        whole = [(frames, broken) for frames, broken in logs if any(kind == CHECKPOINT_END for _, kind, _ in frames)]
        if not whole:
            raise Damaged("it has no index of objects" + (" (%s)" % self.doubt if self.doubt else ""))
        frames, broken = max(whole, key=lambda log: log[0][0][0])
        if broken:
            self.doubts("a part of its index can't be read, and what comes after it was left out")
        elif frames[-1][1] == MOVED_ON:
            self.doubts("its newest index can't be read, and an older one was used")
        return frames

    def replay(self, frames):
        """What the records say of each object."""
        try:
            for number, (_, kind, records) in enumerate(frames):
                # Data is durable before the next frame is begun.
                durable = kind != CHANGES or number + 1 < len(frames)
                for record, fields in self.records(records):
                    self.apply(record, fields, durable)
        except (Damaged, struct.error) as error:
            self.doubts("its index could not be read to its end (%s)" % error)

    def records(self, data):
        """The records of a frame, with their fields."""
        at = 0
        while at < len(data):
            record = data[at]
            at += 1
            if record == 1:
                (length,) = struct.unpack_from("<H", data, at)
                yield 1, data[at + 2 : at + 2 + length]
                at += 2 + length
            elif record in RECORDS:
                yield record, struct.unpack_from(RECORDS[record], data, at)
                at += struct.calcsize(RECORDS[record])
            else:
                raise Damaged("its index has a record of no known kind")

    def apply(self, record, fields, durable):
        """One record."""
        passed_over, self.passed_over = self.passed_over, None
        if record == 1:
            self.label_bytes = fields
        elif record == 9:
            self.label_bytes = None
        elif record == 2:
            self.objects.setdefault(fields[0], ZonedObject(fields[1], self.place.block))
        elif record == 7:
            self.objects.pop(fields[0], None)
        found = self.objects.get(fields[0]) if record in (3, 4, 5, 6) else None
        if found is None:
            return
        if record == 3:
            self.apply_piece(found, fields, durable)
        elif record == 4:
            found.size = fields[1]
            found.cut(fields[1], 1 << 63)
        elif record == 5:
            # Of gaps in what never was durable: what was there before stays.
            if passed_over and (passed_over[0], max(passed_over[1], fields[1])) == fields[:2] and fields[2] <= passed_over[2]:
                self.passed_over = passed_over
            else:
                found.cut(fields[1], fields[2])
        else:
            seconds, nanos, is_set, read_seconds, read_nanos = fields[1:]
            found.mtime_ns = seconds * 10**9 + nanos
            found.atime_ns = read_seconds * 10**9 + read_nanos if is_set else 0

    def apply_piece(self, found, fields, durable):
        """Bytes of an object are in a zone; what is not there was never durable, or is lost."""
        _, start, end, zone, at = fields
        first, last = start // found.block, -(-end // found.block)
        is_there = zone != LOST_ZONE and (at + last - first) * found.block <= (self.place.written(zone) or 0)
        if not is_there and not durable and zone != LOST_ZONE:
            self.passed_over = fields[:3]
            return
        found.blocks.put(first, last, (zone if is_there else NOT_THERE, at))
        found.present.put(start, end)
        found.size = max(found.size, end)


# What is found and what is told


class File:
    """A file to be rebuilt, and what is to be said of it."""

    def __init__(self, kind, name, size):
        self.kind, self.name, self.size = kind, name, size
        self.id, self.runs, self.home, self.never_durable = None, [], None, ()
        self.mtime_owner, self.atime_owner = None, None
        self.range_size = None
        self.lost, self.guessed, self.notes = [], [], []

    def lose(self, why, start=None, end=None):
        """Something is lost: some bytes, or something else."""
        last = self.lost[-1] if self.lost else None
        if last is not None and start is not None and (last["why"], last.get("end")) == (why, start):
            last["end"] = end
        else:
            self.lost.append({"why": why} if start is None else {"start": start, "end": end, "why": why})

    def state(self):
        """In one word."""
        return "lost" if self.lost else "guessed" if self.guessed else "whole"


def show(path):
    """A path for messages, without control characters."""
    text = os.fsdecode(path)
    return "".join(c if c.isprintable() else "\\x%02x" % (ord(c) & 0xFF) for c in text)


class Rescue:
    """One volume and where it is rebuilt."""

    def __init__(self, options, out, messages=sys.stderr, output=sys.stdout):
        self.given, self.home, self.copied, self.json = options.tiers, options.home_tier, options.copied, options.json
        self.out, self.messages, self.output = out, messages, output
        self.tiers, self.names, self.lost_names, self.namespaces = {}, {}, {}, NAMESPACES
        self.volume = self.range_size = self.key = None
        self.unverified, self.marks = False, None
        # Rules may have given files shorter ranges, of any length if nothing tells.
        self.range_size_min = RANGE_SIZE_MIN
        self.links, self.headers = {}, {}
        # Attributes of whole files, by (device, inode number).
        self.whole = {}
        # By (device, inode number): ids of spread files; what is wrong with others.
        self.ids, self.emptied, self.doubts, self.notes = {}, set(), {}, {}
        self.orphans, self.homes = [], {}
        self.count = dict.fromkeys(("files", "spread", "guessed", "lost", "orphans"), 0)

    def say(self, text):
        """A message about the volume."""
        print("rescue: " + text, file=self.messages)

    def report(self, file, listing=False):
        """Tells and counts what there is to say of a file."""
        self.count["files"] += file.kind != "other"
        self.count["spread"] += file.kind in ("spread", "orphan")
        self.count["orphans"] += file.kind == "orphan"
        if file.state() != "whole":
            self.count[file.state()] += 1
        name = show(file.name)
        for lost in file.lost:
            where = "" if "start" not in lost else "bytes %d to %d: " % (lost["start"], lost["end"])
            self.say("%s: lost: %s%s" % (name, where, lost["why"]))
        for text in file.guessed:
            self.say("%s: guessed: %s" % (name, text))
        for text in file.notes:
            self.say("%s: note: %s" % (name, text))
        if self.json:
            record = {"path": os.fsdecode(file.name), "kind": file.kind, "size": file.size, "state": file.state()}
            record.update(lost=file.lost, guessed=file.guessed, notes=file.notes)
            if file.id is not None:
                runs = [{"start": start, "end": end, "tier": self.names.get(tier, tier)} for start, end, tier in file.runs]
                record.update(id=file.id.hex(), runs=runs)
            print(json.dumps(record), file=self.output)
        elif listing:
            self.list(file)

    def list(self, file):
        """Prints a file and where its ranges are."""
        id_ = "" if file.id is None else " " + file.id.hex()
        print("%-6s %s %d%s" % (file.kind, show(file.name), file.size, id_), file=self.output)
        for start, end, tier in file.runs:
            where = "hole" if tier is None else "tier %s" % self.tier_name(tier)
            gone = "" if tier is None or tier in self.tiers else ", not there"
            print("       %d to %d: %s%s" % (start, end, where, gone), file=self.output)

    # The volume

    def load_volume(self):
        """Finds out which directory is which tier. False: nothing to go by."""
        for tier in self.given:
            try:
                tier.label = Label(tier.read_label())
            except (OSError, Damaged) as error:
                self.say("note: label of tier %s in %s: %s" % (tier.name, show(tier.directory), error))
        table, label = None, self.home.label
        try:
            table = VolumeTable(read_file(self.home.braid(b"volume"), TABLE_SIZE))
            self.names, self.lost_names = table.names, table.lost_names
            self.range_size_min = table.range_size_min
        except (OSError, Damaged) as error:
            self.say("note: volume table of the home tier: %s" % error)
        source = label or table
        if source is None:
            self.say("neither label nor volume table of the home tier can be read; is this the home tier?")
            return False
        self.volume, self.range_size = source.volume, source.range_size
        if label is not None:
            if label.role != 1:
                self.say("tier %s is not the volume's home tier" % self.home.name)
                return False
            self.namespaces = (label.namespace,)
        for tier in self.given:
            self.place_tier(tier, table)
        said = [table] + [tier.label for tier in self.given]
        keys = [one.key for one in said if one is not None and one.volume == self.volume and one.key is not None]
        self.key = keys[0] if keys else None
        return True

    def place_tier(self, tier, table):
        """Gives a tier its number, by its label or, if that is damaged, its name."""
        if tier.label is not None:
            if tier.label.volume != self.volume:
                self.say("note: tier %s belongs to another volume and is left out" % tier.name)
                return
            tier.number = tier.label.number
            self.names.setdefault(tier.number, tier.label.name)
            if tier.label.name != tier.name:
                self.say("note: tier %s is called %s by its label" % (tier.name, tier.label.name))
        elif tier is self.home and table is not None:
            tier.number = table.home
        else:
            numbers = [number for number, name in self.names.items() if name == tier.name]
            if not numbers:
                self.say("note: tier %s is not in the volume table and is left out" % tier.name)
                return
            tier.number = numbers[0]
            self.say("note: tier %s is taken for number %d by its name" % (tier.name, tier.number))
        if tier.number in self.tiers:
            self.say("note: tier %s has the same number as %s and is left out" % (tier.name, self.tiers[tier.number].name))
            return
        self.tiers[tier.number] = tier
        tier.list_ids(b"index" if tier is self.home else b"data")

    def tier_name(self, number):
        """A tier's name for messages."""
        if number in self.names:
            return "%d (%s)" % (number, self.names[number])
        # A tier that replaced it has its name.
        return "%d (%s, lost)" % (number, self.lost_names[number]) if number in self.lost_names else str(number)

    def marked(self, id_):
        """Whether the file may be ahead of its home inode."""
        if self.marks is None:
            try:
                self.marks = {name.split(b".")[0] for name in os.listdir(self.home.braid(b"open"))}
            except OSError:
                self.marks = set()
        return id_.hex().encode() in self.marks

    # Which file has which id

    def walk(self):
        """Everything below the home tier's root as (path, name, status, done):
        directories before what is in them, and again, done, after it."""
        stack = [(b"", False)]
        while stack:
            name, done = stack.pop()
            path = os.path.join(self.home.directory, name) if name else self.home.directory
            try:
                info = os.lstat(path)
                children = []
                if stat.S_ISDIR(info.st_mode) and not done:
                    children = sorted((n for n in os.listdir(path) if name or n != b".braid"), reverse=True)
                    stack.append((name, True))
            except OSError as error:
                lost = File("other", name, 0)
                lost.lose(str(error))
                self.report(lost)
                continue
            yield path, name, info, done
            stack.extend((os.path.join(name, child), False) for child in children)

    def attribute(self, path):
        """The id attribute of a file, or None."""
        for namespace in self.namespaces:
            try:
                attribute = Attribute(os.getxattr(path, namespace + "braid.id", follow_symlinks=False))
                if attribute.version > 1 and self.key is None and not self.unverified:
                    self.unverified = True
                    self.say("note: no label or volume table tells the volume's key: whether ids are Braid's is not verified")
                return attribute
            except OSError as error:
                if error.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.EACCES):
                    raise Damaged(str(error)) from error
        return None

    def is_inode(self, what, path, info):
        """Whether an attribute or header is about this inode."""
        if what.ino != info.st_ino:
            return False
        born = birth_time(path)
        return what.btime == 0 or born is None or what.btime == born

    def survey(self):
        """Finds out which file has which id, and which ids no file has."""
        claims, unreadable, strangers = {}, {}, {}
        for path, name, info, _ in self.walk():
            if not stat.S_ISREG(info.st_mode):
                continue
            key = (info.st_dev, info.st_ino)
            try:
                attribute = self.attribute(path)
            except Damaged as error:
                unreadable[key] = error
                continue
            if attribute is None:
                continue
            mine = self.copied or self.is_inode(attribute, path, info)
            try:
                if mine:
                    attribute.verify(self.volume, self.key)
            except Damaged as error:
                unreadable[key] = error
                continue
            if mine:
                claims.setdefault(attribute.id, {}).setdefault(key, name)
                if attribute.kind == KIND_EMPTIED:
                    self.emptied.add(key)
                elif attribute.kind == KIND_WHOLE:
                    self.whole[key] = attribute
            else:
                strangers.setdefault(attribute.id, []).append(key)
        ids = set().union(*(tier.found for tier in self.tiers.values()))
        self.find_homes(ids, claims, unreadable)
        for id_, keys in claims.items():
            self.settle(id_, keys)
        self.orphans = sorted(ids - set(claims))
        for key in (key for id_ in self.orphans for key in strangers.get(id_, [])):
            self.doubts[key] = ("its id names another inode, but no file has that one; its home file was taken as it is."
                                " If these directories are copies of the tiers, use --copied")

    def find_homes(self, ids, claims, unreadable):
        """Files that an index names as its own, but whose id is damaged or not
        there at all."""
        unclaimed = [] if self.copied else ids - set(claims)
        headers = {id_: self.header(id_) for id_ in unclaimed if unreadable or not self.marked(id_)}
        wanted = {header.ino: (id_, header) for id_, header in headers.items() if not isinstance(header, Damaged)}
        for path, name, info, _ in self.walk() if wanted else ():
            id_, header = wanted.get(info.st_ino, (None, None))
            if id_ is None or not stat.S_ISREG(info.st_mode) or not self.is_inode(header, path, info):
                continue
            key = (info.st_dev, info.st_ino)
            if key in unreadable:
                claims.setdefault(id_, {key: name})
                self.notes[key] = "its id can't be used (%s); the index that names its inode was" % unreadable.pop(key)
            elif id_ not in claims and not self.marked(id_):
                self.homes.setdefault(id_, name)
                self.doubts[key] = ("an index names its inode, but it has not that id; the data is %s in the directory of"
                                    " lost data, and here its home file was taken as it is" % id_.hex())
        for key, error in unreadable.items():
            self.doubts[key] = "its id can't be used (%s), and its home file was taken as it is" % error

    def settle(self, id_, keys):
        """One inode can have an id: the one that the index names."""
        header = self.header(id_)
        known = not self.copied and not isinstance(header, Damaged)
        named = [key for key in keys if known and key[1] == header.ino]
        owner = (named or sorted(keys, key=keys.get))[0]
        self.ids[owner] = id_
        if known and not named:
            self.notes[owner] = "its index names inode %d, and was used all the same" % header.ino
        for key in keys:
            if key != owner:
                self.doubts[key] = "it carries the id of %s; its home file was taken as it is" % show(keys[owner])
        if len(keys) > 1 and not named:
            self.doubts[owner] = "other files carry its id too, and which is the right one can't be told"

    def header(self, id_):
        """The header of an index, or the Damaged that says why there is none."""
        if id_ not in self.headers:
            try:
                path = self.home.found.get(id_)
                if path is None:
                    raise Damaged("it is missing")
                self.headers[id_] = Header(read_file(path, HEADER_SIZE), self.volume, id_)
            except OSError as error:
                self.headers[id_] = Damaged(str(error))
            except Damaged as error:
                self.headers[id_] = error
        return self.headers[id_]

    # Where the bytes of a file are

    def file_of(self, path, name, info):
        """A regular file of the tree, with the runs of ranges if it is spread."""
        key = (info.st_dev, info.st_ino)
        id_ = self.ids.get(key)
        file = File("plain" if id_ is None else "spread", name, info.st_size)
        file.home = path
        file.guessed += [self.doubts[key]] if key in self.doubts else []
        file.notes += [self.notes[key]] if key in self.notes else []
        if id_ is not None:
            file.id = id_
            if key in self.emptied:
                file.size = 0
                file.notes.append("it was being truncated to nothing")
            elif key in self.whole:
                self.lay_out_whole(file, self.whole[key], info)
            else:
                self.lay_out(file)
        return file

    def lay_out_whole(self, file, attribute, info):
        """All of a whole file is in one object. That says how long the file is
        if it may be ahead of its home inode."""
        tier = self.tiers.get(attribute.tier)
        file.range_size = attribute.range_size
        file.never_durable = [] if attribute.durable else [attribute.tier]
        file.atime_owner = attribute.tier
        if self.marked(file.id) and tier not in (None, self.home) and file.id in tier.found:
            file.size, written, _ = tier.times(file.id)
            # The home inode knows of a write if it was changed after it.
            file.mtime_owner = attribute.tier if written > info.st_ctime_ns else None
        if file.size > 0:
            file.runs = [(0, file.size, attribute.tier)]

    def lay_out(self, file):
        """Finds the size and the ranges of a spread file."""
        header, fd = self.header(file.id), None
        try:
            fd = open_quietly(self.home.found.get(file.id, b""))
            block = read_all(fd, HEADER_SIZE, 0)
            if len(block) < HEADER_SIZE:
                raise OSError(errno.EINVAL, "it is too short")
            if isinstance(header, Damaged):
                file.notes.append("the header of its index can't be used (%s); its entries check themselves" % header)
            else:
                flags = struct.unpack_from("<%dQ" % TIERS_MAX, block, DURABLE_FLAGS)
                file.never_durable = [tier for tier, flag in enumerate(flags) if flag == 0]
            self.find_size(file, block)
            file.mtime_owner, file.atime_owner = time_owners(block, file.id)
            if isinstance(header, Damaged):
                self.find_range_size(file, fd, block)
            else:
                file.range_size = header.range_size
            self.find_growth(file, fd, block)
            self.find_runs(file, fd)
        except OSError as error:
            self.guess_all(file, header if isinstance(header, Damaged) else error)
        finally:
            if fd is not None:
                os.close(fd)

    def find_size(self, file, block):
        """The size, from the best source that is not damaged."""
        size, synced = (size_of_word(block, at, file.id) for at in (SIZE_WORD, SYNCED_SIZE_WORD))
        # Zeros in place of the header are no header, nor are those behind it words.
        if size is None or not any(block[:512]):
            source = "that of its home file"
            size = file.size if file.home is not None else self.longest(file)
            if synced and (file.home is None or self.marked(file.id)):
                size, source = max(size, synced), "the larger of its last fsync's and its home file's"
            file.guessed.append("its size is damaged; %d, %s, was taken" % (size, source))
        elif synced is not None and synced < size and self.marked(file.id):
            file.notes.append("it was in use: bytes %d to %d were written after its last fsync, and power loss may have"
                              " taken some of them" % (synced, size))
        file.size = size

    def find_growth(self, file, fd, block):
        """The size where a file goes on past it, synced: the length of its part in its last range."""
        end = size_of_word(block, GROWTH_WORD, file.id)
        if not end or file.range_size is None or not end - file.range_size <= file.size <= end:
            return
        number = (end - 1) // file.range_size
        source, _ = self.open_source(file, entry_owners(fd, file.id).get(number))
        if source is None:
            file.guessed.append("it may go on past byte %d, on a tier that can't be asked" % file.size)
            return
        file.size = max(file.size, min(end, source.size))
        source.close()

    def longest(self, file):
        """The length of the longest thing that holds data of a file."""
        return max([source.size for _, source in self.sources(file)], default=0)

    def find_range_size(self, file, fd, block):
        """How long the ranges of a file are whose header can't be used: as far as
        that still tells, or else so that all data is where the entries say. By
        every size of which that is true, the file is the same. If there is none,
        or a tier is not there, what a crash left of a move is passed over, and
        all sizes by which the rest is where the entries say must show the same."""
        file.range_size = correct_range_size(block, self.volume, file.id, self.range_size)
        if file.range_size is not None:
            return
        owners = entry_owners(fd, file.id)
        data = {tier: list(source.pieces(0, file.size)) for tier, source in self.sources(file)}
        missing = set(self.names) - set(self.tiers)
        sizes = [self.range_size] + [1 << bits for bits in range(26, 15, -1)]
        agreeing = [size for size in sizes if not missing and all_owned(owners, data, size)][:1]
        if not agreeing:
            shown = [(size, shown_data(owners, data, missing, size, file.size)) for size in sizes]
            agreeing = [size for size, pieces in shown if pieces is not None]
            if any(pieces != dict(shown)[agreeing[0]] for _, pieces in shown if pieces is not None):
                agreeing = []
        if not agreeing:
            file.guessed.append("nothing tells how long its ranges are; %d bytes, as is usual, was taken" % self.range_size)
        file.range_size = (agreeing or sizes)[0]

    def find_runs(self, file, fd):
        """Runs of neighbouring ranges on the same tier, from the entries."""
        seed, size = crc32c(file.id), file.range_size
        ranges = -(-file.size // size)
        for first in range(0, ranges, CHUNK // 8):
            count = min(CHUNK // 8, ranges - first)
            block = read_all(fd, 8 * count, HEADER_SIZE + 8 * first).ljust(8 * count, b"\0")
            for number, (word,) in enumerate(struct.iter_unpack("<Q", block), first):
                start, end = number * size, min(file.size, (number + 1) * size)
                try:
                    tier = tier_of_entry(seed, number, word)
                except Damaged as error:
                    tier = correct_entry(seed, number, word)
                    if tier is not None:
                        file.notes.append("bytes %d to %d: one bit of their index entry was corrected" % (start, end))
                    else:
                        tier = self.guess_tier(file, start, end, str(error))
                self.add_run(file, start, end, tier)

    def add_run(self, file, start, end, tier):
        """Adds a range to the runs."""
        if file.runs and file.runs[-1][2] == tier:
            start = file.runs.pop()[0]
        file.runs.append((start, end, tier))

    def guess_all(self, file, why):
        """Without an index, each range is where there is data."""
        file.guessed.append("its index can't be used (%s); where its ranges are was guessed by where there is data" % why)
        file.runs = []
        if file.home is None or self.marked(file.id):
            file.size = max(file.size, self.longest(file))
        for start in range(0, file.size, self.range_size):
            self.guess_piece(file, start, min(file.size, start + self.range_size))

    def guess_piece(self, file, start, end):
        """A stretch without an index. Its ranges may be shorter than is usual, if
        there are such files: where several tiers have data in it, its halves may
        tell."""
        if end - start > self.range_size_min and len(self.holders(file, start, end)) > 1:
            middle = start + max(self.range_size_min, 1 << (end - start - 1).bit_length() - 1)
            self.guess_piece(file, start, middle)
            self.guess_piece(file, middle, end)
        else:
            self.add_run(file, start, end, self.guess_tier(file, start, end, None))

    def holders(self, file, start, end):
        """The tiers that have data of a file there, with the time of its last write."""
        return [(source.mtime_ns, tier) for tier, source in self.sources(file)
                if next(iter(source.pieces(start, end)), None) is not None]

    def guess_tier(self, file, start, end, why):
        """The tier that has data where the index does not say; the one written
        last if there are several."""
        holders = self.holders(file, start, end)
        if why is not None and not holders:
            file.lose(why + ", and no tier has data there", start, end)
        elif why is not None or len(holders) > 1:
            names = " and ".join(self.tier_name(tier) for _, tier in sorted(holders, reverse=True))
            file.guessed.append("bytes %d to %d: %s; taken from the first of the tiers with data there: %s"
                                % (start, end, why or "no index", names))
        return max(holders)[1] if holders else None

    def sources(self, file):
        """What there is with data of a file: (tier, source) each."""
        for number in sorted(self.tiers):
            source, _ = self.open_source(file, number)
            if source is not None:
                try:
                    yield number, source
                finally:
                    source.close()

    def open_source(self, file, number):
        """What holds a file's ranges on a tier: (source, None), or (None, why not)."""
        tier = self.tiers.get(number)
        if tier is None:
            return None, "tier %s is not there" % self.tier_name(number)
        if (file.home if tier is self.home else tier.found.get(file.id)) is None:
            what = "its home file is not known" if tier is self.home else "its object is missing"
            return None, "tier %s: %s" % (self.tier_name(number), what)
        try:
            return FileSource(file.home) if tier is self.home else tier.open(file.id), None
        except OSError as error:
            return None, "tier %s: %s" % (self.tier_name(number), error)

    # Data

    def copy_piece(self, source, sink, offset, length, file):
        """Copies up to length bytes; how many, 0 at the end of the source."""
        try:
            data = source.read(length, offset)
        except OSError as error:
            if length > SECTOR:
                # Only the sectors that are bad are given up.
                return self.copy_piece(source, sink, offset, SECTOR * max(1, length // SECTOR // 2), file)
            file.lose(str(error), offset, offset + length)
            return length
        view = memoryview(data)
        while view:
            done = os.pwrite(sink, view, offset)
            view, offset = view[done:], offset + done
        return len(data)

    def copy_run(self, file, source, sink, start, end):
        """Copies what is not a hole; what can't be read is zeros."""
        for offset, hole in source.pieces(start, end):
            while offset < hole:
                done = self.copy_piece(source, sink, offset, min(CHUNK, hole - offset), file)
                if done == 0:
                    return
                offset += done

    def copy_data(self, file, target):
        """Overlays the pieces of a file. With no target, only says what is lost."""
        runs = file.runs if file.id is not None else [(0, file.size, self.home.number)]
        sink = None if target is None else os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        sources = {}
        try:
            for start, end, tier in runs:
                if tier is None:
                    continue
                if tier not in sources:
                    sources[tier] = self.open_source(file, tier)
                    if sources[tier][0] is not None and self.tiers[tier].doubt is not None:
                        file.guessed.append("tier %s: %s" % (self.tier_name(tier), self.tiers[tier].doubt))
                source, why_not = sources[tier]
                if source is None:
                    self.not_there(file, start, end, tier, why_not)
                elif sink is not None:
                    self.copy_run(file, source, sink, start, end)
            if sink is not None:
                os.ftruncate(sink, file.size)
        finally:
            for source in [source for source, _ in sources.values() if source is not None]:
                source.close()
            if sink is not None:
                os.close(sink)

    def not_there(self, file, start, end, number, why):
        """Data is missing, which is a loss if it was ever made durable."""
        tier = self.tiers.get(number)
        if tier not in (None, self.home) and number in file.never_durable and file.id not in tier.found:
            file.notes.append("bytes %d to %d: %s, and was never durable; they are zeros" % (start, end, why))
        else:
            file.lose(why, start, end)

    def owner_mtime(self, file):
        """The time of the last write by its tier, for a file that was in use
        when Braid ended; 0 where the home inode knows better."""
        tier = self.tiers.get(file.mtime_owner)
        if tier in (None, self.home) or file.id not in tier.found or not self.marked(file.id):
            return 0
        return tier.times(file.id)[1]

    def owner_atime(self, file):
        """The time of the last read by its tier, if that was ever set; 0 where
        the home inode knows better."""
        tier = self.tiers.get(file.atime_owner)
        if tier in (None, self.home) or file.id not in tier.found:
            return 0
        return tier.times(file.id)[2]

    # The tree

    def make(self, path, target, info, file):
        """Makes what is no regular file in the output, and gives all attributes."""
        atime, mtime = 0, 0
        if stat.S_ISDIR(info.st_mode):
            if target != self.out:
                os.mkdir(target, 0o700)
            return
        if stat.S_ISREG(info.st_mode):
            atime, mtime = self.owner_atime(file), self.owner_mtime(file)
        elif stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(path), target)
        else:
            os.mknod(target, stat.S_IFMT(info.st_mode) | 0o600, info.st_rdev)
        self.copy_attributes(path, target, info, (atime, mtime), file)

    def copy_attributes(self, path, target, info, times, file):
        """Owner, mode, extended attributes and times."""
        if os.geteuid() == 0:
            os.chown(target, info.st_uid, info.st_gid, follow_symlinks=False)
        own = {namespace + "braid.id" for namespace in self.namespaces}
        try:
            xattrs = [x for x in os.listxattr(path, follow_symlinks=False) if x not in own]
        except OSError as error:
            xattrs = []
            if error.errno != errno.ENOTSUP:
                file.lose("extended attributes: %s" % error)
        for xattr in xattrs:
            try:
                value = os.getxattr(path, xattr, follow_symlinks=False)
                os.setxattr(target, xattr, value, follow_symlinks=False)
            except OSError as error:
                file.lose("extended attribute %s: %s" % (xattr, error))
        if not stat.S_ISLNK(info.st_mode):
            os.chmod(target, stat.S_IMODE(info.st_mode))
        times = max(info.st_atime_ns, times[0]), max(info.st_mtime_ns, times[1])
        os.utime(target, ns=times, follow_symlinks=False)

    def visit(self, path, name, info, done):
        """Lists or rebuilds one thing of the tree."""
        target = None if self.out is None else os.path.join(self.out, name) if name else self.out
        file = File("other", name, 0)
        try:
            if done:
                if target is not None:
                    self.copy_attributes(path, target, info, (0, 0), file)
            elif info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode) and self.is_known(name, info):
                first = self.links[(info.st_dev, info.st_ino)]
                if target is not None:
                    os.link(os.path.join(self.out, first), target, follow_symlinks=False)
                elif not self.json:
                    print("link   %s -> %s" % (show(name), show(first)), file=self.output)
            else:
                if stat.S_ISREG(info.st_mode):
                    file = self.file_of(path, name, info)
                    self.copy_data(file, target)
                if target is not None:
                    self.make(path, target, info, file)
        except OSError as error:
            file.lose(str(error))
        if file.kind != "other" or file.lost:
            self.report(file, self.out is None)

    def is_known(self, name, info):
        """Whether the inode was met by another name before."""
        return self.links.setdefault((info.st_dev, info.st_ino), name) != name

    def visit_orphans(self):
        """Lists or rebuilds what no file leads to."""
        taken = set(os.listdir(self.home.directory))
        place = next(n for n in (b"lost+found.braid" + b"-" * dashes for dashes in range(len(taken) + 1)) if n not in taken)
        for id_ in self.orphans:
            if self.marked(id_):
                self.say("note: %s: no file leads to it, because its file was being removed" % id_.hex())
                continue
            file = File("orphan", os.path.join(place, id_.hex().encode()), 0)
            file.id = id_
            if id_ in self.homes:
                file.home = os.path.join(self.home.directory, self.homes[id_])
                file.notes.append("its index names the inode of %s" % show(self.homes[id_]))
                file.size = os.stat(file.home).st_size
            self.lay_out(file)
            if self.out is not None:
                os.makedirs(os.path.join(self.out, place), mode=0o700, exist_ok=True)
            self.copy_data(file, None if self.out is None else os.path.join(self.out, file.name))
            self.report(file, self.out is None)

    def run(self):
        """Does all of it; the exit status."""
        if not self.load_volume():
            return 1
        self.survey()
        for path, name, info, done in self.walk():
            self.visit(path, name, info, done)
        self.visit_orphans()
        if self.json:
            print(json.dumps({"summary": self.count}), file=self.output)
        self.say("%(files)d files, %(spread)d of them spread; %(lost)d with losses, %(guessed)d guessed, %(orphans)d that"
                 " no name leads to" % self.count)
        return 1 if self.count["lost"] or self.count["guessed"] or self.count["orphans"] else 0


# The command line


def parse(arguments):
    """The command line; argparse exits with status 2 on wrong usage."""
    parser = argparse.ArgumentParser(
        prog="rescue.py", description="Rebuild every file of a Braid volume from its tiers, without Braid.")
    parser.add_argument("--tier", action="append", default=[], metavar="NAME=DIR", required=True,
                        help="a tier's name and directory or zoned device; leave out tiers that are lost")
    parser.add_argument("--home", required=True, metavar="NAME", help="the tier that holds the names")
    parser.add_argument("--copied", action="store_true",
                        help="the directories are copies: inode numbers and birth times say nothing")
    parser.add_argument("--list", action="store_true", help="only list files and where their ranges are")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each file and one in the end")
    parser.add_argument("out", nargs="?", metavar="OUT", help="directory to rebuild in; new or empty")
    options = parser.parse_args(arguments)
    options.tiers = []
    for text in options.tier:
        name, equals, directory = text.partition("=")
        if not equals or not name or not directory:
            parser.error("--tier %s: not of the form NAME=DIR" % text)
        if not os.path.isdir(directory) and not is_device(directory):
            parser.error("--tier %s: %s is not a directory, and no device" % (name, directory))
        if name in [tier.name for tier in options.tiers]:
            parser.error("--tier %s is given twice" % name)
        options.tiers.append(tier_at(name, directory))
    homes = [tier for tier in options.tiers if tier.name == options.home]
    if not homes:
        parser.error("--home %s: no --tier has that name" % options.home)
    options.home_tier = homes[0]
    check_out(parser, options)
    return options


def check_out(parser, options):
    """Refuses an output directory that is in the way of anything."""
    if options.list:
        if options.out is not None:
            parser.error("--list takes no OUT")
        return
    if options.out is None:
        parser.error("OUT is missing")
    out = os.path.realpath(options.out)
    for tier in options.tiers:
        place = os.path.realpath(os.fsdecode(tier.directory))
        if os.path.commonpath([out, place]) in (out, place):
            parser.error("OUT %s and tier %s are inside one another" % (options.out, tier.name))
    if os.path.lexists(options.out) and (not os.path.isdir(options.out) or os.listdir(options.out)):
        parser.error("OUT %s exists and is not an empty directory" % options.out)


def main(arguments=None):
    """The program; returns its exit status."""
    options = parse(arguments)
    if not options.list:
        os.makedirs(options.out, mode=0o700, exist_ok=True)
    return Rescue(options, None if options.list else os.fsencode(options.out)).run()


if __name__ == "__main__":
    sys.exit(main())
