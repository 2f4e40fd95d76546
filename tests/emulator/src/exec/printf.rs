//! `printf` and `assert` from the device.

use super::space::Acc;
use super::*;
use crate::ir::{Exec, Flow, MSpace, Order};

impl Machine {
    fn c_string(&mut self, i: &Inst, lane: usize, mut addr: u64) -> Result<Vec<u8>, Box<Fault>> {
        let mut s = Vec::new();
        while s.len() < 4096 {
            let p = self.access(i, lane, MSpace::Generic, addr, 1, Acc::Read, Order::Weak)?;
            // SAFETY: one byte was checked.
            let c = unsafe { *p };
            if c == 0 {
                break;
            }
            s.push(c);
            addr += 1;
        }
        Ok(s)
    }
}

/// `vprintf(format, args)`: a[0] result, a[1] and a[2] the two addresses.
pub fn vprintf(m: &mut Machine, i: &Inst) -> Exec {
    let (f, args) = (*m.row::<u64>(i.a[1]), *m.row::<u64>(i.a[2]));
    for l in m.lanes() {
        let fmt = m.c_string(i, l, f[l])?;
        let mut at = args[l];
        let mut out = String::new();
        let mut k = 0;
        while k < fmt.len() {
            if fmt[k] != b'%' {
                out.push(fmt[k] as char);
                k += 1;
                continue;
            }
            let start = k;
            k += 1;
            while k < fmt.len() && (fmt[k].is_ascii_digit() || b"-+ #.".contains(&fmt[k])) {
                k += 1;
            }
            let mut long = false;
            while k < fmt.len() && b"lhzj".contains(&fmt[k]) {
                long |= fmt[k] != b'h';
                k += 1;
            }
            let Some(&conv) = fmt.get(k) else { break };
            k += 1;
            if conv == b'%' {
                out.push('%');
                continue;
            }
            let spec: String = fmt[start + 1..k - 1].iter().map(|c| *c as char).filter(|c| !"lhzj".contains(*c)).collect();
            let eight = long || b"feEgGsp".contains(&conv);
            let n = if eight { 8u32 } else { 4 };
            at = at.next_multiple_of(n as u64);
            let p = m.access(i, l, MSpace::Generic, at, n, Acc::Read, Order::Weak)?;
            // SAFETY: n bytes were checked.
            let v = unsafe {
                if eight {
                    (p as *const u64).read_unaligned()
                } else {
                    (p as *const u32).read_unaligned() as u64
                }
            };
            at += n as u64;
            if conv == b's' {
                let s = m.c_string(i, l, v)?;
                out += &String::from_utf8_lossy(&s);
            } else {
                out += &format_one(&spec, conv, v, eight);
            }
        }
        print!("{out}");
    }
    m.store(i.a[0], &[1u32; 32]);
    Ok(Flow::Next)
}

fn format_one(spec: &str, conv: u8, v: u64, eight: bool) -> String {
    let left = spec.starts_with('-');
    let zero = spec.trim_start_matches(['-', '+', ' ', '#']).starts_with('0');
    let plus = spec.contains('+');
    let (w, prec) = match spec.split_once('.') {
        Some((w, p)) => (w, p.parse::<usize>().ok()),
        None => (spec, None),
    };
    let width: usize = w.trim_start_matches(['-', '+', ' ', '#', '0']).parse().unwrap_or(0);
    let s = match conv {
        b'd' | b'i' => {
            let x = if eight { v as i64 } else { v as u32 as i32 as i64 };
            if plus {
                format!("{x:+}")
            } else {
                x.to_string()
            }
        }
        b'u' => v.to_string(),
        b'x' => format!("{v:x}"),
        b'X' => format!("{v:X}"),
        b'o' => format!("{v:o}"),
        b'p' => format!("{v:#x}"),
        b'c' => (v as u8 as char).to_string(),
        b'e' => format!("{:.*e}", prec.unwrap_or(6), f64::from_bits(v)),
        _ => format!("{:.*}", prec.unwrap_or(6), f64::from_bits(v)),
    };
    match (left, zero) {
        (true, _) => format!("{s:<width$}"),
        (_, true) => format!("{s:0>width$}"),
        _ => format!("{s:>width$}"),
    }
}

/// `__assertfail(message, file, line, function, size)`.
pub fn assertfail(m: &mut Machine, i: &Inst) -> Exec {
    let l = m.mask.trailing_zeros() as usize;
    let mut s = Vec::new();
    for x in [i.xs[0], i.xs[1], i.xs[3]] {
        let a = m.row::<u64>(x)[l];
        s.push(String::from_utf8_lossy(&m.c_string(i, l, a)?).into_owned());
    }
    let line = m.row::<u32>(i.xs[2])[l];
    let what = format!("assertion failed: {}:{line}: {}: {}", s[1], s[2], s[0]);
    Err(m.fault_at(i, l as u32, crate::fault::ASSERT, what))
}
