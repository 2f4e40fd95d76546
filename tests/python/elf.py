"""What a shared object needs: the DT_NEEDED and DT_SONAME entries and the newest GLIBC symbol version of a 64-bit ELF."""

import re
import struct


def dynamic(data):
    """(needed libraries, SONAME)."""
    assert data[:6] == b"\x7fELF\x02\x01", "a little-endian 64-bit ELF"
    offset, entry_size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, offset + i * entry_size) for i in range(count)]
    loads = [(s[3], s[2], s[5]) for s in segments if s[0] == 1]  # address, file offset, bytes
    start, size = next((s[2], s[5]) for s in segments if s[0] == 2)
    entries = [struct.unpack_from("<QQ", data, at) for at in range(start, start + size, 16)]
    address = dict(entries)[5]
    strings = next(address - a + o for a, o, n in loads if a <= address < a + n)

    def string(at):
        return data[strings + at : data.index(b"\0", strings + at)].decode()

    return [string(v) for t, v in entries if t == 1], next((string(v) for t, v in entries if t == 14), None)


def newest_glibc(data):
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0", data)
    return max((int(a), int(b)) for a, b in versions)
