"""Compressed files, recognised by their first bytes."""

import io
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from sklsb._words import few

SUFFIXES = (".gz", ".bz2", ".xz", ".zip")
_CHUNK = 1 << 16
_UNREAD = ("zstd", "7-Zip", "RAR", "compress")
# What makes a decompressor of streams, by the first bytes. Some builds of Python lack bz2 and lzma.
_FORMATS: dict[bytes, tuple[str, Callable[[], Any] | None]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(wbits=31)),
    b"BZh": ("bzip2", lambda: import_module("bz2").BZ2Decompressor()),
    b"\xfd7zXZ\0": ("xz", lambda: import_module("lzma").LZMADecompressor()),
    b"PK\x03\x04": ("zip", None),
    b"PK\x05\x06": ("zip", None),
    b"\x28\xb5\x2f\xfd": ("zstd", None),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", None),
    b"Rar!": ("RAR", None),
    b"\x1f\x9d": ("compress", None),
}


class CompressionError(ValueError):
    """Compressed data that cannot be read."""


def without_suffix(name: str) -> str:
    """Return the name of a file in lower case, as it is after decompression."""
    name = name.lower()
    end = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(end)


def unpack(data: bytes) -> Iterator[bytes]:
    """Yield the pieces of what the bytes of a file hold, decompressed if they are compressed.

    What a decompressor raises becomes a `CompressionError`.
    """
    for magic, (name, make) in _FORMATS.items():
        if not data.startswith(magic):
            continue
        if name in _UNREAD:
            raise CompressionError(f"it is compressed by {name}; decompress it, or use gzip.")
        try:
            yield from _only_member(data) if make is None else _streams(data, make)
        except (CompressionError, ImportError, MemoryError):
            raise
        except Exception as error:  # each decompressor has errors of its own
            raise CompressionError(
                f"the {name} data are damaged from here on ({error})."
            ) from error
        return
    yield data


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
        every = archive.namelist()
        names = [n for n in every if not n.endswith("/") and not n.startswith("__MACOSX/")]
        if len(names) != 1:
            raise CompressionError(
                f"the zip archive holds {len(names)} files ({few(names)}); it must hold "
                "one. Extract the file you mean."
            )
        if archive.getinfo(names[0]).flag_bits & 1:
            raise CompressionError(f"{names[0]} in the zip archive is encrypted; extract it.")
        with archive.open(names[0]) as file:
            while piece := file.read(_CHUNK):
                yield piece
