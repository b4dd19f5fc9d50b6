"""Compressed files, recognised by their first bytes."""

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any

SUFFIXES = (".gz", ".bz2", ".xz", ".zip")
_CHUNK = 1 << 16
_UNREAD = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!": "RAR",
    b"\x1f\x9d": "compress",
}


class DamagedError(ValueError):
    """Compressed data that cannot be read."""


def without_suffix(name: str) -> str:
    """Return the name of a file in lower case, as it is after decompression."""
    name = name.lower()
    end = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(end)


def unpack(data: bytes) -> Iterator[bytes]:
    """Return the pieces of what the bytes of a file hold, decompressed if they are compressed."""
    for magic, name in _UNREAD.items():
        if data.startswith(magic):
            raise DamagedError(f"it is compressed by {name}; decompress it, or use gzip.")
    if data.startswith(b"\x1f\x8b"):
        return _guarded("gzip", _streams(data, lambda: zlib.decompressobj(wbits=31)))
    if data.startswith(b"BZh"):
        import bz2  # some builds of Python lack it, and lzma

        return _guarded("bzip2", _streams(data, bz2.BZ2Decompressor))
    if data.startswith(b"\xfd7zXZ\0"):
        import lzma

        return _guarded("xz", _streams(data, lzma.LZMADecompressor))
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _guarded("zip", _only_member(data))
    return iter((data,))


def _guarded(name: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pass pieces on; what a decompressor raises becomes a `DamagedError`."""
    try:
        yield from pieces
    except (DamagedError, ImportError, MemoryError):
        raise
    except Exception as error:  # each decompressor has errors of its own
        raise DamagedError(f"the {name} data are damaged from here on ({error}).") from error


def _streams(data: bytes, make: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress streams that follow each other. The classes of files ignore what is no stream."""
    view = memoryview(data)
    while view:
        stream, at = make(), 0
        while at < len(view) and not stream.eof:
            yield stream.decompress(view[at : at + _CHUNK])
            at += _CHUNK
        if not stream.eof:
            raise EOFError("they end too early")
        rest = min(at, len(view)) - len(stream.unused_data)
        view = view[rest:]
        if not any(view):  # padding
            return


def _only_member(data: bytes) -> Iterator[bytes]:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # macOS keeps what it knows of a file beside it.
        names = [
            name
            for name in archive.namelist()
            if not name.endswith("/") and not name.startswith("__MACOSX/")
        ]
        if len(names) != 1:
            raise DamagedError(
                f"the zip archive holds {len(names)} files ({', '.join(names[:5])}); it must hold "
                "one. Extract the file you mean."
            )
        if archive.getinfo(names[0]).flag_bits & 1:
            raise DamagedError(f"{names[0]} in the zip archive is encrypted; extract it.")
        with archive.open(names[0]) as file:
            while piece := file.read(_CHUNK):
                yield piece
