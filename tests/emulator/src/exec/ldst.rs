//! Loads and stores of registers, and the address conversions.

use super::space::*;
use super::*;
use crate::ir::{Exec, Ext, Flow, MSpace, MemOp};

/// Register of a vector element: slot, with a flag for 64- and 128-bit ones.
pub const WIDE: u32 = 1 << 31;
pub const QUAD: u32 = 1 << 30;
pub const SINK: u32 = u32::MAX;

impl Machine {
    /// Addresses of the active lanes of a memory operand: base register in
    /// `a[1]`, displacement in `imm`.
    #[inline]
    pub fn addresses(&self, i: &Inst, wide: bool) -> [u64; 32] {
        self.addresses_of(i.a[1], i.imm, wide)
    }

    #[inline]
    pub fn addresses_of(&self, slot: u32, disp: i64, wide: bool) -> [u64; 32] {
        let mut t = [0u64; 32];
        if wide {
            let r = self.row::<u64>(slot);
            for l in 0..32 {
                t[l] = r[l].wrapping_add(disp as u64);
            }
        } else {
            let r = self.row::<u32>(slot);
            for l in 0..32 {
                t[l] = r[l].wrapping_add(disp as u32) as u64;
            }
        }
        t
    }

    pub fn mem_op(i: &Inst) -> MemOp {
        match i.ext {
            Ext::Mem(m) => m,
            _ => unreachable!("memory instruction without its operand"),
        }
    }

    /// Count a warp's access: bytes and sectors of global memory, bank
    /// conflicts of shared memory.
    pub fn tally(&mut self, i: &Inst, space: MSpace, addrs: &[u64; 32], n: u32, acc: Acc) {
        let Some(first) = self.lanes().next() else { return };
        let space = if space == MSpace::Generic { generic(addrs[first]).0 } else { space };
        match space {
            MSpace::Global => {
                let mut s = [0u64; 64];
                let mut k = 0;
                for l in self.lanes() {
                    let a = addrs[l] / 32;
                    if k == 0 || s[k - 1] != a {
                        s[k] = a;
                        k += 1;
                    }
                    if n > 32 - (addrs[l] % 32) as u32 {
                        s[k] = a + 1;
                        k += 1;
                    }
                }
                if !s[..k].windows(2).all(|w| w[0] < w[1]) {
                    s[..k].sort_unstable();
                }
                let distinct = 1 + s[..k].windows(2).filter(|w| w[0] != w[1]).count() as u64;
                // Lanes that load the same address move its bytes once; each atomic counts.
                let lanes = if acc == Acc::Atomic { self.mask.count_ones() } else { distinct_addresses(self.mask, addrs) } as u64;
                let c = &mut self.counts.kinds[i.kind as usize];
                c.sectors += distinct;
                if acc != Acc::Write {
                    c.read += lanes * n as u64;
                }
                if acc != Acc::Read {
                    c.written += lanes * n as u64;
                }
            }
            MSpace::Shared | MSpace::SharedCluster => {
                let extra = bank_conflicts(self.mask, addrs, n);
                self.counts.kinds[i.kind as usize].conflicts += extra;
            }
            _ => {}
        }
    }
}

fn distinct_addresses(mask: u32, addrs: &[u64; 32]) -> u32 {
    let (mut k, mut t) = (0, [0u64; 32]);
    for l in super::lanes::Lanes(mask) {
        if k == 0 || t[k - 1] != addrs[l] {
            t[k] = addrs[l];
            k += 1;
        }
    }
    if t[..k].windows(2).all(|w| w[0] < w[1]) {
        return k as u32;
    }
    t[..k].sort_unstable();
    1 + t[..k].windows(2).filter(|w| w[0] != w[1]).count() as u32
}

/// Extra passes: lanes are served in groups that together move 128 bytes; in a
/// group, each bank gives one 4-byte word a pass.
pub fn bank_conflicts(mask: u32, addrs: &[u64; 32], n: u32) -> u64 {
    let words = (n / 4).max(1) as usize;
    let group = 32 / words.min(32);
    let mut extra = 0;
    for g in (0..32).step_by(group.max(1)) {
        let mut banks: [[u32; 32]; 32] = [[0; 32]; 32];
        let mut used = [0u8; 32];
        for l in g..g + group {
            if mask >> l & 1 == 0 {
                continue;
            }
            for x in 0..words as u64 {
                let word = (addrs[l] / 4 + x) as u32;
                let b = (word % 32) as usize;
                let k = used[b] as usize;
                if !banks[b][..k].contains(&word) && k < 32 {
                    banks[b][k] = word;
                    used[b] += 1;
                }
            }
        }
        extra += (*used.iter().max().unwrap_or(&0)).saturating_sub(1) as u64;
    }
    extra
}

/// # Safety
/// `p` must be valid for `n` bytes.
#[inline(always)]
unsafe fn read(p: *const u8, n: u8, signed: bool) -> u64 {
    match (n, signed) {
        (1, false) => *p as u64,
        (1, true) => *(p as *const i8) as i64 as u64,
        (2, false) => (p as *const u16).read_unaligned() as u64,
        (2, true) => (p as *const i16).read_unaligned() as i64 as u64,
        (4, false) => (p as *const u32).read_unaligned() as u64,
        (4, true) => (p as *const i32).read_unaligned() as i64 as u64,
        _ => (p as *const u64).read_unaligned(),
    }
}

/// # Safety
/// `p` must be valid for `n` bytes.
#[inline(always)]
unsafe fn write(p: *mut u8, n: u8, v: u64) {
    match n {
        1 => *p = v as u8,
        2 => (p as *mut u16).write_unaligned(v as u16),
        4 => (p as *mut u32).write_unaligned(v as u32),
        _ => (p as *mut u64).write_unaligned(v),
    }
}

/// `ld`: destination registers in `xs`.
pub fn ld(m: &mut Machine, i: &Inst) -> Exec {
    let op = Machine::mem_op(i);
    let addrs = m.addresses(i, op.wide);
    let n = op.esize as u32 * op.vec as u32;
    for l in m.lanes() {
        let p = m.access(i, l, op.space, addrs[l], n, Acc::Read, op.order)?;
        for (v, &d) in i.xs.iter().enumerate() {
            if d == SINK {
                continue;
            }
            // SAFETY: `access` checked n bytes, and the vector has n / esize elements.
            unsafe {
                let q = p.add(v * op.esize as usize);
                if op.esize == 16 {
                    m.row::<u128>(d & !(WIDE | QUAD))[l] = (q as *const u128).read_unaligned();
                } else {
                    let x = read(q, op.esize, op.signed);
                    if d & WIDE != 0 {
                        m.row::<u64>(d & !WIDE)[l] = x;
                    } else {
                        m.row::<u32>(d)[l] = x as u32;
                    }
                }
            }
        }
    }
    m.tally(i, op.space, &addrs, n, Acc::Read);
    Ok(Flow::Next)
}

/// `ld.param` of a kernel parameter at a fixed offset: the same for all lanes.
pub fn ld_param(m: &mut Machine, i: &Inst) -> Exec {
    let op = Machine::mem_op(i);
    for (v, &d) in i.xs.iter().enumerate() {
        let at = i.imm as usize + v * op.esize as usize;
        if d & WIDE != 0 {
            // SAFETY: lowering checked the offset against the parameter block.
            let x = unsafe { read(m.l.params.as_ptr().add(at), op.esize, op.signed) };
            let t = [x; 32];
            m.store(d & !WIDE, &t);
        } else {
            // SAFETY: as above.
            let x = unsafe { read(m.l.params.as_ptr().add(at), op.esize, op.signed) };
            let t = [x as u32; 32];
            m.store(d, &t);
        }
    }
    Ok(Flow::Next)
}

/// `st`: source registers in `xs`.
pub fn st(m: &mut Machine, i: &Inst) -> Exec {
    let op = Machine::mem_op(i);
    let addrs = m.addresses(i, op.wide);
    let n = op.esize as u32 * op.vec as u32;
    for l in m.lanes() {
        let p = m.access(i, l, op.space, addrs[l], n, Acc::Write, op.order)?;
        for (v, &s) in i.xs.iter().enumerate() {
            // SAFETY: `access` checked n bytes, and the vector has n / esize elements.
            unsafe {
                let q = p.add(v * op.esize as usize);
                if op.esize == 16 {
                    (q as *mut u128).write_unaligned(m.row::<u128>(s & !(WIDE | QUAD))[l]);
                } else {
                    let x = if s & WIDE != 0 { m.row::<u64>(s & !WIDE)[l] } else { m.row::<u32>(s)[l] as u64 };
                    write(q, op.esize, x);
                }
            }
        }
    }
    m.tally(i, op.space, &addrs, n, Acc::Write);
    Ok(Flow::Next)
}

/// `cvta`: `imm` is the window to add, or -1 to strip one. `flags` bit 0: the
/// result is 64 bits, bit 1: the source is.
pub fn cvta(m: &mut Machine, i: &Inst) -> Exec {
    let wide_src = i.flags & 2 != 0;
    let a = m.addresses_of(i.a[1], 0, wide_src);
    let mut t = [0u64; 32];
    for l in 0..32 {
        t[l] = if i.imm < 0 { a[l] & 0xffff_ffff } else { (i.imm as u64) | (a[l] & 0xffff_ffff) };
    }
    if i.flags & 1 != 0 {
        m.store(i.a[0], &t);
    } else {
        m.store(i.a[0], &t.map(|x| x as u32));
    }
    Ok(Flow::Next)
}

/// `isspacep.space p, a`: `imm` is the window number, `flags` bit 0 asks for
/// the block's own shared memory.
pub fn isspacep(m: &mut Machine, i: &Inst) -> Exec {
    let a = *m.row::<u64>(i.a[1]);
    let own = m.cta() as u64;
    let mut p = 0u32;
    for l in 0..32 {
        let mut hit = (a[l] >> 56) as i64 == i.imm;
        if i.flags & 1 != 0 {
            hit &= (a[l] & 0xffff_ffff) >> 24 == own;
        }
        p |= (hit as u32) << l;
    }
    m.set_pred(i.a[0], p);
    Ok(Flow::Next)
}

#[cfg(test)]
mod tests {
    use super::{bank_conflicts, distinct_addresses};

    #[test]
    fn equal_addresses_count_once() {
        let mut a = [64u64; 32];
        assert_eq!(distinct_addresses(!0, &a), 1);
        for l in 0..32 {
            a[l] = 4 * (31 - l as u64 / 2);
        }
        assert_eq!(distinct_addresses(!0, &a), 16);
        assert_eq!(distinct_addresses(0b1011, &a), 2);
        a = std::array::from_fn(|l| 8 * (l as u64 % 4));
        assert_eq!(distinct_addresses(!0, &a), 4);
    }

    #[test]
    fn conflicts_are_counted_as_passes() {
        let at = |f: &dyn Fn(u64) -> u64| {
            let mut a = [0u64; 32];
            for l in 0..32 {
                a[l] = f(l as u64);
            }
            a
        };
        assert_eq!(bank_conflicts(!0, &at(&|l| l * 4), 4), 0);
        assert_eq!(bank_conflicts(!0, &at(&|_| 64), 4), 0); // broadcast
        assert_eq!(bank_conflicts(!0, &at(&|l| l * 8), 4), 1);
        assert_eq!(bank_conflicts(!0, &at(&|l| l * 128), 4), 31);
        assert_eq!(bank_conflicts(!0, &at(&|l| l * 16), 16), 0);
        assert_eq!(bank_conflicts(!0, &at(&|l| l * 128), 16), 4 * 7);
    }
}
