//! Just enough of ELF64 to read a shared library's dynamic section.

use std::path::Path;

/// What the dynamic linker sees.
pub struct Dynamic {
    pub soname: Option<String>,
    pub needed: Vec<String>,
    /// Names of defined dynamic symbols.
    pub exports: Vec<String>,
}

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    let mut value = [0u8; 8];
    value[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(value) as usize
}

fn text(bytes: &[u8], at: usize) -> String {
    let end = at + bytes[at..].iter().position(|b| *b == 0).unwrap();
    String::from_utf8(bytes[at..end].to_vec()).unwrap()
}

impl Dynamic {
    pub fn read(path: &Path) -> Dynamic {
        const SHT_DYNAMIC: usize = 6;
        const SHT_DYNSYM: usize = 11;
        const DT_NEEDED: usize = 1;
        const DT_SONAME: usize = 14;
        let file = std::fs::read(path).unwrap();
        assert_eq!(&file[..6], b"\x7fELF\x02\x01", "a little-endian ELF64 file");
        let (table, size, count) = (
            number(&file, 40, 8),
            number(&file, 58, 2),
            number(&file, 60, 2),
        );
        // (type, offset, bytes, link) of each section.
        let section = |i: usize| {
            let at = table + i * size;
            (
                number(&file, at + 4, 4),
                number(&file, at + 24, 8),
                number(&file, at + 32, 8),
                number(&file, at + 40, 4),
            )
        };
        let mut out = Dynamic {
            soname: None,
            needed: Vec::new(),
            exports: Vec::new(),
        };
        for i in 0..count {
            let (kind, offset, bytes, link) = section(i);
            let strings = || section(link).1;
            if kind == SHT_DYNAMIC {
                for at in (offset..offset + bytes).step_by(16) {
                    let value = number(&file, at + 8, 8);
                    match number(&file, at, 8) {
                        DT_NEEDED => out.needed.push(text(&file, strings() + value)),
                        DT_SONAME => out.soname = Some(text(&file, strings() + value)),
                        _ => {}
                    }
                }
            } else if kind == SHT_DYNSYM {
                for at in (offset..offset + bytes).step_by(24).skip(1) {
                    let defined = number(&file, at + 6, 2) != 0;
                    if defined {
                        out.exports
                            .push(text(&file, strings() + number(&file, at, 4)));
                    }
                }
            }
        }
        out
    }
}
