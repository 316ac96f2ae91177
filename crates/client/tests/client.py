"""Uses braid.py on the directory that is named."""
import sys
import threading

import braid

with braid.open(sys.argv[1]) as values:
    values[b"a"] = b"one"
    assert values[b"a"] == b"one" and b"a" in values and b"b" not in values
    assert values.get(b"b") is None and values.get(b"b", b"x") == b"x"
    assert not values.put(b"a", b"two", if_absent=True) and values.put(b"a", b"two", if_present=True)
    values[b"\0/%\xff"] = bytes(range(256)) * 4096
    assert values[b"\0/%\xff"] == bytes(range(256)) * 4096
    try:
        values[b"long"] = bytes((1 << 20) + 1)
        raise AssertionError("it is too long")
    except OSError as error:
        assert error.errno == 27, error
    try:
        del values[b"none"]
        raise AssertionError("it is not there")
    except KeyError:
        pass
    del values[b"\0/%\xff"]

    def put_many(thread):
        for number in range(1200):
            values[f"many-{thread}-{number:04}".encode()] = b"%d" % number

    threads = [threading.Thread(target=put_many, args=(thread,)) for thread in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    keys = list(values.scan(b"many-"))
    assert len(keys) == 2400 and keys == sorted(keys)
    assert list(values.scan(b"many-0", values=True)) == [
        (b"many-0-%04d" % number, b"%d" % number) for number in range(1200)
    ]
    assert list(values.scan(b"many-0", after=b"many-0-1197")) == [b"many-0-1198", b"many-0-1199"]
    assert b"a" in list(values)
    values.sync()
try:
    values.get(b"a")
    raise AssertionError("it is closed")
except ValueError:
    pass
