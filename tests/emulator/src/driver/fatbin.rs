//! Fat binaries: finding the PTX in the container that nvcc makes.

use crate::arch::Arch;

const WRAPPER: u32 = 0x4662_43b1;
const MAGIC: u32 = 0xba55_ed50;

/// The PTX text behind a module image: plain text, a fat binary, or nvcc's
/// wrapper around one.
///
/// # Safety
/// `image` must point to such an image, complete and (for text) NUL-terminated.
pub unsafe fn ptx_of(image: *const u8, arch: &Arch) -> Result<String, String> {
    if image.is_null() {
        return Err("null image".into());
    }
    let word = (image as *const u32).read_unaligned();
    if word == WRAPPER {
        let data = (image.add(8) as *const *const u8).read_unaligned();
        return ptx_of(data, arch);
    }
    if word == MAGIC {
        return fat(image, arch);
    }
    if word == u32::from_le_bytes(*b"\x7fELF") {
        return Err("the image is a cubin; the emulator runs PTX only (compile with code=compute_XX or -ptx)".into());
    }
    let text = std::ffi::CStr::from_ptr(image as *const _).to_bytes();
    String::from_utf8(text.to_vec()).map_err(|e| format!("the image is neither a fat binary nor text: {e}"))
}

/// `NVFP4_EMU_PTX=FOLDER`: the PTX to load instead of an image whose entry is named, if FOLDER/entry.ptx is there.
/// A changed kernel runs in a program that need not be built anew.
pub fn replacement(text: &str) -> Result<Option<String>, String> {
    let Some(folder) = std::env::var_os("NVFP4_EMU_PTX") else { return Ok(None) };
    for entry in text.lines().filter_map(|l| l.split(".entry ").nth(1)) {
        let name = entry.trim().trim_end_matches('(');
        let path = std::path::Path::new(&folder).join(format!("{name}.ptx"));
        if path.is_file() {
            return std::fs::read_to_string(&path).map(Some).map_err(|e| format!("{}: {e}", path.display()));
        }
    }
    Ok(None)
}

unsafe fn fat(image: *const u8, arch: &Arch) -> Result<String, String> {
    let u16_at = |p: *const u8| (p as *const u16).read_unaligned();
    let u32_at = |p: *const u8| (p as *const u32).read_unaligned();
    let u64_at = |p: *const u8| (p as *const u64).read_unaligned();
    let header = u16_at(image.add(6)) as usize;
    let size = u64_at(image.add(8)) as usize;
    let mut at = header;
    let mut best: Option<(u32, String)> = None;
    let mut seen = Vec::new();
    while at + 64 <= header + size {
        let e = image.add(at);
        let (kind, hsize, psize) = (u16_at(e), u32_at(e.add(4)) as usize, u64_at(e.add(8)) as usize);
        let (packed, cc, flags) = (u32_at(e.add(16)) as usize, u32_at(e.add(28)), u64_at(e.add(40)));
        let compressed = packed != 0 || flags & 0xa000 != 0;
        if hsize == 0 {
            return Err(format!("malformed fat binary: entry at {at} has no header"));
        }
        if kind == 1 {
            seen.push(format!("compute_{cc}{}", if compressed { " (compressed)" } else { "" }));
            if !compressed {
                let bytes = std::slice::from_raw_parts(e.add(hsize), psize);
                let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
                let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let target = text
                    .lines()
                    .find_map(|l| l.trim().strip_prefix(".target"))
                    .unwrap_or("")
                    .trim()
                    .split(',')
                    .next()
                    .unwrap_or("")
                    .trim()
                    .to_string();
                if arch.accepts(&target) && best.as_ref().is_none_or(|b| b.0 <= cc) {
                    best = Some((cc, text));
                }
            }
        } else {
            seen.push(format!("sm_{cc} cubin"));
        }
        at += hsize + psize;
    }
    match best {
        Some(b) => Ok(b.1),
        None => Err(format!(
            "the fat binary has no uncompressed PTX that {} can run; it holds: {} (compile with -Xfatbin -no-compress or --no-compress)",
            arch.name,
            if seen.is_empty() { "nothing".into() } else { seen.join(", ") }
        )),
    }
}
