#!/usr/bin/env python3
"""Whether a wheel keeps what its manylinux tag promises: python3 tests/manylinux.py WHEEL [PATH...]

The library needs the system's libraries only and no glibc newer than the tag's, is for the tag's processor, has no symbols but the
dynamic ones, and holds none of the PATHs (this machine's).
"""

import pathlib
import re
import struct
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))
from elf import dynamic, newest_glibc  # noqa: E402

MACHINES = {"x86_64": 62, "aarch64": 183}
SYSTEM = re.compile(r"(libc|libm|libgcc_s|libdl|libpthread|librt|ld-linux-.*)\.so\.\d+$")


SYMBOLS = {2}  # SHT_SYMTAB


def section_types(library):
    start = struct.unpack_from("<Q", library, 0x28)[0]
    size, count = struct.unpack_from("<HH", library, 0x3A)
    return [struct.unpack_from("<I", library, start + i * size + 4)[0] for i in range(count)]


def main():
    wheel, *paths = sys.argv[1:]
    tag = re.search(r"manylinux_(\d+)_(\d+)_(\w+)\.whl$", wheel)
    assert tag, f"{wheel} has no manylinux tag"
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read("nvfp4/libnvfp4.so")
    needed, soname = dynamic(library)
    newest = newest_glibc(library)
    assert all(map(SYSTEM.match, needed)), f"needs {needed}"
    assert newest <= (int(tag[1]), int(tag[2])), f"needs glibc {newest}"
    assert int.from_bytes(library[18:20], "little") == MACHINES[tag[3]], f"is not for {tag[3]}"
    assert not (SYMBOLS & set(section_types(library))), "has symbols"
    for path in paths:
        assert path.encode() not in library, f"holds the path {path}"
    print(f"{pathlib.Path(wheel).name}: {soname}, {len(library)} bytes, needs {', '.join(needed)}, glibc {'.'.join(map(str, newest))}")


if __name__ == "__main__":
    main()
