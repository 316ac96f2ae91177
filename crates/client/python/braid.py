"""Keys and values of a directory of a Braid mount, without system calls.

    import braid
    with braid.open("/mnt/all/users") as users:
        users[b"alice"] = b"some text"
        print(users[b"alice"], list(users.scan(b"a")))

Keys and values are bytes, or objects that expose bytes (bytearray, memoryview). The mount needs
`runtime` (braid mount --runtime). A stack file with `exec: direct` is opened in the same way
(docs/direct.md), and carried out by this process. docs/kv.md says what is promised; rights are those that the
process had when it opened the directory. After a fork, the child opens it anew.
"""
import ctypes
import os
import struct

_ALWAYS, _IF_ABSENT, _IF_PRESENT = range(3)
_LENGTH = struct.Struct("=Q")
_PAGE = 1024


class _Error(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("text", ctypes.c_char * 252)]


class _Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    def take(self):
        return ctypes.string_at(self.data, self.len) if self.len else b""


def _load():
    library = ctypes.CDLL(os.environ.get("BRAID_LIBRARY", "libbraid.so"))
    values, error = ctypes.c_void_p, ctypes.POINTER(_Error)
    library.braid_open.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), error]
    library.braid_close.argtypes = [values]
    library.braid_close.restype = None
    library.braid_get.argtypes = [values, _Bytes, ctypes.POINTER(_Bytes), error]
    library.braid_len.argtypes = [values, _Bytes, ctypes.POINTER(ctypes.c_uint64), error]
    library.braid_free.argtypes = [_Bytes]
    library.braid_free.restype = None
    library.braid_put.argtypes = [values, _Bytes, _Bytes, ctypes.c_uint32, ctypes.c_uint32, error]
    library.braid_delete.argtypes = [values, _Bytes, error]
    # Not braid_scan: the library would miss an exception that a function in Python raises before
    # its first line, as signals do.
    library.braid_page.argtypes = [
        values, _Bytes, ctypes.POINTER(_Bytes), ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(_Bytes), error,
    ]
    library.braid_sync.argtypes = [values, error]
    return library


def _bytes(data):
    if not isinstance(data, bytes):
        try:
            data = memoryview(data).tobytes()
        except TypeError:
            raise TypeError(f"keys and values are bytes, not {type(data).__name__}") from None
    # The object keeps the bytes as long as it lives.
    made = _Bytes(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))
    made.kept = data
    return made


def _pairs(page):
    parts, at = [], 0
    while at < len(page):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(page, at)[0]
        parts.append(page[begin:at])
    return zip(parts[::2], parts[1::2])


class Values:
    """A directory. Missing keys raise KeyError, all other failures OSError."""

    def __init__(self, directory):
        self._library, self._values, self._process = _load(), ctypes.c_void_p(), os.getpid()
        self._call(self._library.braid_open, os.fsencode(directory), ctypes.byref(self._values))

    @staticmethod
    def _call(function, *arguments):
        error = _Error()
        done = function(*arguments, ctypes.byref(error))
        if done < 0:
            raise OSError(error.number, error.text.decode("utf-8", "replace"))
        return done

    def _open(self):
        if not self._values:
            raise ValueError("it is closed")
        if self._process != os.getpid():
            raise RuntimeError("it was opened before a fork: open it anew in this process")
        return self._values

    def close(self):
        """Ends the session. Nothing else may be in use."""
        values, self._values = self._values, ctypes.c_void_p()
        # After a fork, the session is still that of the other process.
        if self._process == os.getpid():
            self._library.braid_close(values)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def get(self, key, default=None):
        """The value of a key, or the default if it is not there."""
        value = _Bytes()
        found = self._call(self._library.braid_get, self._open(), _bytes(key), ctypes.byref(value))
        try:
            return value.take() if found else default
        finally:
            self._library.braid_free(value)

    def __getitem__(self, key):
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        return bool(self._call(self._library.braid_len, self._open(), _bytes(key), None))

    def put(self, key, value, *, if_absent=False, if_present=False, mode=0o600):
        """Puts a value of up to 1 MiB; answers whether it did, by the conditions."""
        when = _IF_ABSENT if if_absent else _IF_PRESENT if if_present else _ALWAYS
        put = self._library.braid_put
        return bool(self._call(put, self._open(), _bytes(key), _bytes(value), when, mode))

    def __setitem__(self, key, value):
        self.put(key, value)

    def delete(self, key):
        """Removes a key; answers whether it was there."""
        return bool(self._call(self._library.braid_delete, self._open(), _bytes(key)))

    def __delitem__(self, key):
        if not self.delete(key):
            raise KeyError(key)

    def scan(self, prefix=b"", *, after=None, values=False):
        """Keys in the order of their bytes, or pairs of keys and values; a page of a thousand, or
        of some mebibytes, is kept."""
        more = True
        while more:
            page = _Bytes()
            behind = None if after is None else ctypes.byref(_bytes(after))
            more = self._call(
                self._library.braid_page,
                self._open(), _bytes(prefix), behind, int(values), _PAGE, ctypes.byref(page),
            )
            try:
                pairs = _pairs(page.take())
            finally:
                self._library.braid_free(page)
            for key, value in pairs:
                yield (key, value) if values else key
                after = key

    def __iter__(self):
        return self.scan()

    def sync(self):
        """Makes earlier puts and deletes durable."""
        self._call(self._library.braid_sync, self._open())


def open(directory):  # pylint: disable=redefined-builtin
    """A directory of a mount, or the stack of a stack file, as keys and values."""
    return Values(directory)
