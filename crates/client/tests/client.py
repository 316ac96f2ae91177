"""Uses braid.py on the directory, or the stack file, that is named."""
import os
import signal
import sys
import threading

import braid

IN_SESSION = os.path.isdir(sys.argv[1])

with braid.open(sys.argv[1]) as values:
    values[b"a"] = b"one"
    assert values[b"a"] == b"one" and b"a" in values and b"b" not in values
    assert values.get(b"b") is None and values.get(b"b", b"x") == b"x"
    assert not values.put(b"a", b"two", if_absent=True) and values.put(b"a", b"two", if_present=True)
    values[b"\0/%\xff"] = bytes(range(256)) * 4096
    assert values[b"\0/%\xff"] == bytes(range(256)) * 4096
    longest = (1 if IN_SESSION else 16) << 20
    try:
        values[b"long"] = bytes(longest + 1)
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

    # An exception of a signal handler is not lost in a scan.
    class Rung(Exception):
        pass

    def ring(*_):
        rung.append(True)
        raise Rung

    signal.signal(signal.SIGALRM, ring)
    for _ in range(20):
        rung, raised = [], False
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.003)
            while not rung:
                assert len(list(values.scan(b"many-"))) == 2400
        except Rung:
            raised = True
        assert raised

    # Values that bytes() would take, but that are none.
    for wrong in (5, "a", None, [1], True):
        for use in (
            lambda: values.put(wrong, b""),
            lambda: values.put(b"wrong", wrong),
            lambda: values.get(wrong),
            lambda: wrong in values,
            lambda: list(values.scan(wrong)),
        ):
            try:
                use()
                raise AssertionError(wrong)
            except TypeError as error:
                assert type(wrong).__name__ in str(error), error
    values[bytearray(b"shown")] = memoryview(b"abcdef")[::2]
    assert values[b"shown"] == b"ace" and b"wrong" not in values

    # Values that fill a page, or are longer.
    large = {b"large-%d" % number: bytes([number]) * ((1 << 20) if number % 2 else 10) for number in range(6)}
    for key, value in large.items():
        values[key] = value
    assert dict(values.scan(b"large-", values=True)) == large
    assert list(values.scan(b"large-")) == sorted(large)
    if IN_SESSION:
        with open(os.path.join(sys.argv[1], "large-4x"), "wb") as file:
            file.write(bytes((1 << 20) + 1))
        assert b"large-4x" in values
        found = []
        try:
            for key, value in values.scan(b"large-", values=True):
                found.append(key)
            raise AssertionError("it is too long")
        except OSError as error:
            assert error.errno == 27, error
        assert found == [b"large-%d" % number for number in range(5)]
        assert list(values.scan(b"large-", after=b"large-4x", values=True)) == [(b"large-5", large[b"large-5"])]
        del values[b"large-4x"]
        assert b"large-4x" not in values

    # It is that of the process that opened it.
    child = os.fork()
    if child == 0:
        status = 1
        try:
            values.get(b"a")
        except RuntimeError as error:
            values.close()
            status = 0 if "fork" in str(error) else 2
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert values[b"a"] == b"two"

    # A user has room for some sessions, and a device for one program.
    if IN_SESSION:
        others = [braid.open(sys.argv[1]) for _ in range(20)]
        assert all(b"a" in other for other in others)
        [other.close() for other in others]
    else:
        try:
            braid.open(sys.argv[1])
            raise AssertionError("it is in use")
        except OSError as error:
            assert "in use" in str(error), error
try:
    values.get(b"a")
    raise AssertionError("it is closed")
except ValueError:
    pass
