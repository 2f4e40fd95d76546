//! Device memory: allocations with exact bounds and a bit a byte that says
//! whether anybody has written it.

use std::alloc::{alloc, dealloc, Layout};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    /// Page-locked or managed host memory: the host writes it unseen, so it
    /// counts as initialized.
    Host,
    Managed,
    /// Module variables.
    Module,
}

pub struct Alloc {
    pub base: u64,
    pub size: u64,
    pub kind: Kind,
    /// One bit a byte: written. Empty for memory that the host can write.
    shadow: Box<[AtomicU64]>,
    layout: Option<Layout>,
    raw: *mut u8,
    pub id: u64,
}

// SAFETY: the raw pointer is owned by the allocation; accesses to the bytes are
// those of an emulated device, which has the same races as a real one.
unsafe impl Send for Alloc {}
// SAFETY: as above.
unsafe impl Sync for Alloc {}

/// Bytes kept free around each allocation, so that an overrun hits nothing.
const GAP: usize = 512;
const ALIGN: usize = 512;

impl Alloc {
    fn new(size: u64, kind: Kind, id: u64) -> Option<Arc<Alloc>> {
        let total = (size as usize).checked_add(2 * GAP)?;
        let layout = Layout::from_size_align(total, ALIGN).ok()?;
        // SAFETY: the layout is not empty.
        let raw = unsafe { alloc(layout) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: the block holds `total` bytes. Fresh memory is poisoned.
        unsafe { std::ptr::write_bytes(raw, 0xA5, total) };
        let words = if kind == Kind::Device { (size as usize).div_ceil(64) } else { 0 };
        let shadow = (0..words).map(|_| AtomicU64::new(0)).collect();
        Some(Arc::new(Alloc { base: raw as u64 + GAP as u64, size, kind, shadow, layout: Some(layout), raw, id }))
    }

    #[inline]
    pub fn contains(&self, addr: u64, n: u64) -> bool {
        addr >= self.base && addr.wrapping_add(n) <= self.base + self.size && addr.wrapping_add(n) >= addr
    }

    /// First unwritten byte of a range, if any.
    #[inline]
    pub fn unwritten(&self, addr: u64, n: u64) -> Option<u64> {
        if self.shadow.is_empty() {
            return None;
        }
        let (mut o, end) = (addr - self.base, addr - self.base + n);
        while o < end {
            let (w, bit) = ((o / 64) as usize, o % 64);
            let len = (64 - bit).min(end - o);
            let mask = ones(len) << bit;
            let miss = !self.shadow[w].load(Ordering::Relaxed) & mask;
            if miss != 0 {
                return Some(self.base + w as u64 * 64 + miss.trailing_zeros() as u64);
            }
            o += len;
        }
        None
    }

    #[inline]
    pub fn set_written(&self, addr: u64, n: u64) {
        self.mark(addr, n, true)
    }

    pub fn mark(&self, addr: u64, n: u64, written: bool) {
        if self.shadow.is_empty() {
            return;
        }
        let (mut o, end) = (addr - self.base, addr - self.base + n);
        while o < end {
            let (w, bit) = ((o / 64) as usize, o % 64);
            let len = (64 - bit).min(end - o);
            let mask = ones(len) << bit;
            let s = &self.shadow[w];
            if written {
                if s.load(Ordering::Relaxed) & mask != mask {
                    s.fetch_or(mask, Ordering::Relaxed);
                }
            } else {
                s.fetch_and(!mask, Ordering::Relaxed);
            }
            o += len;
        }
    }
}

#[inline]
fn ones(n: u64) -> u64 {
    if n >= 64 {
        !0
    } else {
        (1 << n) - 1
    }
}

impl Drop for Alloc {
    fn drop(&mut self) {
        if let Some(l) = self.layout {
            // SAFETY: allocated with this layout and owned by nobody else.
            unsafe { dealloc(self.raw, l) }
        }
    }
}

/// All live allocations of the device, by base address.
pub struct Memory {
    map: Mutex<(BTreeMap<u64, Arc<Alloc>>, u64)>,
    limit: u64,
}

pub fn memory() -> &'static Memory {
    static M: OnceLock<Memory> = OnceLock::new();
    M.get_or_init(|| {
        let mib = std::env::var("NVFP4_EMU_MEMORY_MIB").ok().and_then(|v| v.parse().ok()).unwrap_or(8192u64);
        Memory { map: Mutex::new((BTreeMap::new(), 0)), limit: mib << 20 }
    })
}

impl Memory {
    fn lock(&self) -> std::sync::MutexGuard<'_, (BTreeMap<u64, Arc<Alloc>>, u64)> {
        self.map.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// (free, total) bytes.
    pub fn info(&self) -> (u64, u64) {
        let used: u64 = self.lock().0.values().map(|a| a.size).sum();
        (self.limit.saturating_sub(used), self.limit)
    }

    pub fn alloc(&self, size: u64, kind: Kind) -> Option<u64> {
        if size > self.info().0 {
            return None;
        }
        let mut g = self.lock();
        g.1 += 1;
        let a = Alloc::new(size, kind, g.1)?;
        let base = a.base;
        g.0.insert(base, a);
        Some(base)
    }

    pub fn free(&self, base: u64) -> bool {
        self.lock().0.remove(&base).is_some()
    }

    /// Make foreign host memory visible to kernels.
    pub fn register(&self, base: u64, size: u64) {
        let mut g = self.lock();
        g.1 += 1;
        let id = g.1;
        let a = Alloc { base, size, kind: Kind::Host, shadow: Box::new([]), layout: None, raw: std::ptr::null_mut(), id };
        g.0.insert(base, Arc::new(a));
    }

    pub fn find(&self, addr: u64) -> Option<Arc<Alloc>> {
        let g = self.lock();
        let (_, a) = g.0.range(..=addr).next_back()?;
        (addr < a.base + a.size || (a.size == 0 && addr == a.base)).then(|| a.clone())
    }

    /// All allocations, sorted by address: what a kernel launch may touch.
    pub fn snapshot(&self) -> Vec<Arc<Alloc>> {
        self.lock().0.values().cloned().collect()
    }

    /// Copy the written-bits along with a device-to-device copy.
    pub fn copy_shadow(&self, dst: u64, src: u64, n: u64) {
        let Some(d) = self.find(dst) else { return };
        match self.find(src) {
            Some(s) if !s.shadow.is_empty() => {
                if s.unwritten(src, n).is_none() {
                    return d.set_written(dst, n);
                }
                for i in 0..n {
                    d.mark(dst + i, 1, s.unwritten(src + i, 1).is_none());
                }
            }
            _ => d.set_written(dst, n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bits_are_exact() {
        let m = memory();
        let p = m.alloc(1000, Kind::Device).unwrap();
        let a = m.find(p + 999).unwrap();
        assert!(m.find(p + 1000).is_none());
        assert_eq!(a.unwritten(p, 1000), Some(p));
        a.set_written(p + 60, 10);
        assert_eq!(a.unwritten(p + 60, 10), None);
        assert_eq!(a.unwritten(p + 60, 11), Some(p + 70));
        assert_eq!(a.unwritten(p + 59, 3), Some(p + 59));
        a.mark(p + 64, 1, false);
        assert_eq!(a.unwritten(p + 60, 10), Some(p + 64));
        assert!(a.contains(p + 990, 10) && !a.contains(p + 990, 11));
        assert!(m.free(p) && !m.free(p));
    }
}
