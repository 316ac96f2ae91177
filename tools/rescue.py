#!/usr/bin/env python3
"""Rebuild every file of a Braid volume from the directories of its tiers.

Needs neither Braid nor anything beyond Python's standard library (3.9 or
newer), and never writes into a tier. docs/format.md describes what it reads.

    rescue.py --tier fast=/mnt/nvme --tier slow=/mnt/sata --home fast OUT

Leave out a tier that is lost: files without data on it come out whole, and
for the others it is said which bytes are missing. Those are zeros in OUT.

Exit status: 0 everything was rebuilt, 1 something was not (see the messages),
2 wrong usage.
"""

import argparse
import ctypes
import errno
import os
import stat
import struct
import sys

VERSION = 1
LABEL_SIZE = 512
TABLE_SIZE = 4096
HEADER_SIZE = 4096
ATTRIBUTE_SIZE = 40
TIERS_MAX = 63
NAMESPACES = ("trusted.", "user.")
KIND_SPREAD = 1
KIND_EMPTIED = 2
SIZE_WORD = 256
FSYNC_SIZE_WORD = 264
OWNERS_WORD = 272
CHUNK = 1 << 20
SECTOR = 4096


# CRC-32C


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


def crc_is_right(block, offset=12):
    """Whether the CRC at offset is that of the block with this field zero."""
    (stored,) = struct.unpack_from("<I", block, offset)
    return crc32c(block[:offset] + bytes(4) + block[offset + 4 :]) == stored


# The format's structures


class Damaged(Exception):
    """A structure that can't be used; the text says why."""


def check_block(block, size, magic, crc_end):
    """Checks magic, version and CRC, which all blocks have in the same places."""
    if len(block) < size:
        raise Damaged("it has %d bytes and not %d" % (len(block), size))
    if block[:8] != magic:
        raise Damaged("it does not begin with %s" % magic.decode())
    (version,) = struct.unpack_from("<H", block, 8)
    if version != VERSION:
        raise Damaged("it has format version %d, and this program knows %d" % (version, VERSION))
    if not crc_is_right(block[:crc_end]):
        raise Damaged("its checksum is wrong")


class Label:
    """The label of a tier."""

    def __init__(self, block):
        check_block(block, LABEL_SIZE, b"BRAIDTIR", LABEL_SIZE)
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
        check_block(block, TABLE_SIZE, b"BRAIDVOL", TABLE_SIZE)
        self.volume = block[16:32]
        self.range_size, self.home = struct.unpack_from("<IB", block, 32)
        check_range_size(self.range_size)
        self.names = {}
        for number in range(TIERS_MAX):
            at = 64 + 64 * number
            if block[at] == 1:
                self.names[number] = block[at + 2 : at + 2 + block[at + 1]].decode("ascii", "replace")


class Attribute:
    """The extended attribute of a spread file's home inode."""

    def __init__(self, value):
        if len(value) != ATTRIBUTE_SIZE:
            raise Damaged("it has %d bytes and not %d" % (len(value), ATTRIBUTE_SIZE))
        self.version, self.kind = value[0], value[1]
        self.id = value[8:24]
        self.ino, self.btime = struct.unpack_from("<Qq", value, 24)
        if not crc_is_right(value, 4):
            raise Damaged("its checksum is wrong")
        if self.version != VERSION or self.kind not in (KIND_SPREAD, KIND_EMPTIED):
            raise Damaged("it has version %d and kind %d" % (self.version, self.kind))


class Header:
    """The header of an index."""

    def __init__(self, block, volume, id_):
        check_block(block, HEADER_SIZE, b"BRAIDIDX", 256)
        if volume is not None and block[16:32] != volume:
            raise Damaged("it belongs to another volume")
        if block[32:48] != id_:
            raise Damaged("it belongs to another file")
        (self.range_size,) = struct.unpack_from("<I", block, 48)
        check_range_size(self.range_size)
        self.ino, self.btime = struct.unpack_from("<Qq", block, 56)


def check_range_size(size):
    """A range size is a power of two from 64 KiB to 64 MiB."""
    if size & (size - 1) or not 1 << 16 <= size <= 1 << 26:
        raise Damaged("its range size is %d" % size)


def size_of_word(block, offset, id_):
    """The size that a size word holds; None if its checksum is wrong."""
    (word,) = struct.unpack_from("<Q", block, offset)
    if word == 0:
        return 0
    size = word & ((1 << 48) - 1)
    crc = crc32c(id_ + struct.pack("<QQ", offset, size)) & 0xFFFF
    return size if crc == word >> 48 else None


def owners_of_word(block, id_):
    """Owners of size, mtime and atime; (None, None, None) if not known."""
    word = block[OWNERS_WORD : OWNERS_WORD + 8]
    if not any(word):
        return (None, None, None)
    (stored,) = struct.unpack_from("<I", word, 4)
    if crc32c(id_ + struct.pack("<Q", OWNERS_WORD) + word[:4]) != stored:
        return (None, None, None)
    return tuple(word[:3])


# Reading without leaving traces


def open_quietly(path):
    """Opens a file for reading, without a change of its access time if possible."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


def read_file(path, size):
    """The first size bytes of a file."""
    fd = open_quietly(path)
    try:
        return read_all(fd, size, 0)
    finally:
        os.close(fd)


def read_all(fd, size, offset):
    """Up to size bytes from offset on; fewer only at the end of the file."""
    parts = []
    while size > 0:
        part = os.pread(fd, min(size, CHUNK), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


_STATX_BTIME = 0x800
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100


def birth_time(path):
    """A file's birth time in nanoseconds; None where it can't be had."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    buf = ctypes.create_string_buffer(256)
    if statx(_AT_FDCWD, ctypes.c_char_p(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, buf) != 0:
        return None
    (mask,) = struct.unpack_from("=I", buf, 0)
    secs, nanos = struct.unpack_from("=qI", buf, 80)
    return secs * 10**9 + nanos if mask & _STATX_BTIME else None


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


class Tier:
    """A tier's directory, as given on the command line."""

    def __init__(self, name, directory):
        self.name = name
        self.directory = os.fsencode(directory)
        self.label = None
        self.number = None

    def braid(self, *parts):
        """A path below the tier's .braid."""
        return os.path.join(self.directory, b".braid", *parts)

    def of_id(self, kind, id_):
        """The path of a spread file's object or index."""
        text = id_.hex().encode()
        return self.braid(kind, text[:2], text)


class Run:
    """Neighbouring ranges that lie on the same tier, or a hole (tier None)."""

    def __init__(self, start, end, tier, why=None):
        self.start, self.end, self.tier, self.why = start, end, tier, why


class Layout:
    """Where the bytes of a spread file are."""

    def __init__(self, id_, size, runs, mtime_owner=None, emptied=False):
        self.id, self.size, self.runs = id_, size, runs
        self.mtime_owner, self.emptied = mtime_owner, emptied


def show(path):
    """A path for messages, without control characters."""
    text = os.fsdecode(path)
    return "".join(c if c.isprintable() else "\\x%02x" % (ord(c) & 0xFF) for c in text)


class Rescue:
    """One volume and where it is rebuilt."""

    def __init__(self, tiers, home, out, copied=False, messages=sys.stderr, output=sys.stdout):
        self.given, self.home, self.out = tiers, home, out
        self.copied, self.messages, self.output = copied, messages, output
        self.problems = 0
        self.files = 0
        self.spread_files = 0
        self.tiers = {}
        self.names = {}
        self.volume = None
        self.range_size = None
        self.namespaces = NAMESPACES
        self.links = {}
        self.owners = {}
        self.strangers = []
        self.by_ino = None

    # Messages

    def problem(self, text):
        """Something could not be rebuilt."""
        self.problems += 1
        print("rescue: " + text, file=self.messages)

    def note(self, text):
        """Something that does no harm."""
        print("rescue: note: " + text, file=self.messages)

    # The volume

    def load_volume(self):
        """Finds out which directory is which tier. False: nothing to go by."""
        for tier in self.given:
            try:
                tier.label = Label(read_file(tier.braid(b"label"), LABEL_SIZE))
            except (OSError, Damaged) as error:
                self.problem("label of tier %s in %s: %s" % (tier.name, show(tier.directory), error))
        table = None
        try:
            table = VolumeTable(read_file(self.home.braid(b"volume"), TABLE_SIZE))
            self.names = table.names
        except (OSError, Damaged) as error:
            self.problem("volume table of the home tier: %s" % error)
        label = self.home.label
        source = label or table
        if source is None:
            self.problem("neither label nor volume table of the home tier can be read; is this the home tier?")
            return False
        self.volume, self.range_size = source.volume, source.range_size
        if label is not None:
            if label.role != 1:
                self.problem("tier %s is not the volume's home tier" % self.home.name)
                return False
            self.namespaces = (label.namespace,)
        for tier in self.given:
            self.place_tier(tier, table)
        return True

    def place_tier(self, tier, table):
        """Gives a tier its number, by its label or, if that is damaged, its name."""
        if tier.label is not None:
            if tier.label.volume != self.volume:
                self.problem("tier %s belongs to another volume and is left out" % tier.name)
                return
            tier.number = tier.label.number
            self.names.setdefault(tier.number, tier.label.name)
            if tier.label.name != tier.name:
                self.note("tier %s is called %s by its label" % (tier.name, tier.label.name))
        elif tier is self.home and table is not None:
            tier.number = table.home
        else:
            numbers = [number for number, name in self.names.items() if name == tier.name]
            if not numbers:
                self.problem("tier %s is not in the volume table and is left out" % tier.name)
                return
            tier.number = numbers[0]
            self.note("tier %s is taken for number %d by its name" % (tier.name, tier.number))
        if tier.number in self.tiers:
            self.problem("tier %s has the same number as %s and is left out"
                         % (tier.name, self.tiers[tier.number].name))
            return
        self.tiers[tier.number] = tier

    def tier_name(self, number):
        """A tier's name for messages."""
        return "%d (%s)" % (number, self.names[number]) if number in self.names else str(number)

    # Layouts

    def attribute_value(self, path):
        """The id attribute of a file as bytes, or None."""
        for namespace in self.namespaces:
            try:
                return os.getxattr(path, namespace + "braid.id", follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.EACCES):
                    raise
        return None

    def layout(self, path, name, info):
        """The layout of a regular file; None if it is a plain file."""
        try:
            value = self.attribute_value(path)
        except OSError as error:
            self.problem("%s: reading its id: %s" % (show(name), error))
            return None
        if value is None:
            return None
        try:
            attribute = Attribute(value)
        except Damaged as error:
            return self.layout_without_attribute(name, info, error)
        if not self.copied and not self.is_own(attribute, path, info):
            self.strangers.append((attribute.id, name))
            return None
        if not self.claim(attribute.id, name):
            return None
        if attribute.kind == KIND_EMPTIED:
            return Layout(attribute.id, 0, [], emptied=True)
        return self.read_index(attribute.id, name, info)

    def is_own(self, attribute, path, info):
        """Whether an attribute is about the inode that carries it."""
        if attribute.ino != info.st_ino:
            return False
        born = birth_time(path)
        return attribute.btime == 0 or born is None or attribute.btime == born

    def claim(self, id_, name):
        """Notes whose data an id stands for; only one inode can have it."""
        other = self.owners.setdefault(id_, name)
        if other == name:
            return True
        self.problem("%s: carries the id of %s, and which of the two is the spread file can't be told;"
                     " its home file was taken as it is" % (show(name), show(other)))
        return False

    def layout_without_attribute(self, name, info, error):
        """What is known of a file whose attribute is damaged: the index that
        names its inode, if there is one."""
        id_ = None if self.copied else self.ids_by_inode().get(info.st_ino)
        if id_ is None or not self.claim(id_, name):
            self.problem("%s: its id can't be used (%s), and its home file was taken as it is"
                         % (show(name), error))
            return None
        self.problem("%s: its id can't be used (%s); the index that names its inode was" % (show(name), error))
        return self.read_index(id_, name, info)

    def ids_by_inode(self):
        """The ids of all indexes by the inode numbers in their headers."""
        if self.by_ino is not None:
            return self.by_ino
        self.by_ino = {}
        for root, _, files in os.walk(self.home.braid(b"index")):
            for file in files:
                try:
                    id_ = bytes.fromhex(file.decode("ascii"))
                    header = Header(read_file(os.path.join(root, file), HEADER_SIZE), self.volume, id_)
                except (ValueError, OSError, Damaged):
                    continue
                self.by_ino[header.ino] = id_
        return self.by_ino

    def read_index(self, id_, name, info):
        """The layout that a file's index describes."""
        path = self.home.of_id(b"index", id_)
        try:
            fd = open_quietly(path)
        except OSError as error:
            self.problem("%s: its index can't be read (%s); all that is not on the home tier is missing"
                         % (show(name), error))
            return None
        try:
            block = read_all(fd, HEADER_SIZE, 0)
            block += bytes(HEADER_SIZE - len(block))
            range_size = self.header_range_size(block, id_, name, info)
            size = self.size(block, id_, name, info)
            runs = list(self.runs(fd, id_, name, size, range_size))
        finally:
            os.close(fd)
        return Layout(id_, size, runs, owners_of_word(block, id_)[1])

    def header_range_size(self, block, id_, name, info):
        """Checks an index header; the range size that it or the volume has."""
        try:
            header = Header(block, self.volume, id_)
        except Damaged as error:
            self.problem("%s: the header of its index can't be used (%s); its entries were"
                         % (show(name), error))
            return self.range_size
        if not self.copied and header.ino != info.st_ino:
            self.problem("%s: its index names inode %d and not %d; it was used all the same"
                         % (show(name), header.ino, info.st_ino))
        return header.range_size

    def size(self, block, id_, name, info):
        """The size of a spread file, from the best source that is not damaged."""
        size = size_of_word(block, SIZE_WORD, id_)
        if size is not None:
            return size
        size = size_of_word(block, FSYNC_SIZE_WORD, id_)
        source = "the one of its last fsync"
        if not size:
            size, source = info.st_size, "that of its home file"
        self.problem("%s: its size is damaged; %d, %s, was taken" % (show(name), size, source))
        return size

    def runs(self, fd, id_, name, size, range_size):
        """Runs of neighbouring ranges on the same tier, from the entries."""
        seed = crc32c(id_)
        ranges = -(-size // range_size)
        last = None
        step = CHUNK // 8
        for first in range(0, ranges, step):
            count = min(step, ranges - first)
            block = read_all(fd, 8 * count, HEADER_SIZE + 8 * first)
            block += bytes(8 * count - len(block))
            for number, (low, crc) in enumerate(struct.iter_unpack("<II", block), first):
                tier, why = None, None
                if low or crc:
                    if crc32c(struct.pack("<QI", number, low), seed) == crc:
                        tier, why = low & 0xFF, (low >> 8) & 0xFF
                    else:
                        self.problem("%s: bytes %d to %d: damaged index entry; zeros in their place"
                                     % (show(name), number * range_size, min(size, (number + 1) * range_size)))
                if last is not None and (last.tier, last.why) == (tier, why):
                    last.end = min(size, (number + 1) * range_size)
                    continue
                if last is not None:
                    yield last
                last = Run(number * range_size, min(size, (number + 1) * range_size), tier, why)
        if last is not None:
            yield last

    # Data

    def copy_data(self, source, sink, start, end, name):
        """Copies what is not a hole; what can't be read is zeros and reported."""
        for data, hole in data_pieces(source, start, end):
            offset = data
            while offset < hole:
                length = min(CHUNK, hole - offset)
                done = self.copy_piece(source, sink, offset, length, name)
                if done == 0:
                    break
                offset += done

    def copy_piece(self, source, sink, offset, length, name):
        """Copies up to length bytes; how many, 0 at the end of the source."""
        try:
            data = os.pread(source, length, offset)
        except OSError as error:
            if length > SECTOR:
                # Only the sectors that are bad are given up.
                return self.copy_piece(source, sink, offset, SECTOR * max(1, length // SECTOR // 2), name)
            self.problem("%s: bytes %d to %d: %s; zeros in their place"
                         % (show(name), offset, offset + length, error))
            return length
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += os.pwrite(sink, view[written:], offset + written)
        return len(data)

    def copy_plain(self, path, target, name):
        """Copies a plain file."""
        source = open_quietly(path)
        try:
            sink = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(source).st_size
                self.copy_data(source, sink, 0, size, name)
                os.ftruncate(sink, size)
            finally:
                os.close(sink)
        finally:
            os.close(source)

    def copy_spread(self, path, target, name, layout):
        """Overlays the ranges of a spread file; its mtime by its owner if newer."""
        sources = {}
        mtime = 0
        sink = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for run in layout.runs:
                if run.tier is None:
                    continue
                if run.tier not in sources:
                    sources[run.tier] = self.open_source(run.tier, path, layout, name)
                source, why_not = sources[run.tier]
                if source is None:
                    self.problem("%s: bytes %d to %d: %s; zeros in their place"
                                 % (show(name), run.start, run.end, why_not))
                else:
                    self.copy_data(source, sink, run.start, run.end, name)
            os.ftruncate(sink, layout.size)
            mtime = self.owner_mtime(layout)
        finally:
            os.close(sink)
            for source, _ in sources.values():
                if source is not None:
                    os.close(source)
        return mtime

    def open_source(self, number, path, layout, name):
        """What holds a file's ranges on a tier: (descriptor, None), or (None, why not)."""
        tier = self.tiers.get(number)
        if tier is None:
            return None, "tier %s is not there" % self.tier_name(number)
        place = path if tier is self.home else tier.of_id(b"data", layout.id)
        try:
            return open_quietly(place), None
        except OSError as error:
            return None, "object on tier %s: %s" % (self.tier_name(number), error)

    def owner_mtime(self, layout):
        """The time of the last write by its tier, for a file that was open when
        Braid ended; 0 where the home inode knows better."""
        tier = self.tiers.get(layout.mtime_owner)
        marked = os.path.lexists(self.home.braid(b"open", layout.id.hex().encode()))
        if not marked or tier is None or tier is self.home:
            return 0
        try:
            return os.stat(tier.of_id(b"data", layout.id)).st_mtime_ns
        except OSError:
            return 0

    # The tree

    def walk(self, visit, leave):
        """Calls visit for everything below the home tier's root and, after what
        is in it, leave for each directory."""
        stack = [(b"", False)]
        while stack:
            name, done = stack.pop()
            path = os.path.join(self.home.directory, name) if name else self.home.directory
            try:
                info = os.lstat(path)
                if done:
                    leave(path, name, info)
                    continue
                visit(path, name, info)
                if not stat.S_ISDIR(info.st_mode):
                    continue
                stack.append((name, True))
                children = [n for n in os.listdir(path) if name or n != b".braid"]
            except OSError as error:
                self.problem("%s: %s" % (show(name or b"the root"), error))
                continue
            stack.extend((os.path.join(name, child), False) for child in sorted(children, reverse=True))

    def rebuild_one(self, path, name, info):
        """Makes one file, directory or other inode in the output."""
        target = os.path.join(self.out, name) if name else self.out
        mode = info.st_mode
        if stat.S_ISDIR(mode):
            if name:
                os.mkdir(target, 0o700)
            return
        if info.st_nlink > 1:
            first = self.links.get((info.st_dev, info.st_ino))
            if first is not None:
                os.link(first, target, follow_symlinks=False)
                return
        mtime = 0
        if stat.S_ISREG(mode):
            self.files += 1
            layout = self.layout(path, name, info)
            if layout is None:
                self.copy_plain(path, target, name)
            else:
                self.spread_files += 1
                mtime = self.copy_spread(path, target, name, layout)
        elif stat.S_ISLNK(mode):
            os.symlink(os.readlink(path), target)
        else:
            os.mknod(target, stat.S_IFMT(mode) | 0o600, info.st_rdev)
        if info.st_nlink > 1:
            self.links[(info.st_dev, info.st_ino)] = target
        self.copy_attributes(path, target, name, info, mtime)

    def finish_directory(self, path, name, info):
        """Sets what a directory's contents would have changed."""
        self.copy_attributes(path, os.path.join(self.out, name) if name else self.out, name, info, 0)

    def copy_attributes(self, path, target, name, info, mtime_ns):
        """Owner, mode, extended attributes and times."""
        if os.geteuid() == 0:
            os.chown(target, info.st_uid, info.st_gid, follow_symlinks=False)
        own = {namespace + "braid.id" for namespace in self.namespaces}
        try:
            xattrs = [x for x in os.listxattr(path, follow_symlinks=False) if x not in own]
        except OSError as error:
            xattrs = []
            if error.errno != errno.ENOTSUP:
                self.problem("%s: extended attributes: %s" % (show(name), error))
        for xattr in xattrs:
            try:
                value = os.getxattr(path, xattr, follow_symlinks=False)
                os.setxattr(target, xattr, value, follow_symlinks=False)
            except OSError as error:
                self.problem("%s: extended attribute %s: %s" % (show(name), xattr, error))
        if not stat.S_ISLNK(info.st_mode):
            os.chmod(target, stat.S_IMODE(info.st_mode))
        times = (info.st_atime_ns, max(info.st_mtime_ns, mtime_ns))
        os.utime(target, ns=times, follow_symlinks=False)

    def list_one(self, path, name, info):
        """Prints a regular file and where its ranges are."""
        if not stat.S_ISREG(info.st_mode):
            return
        self.files += 1
        first = self.links.setdefault((info.st_dev, info.st_ino), name) if info.st_nlink > 1 else name
        if first != name:
            print("link   %s -> %s" % (show(name), show(first)), file=self.output)
            return
        layout = self.layout(path, name, info)
        if layout is None:
            print("plain  %s %d" % (show(name), info.st_size), file=self.output)
            return
        self.spread_files += 1
        print("spread %s %d %s" % (show(name), layout.size, layout.id.hex()), file=self.output)
        for run in layout.runs:
            where = "hole" if run.tier is None else "tier %s" % self.tier_name(run.tier)
            gone = "" if run.tier is None or run.tier in self.tiers else ", not there"
            print("       %d to %d: %s%s" % (run.start, run.end, where, gone), file=self.output)
            if gone:
                self.problems += 1

    def check_strangers(self):
        """An id that belongs to another inode is a copy and means nothing, if
        there is the other inode."""
        for id_, name in self.strangers:
            if id_ not in self.owners and os.path.lexists(self.home.of_id(b"index", id_)):
                self.problem("%s: its id names another inode, but no file has that one. Its home file was taken"
                             " as it is. If these directories are copies of the tiers, use --copied" % show(name))

    def run(self, list_only):
        """Does all of it; the exit status."""
        if not self.load_volume():
            return 1
        if list_only:
            self.walk(self.list_one, lambda path, name, info: None)
        else:
            self.walk(self.rebuild_one, self.finish_directory)
        self.check_strangers()
        print("rescue: %d files, %d of them spread, %d problems" % (self.files, self.spread_files, self.problems),
              file=self.messages)
        return 1 if self.problems else 0


# The command line


def parse(arguments):
    """The command line; argparse exits with status 2 on wrong usage."""
    parser = argparse.ArgumentParser(
        prog="rescue.py", description="Rebuild every file of a Braid volume from its tiers, without Braid.")
    parser.add_argument("--tier", action="append", default=[], metavar="NAME=DIR", required=True,
                        help="a tier's name and directory; leave out tiers that are lost")
    parser.add_argument("--home", required=True, metavar="NAME", help="the tier that holds the names")
    parser.add_argument("--copied", action="store_true",
                        help="the directories are copies: inode numbers and birth times say nothing")
    parser.add_argument("--list", action="store_true", help="only list files and where their ranges are")
    parser.add_argument("out", nargs="?", metavar="OUT", help="directory to rebuild in; new or empty")
    options = parser.parse_args(arguments)
    options.tiers = []
    for text in options.tier:
        name, equals, directory = text.partition("=")
        if not equals or not name or not directory:
            parser.error("--tier %s: not of the form NAME=DIR" % text)
        if not os.path.isdir(directory):
            parser.error("--tier %s: %s is not a directory" % (name, directory))
        if name in [tier.name for tier in options.tiers]:
            parser.error("--tier %s is given twice" % name)
        options.tiers.append(Tier(name, directory))
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
    out = None
    if not options.list:
        os.makedirs(options.out, mode=0o700, exist_ok=True)
        out = os.fsencode(options.out)
    rescue = Rescue(options.tiers, options.home_tier, out, options.copied)
    return rescue.run(options.list)


if __name__ == "__main__":
    sys.exit(main())
