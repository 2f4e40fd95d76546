//! Tensor memory of one CTA: 128 lanes x 512 columns of 32-bit words.
//!
//! An address has the lane in bits 31:16 and the column in bits 15:0. Every access is
//! checked: allocated columns, lanes of the warp's quadrant, words that were written
//! before they are read. Errors are sentences with the values; the caller adds where.
//!
//! | instruction | method |
//! |---|---|
//! | `tcgen05.alloc` | [`TensorMemory::alloc`]`(columns, cta_group) -> Result<Option<u32>, String>`: `None` means "would block, try again after a dealloc" |
//! | `tcgen05.relinquish_alloc_permit` | [`TensorMemory::relinquish`]`(cta_group)` |
//! | `tcgen05.dealloc` | [`TensorMemory::dealloc`]`(address, columns, cta_group)` |
//! | end of the CTA | [`TensorMemory::finish`]`() -> Result<(), String>`: leaked columns |
//! | any instruction with `.cta_group` | [`TensorMemory::use_group`]`(cta_group)` (called by all of these and by `umma`) |
//! | `tcgen05.ld` | [`TensorMemory::load`]`(&Access, address, warp) -> Result<Vec<[u32; 32]>, String>`, registers first, lanes second |
//! | `tcgen05.st` | [`TensorMemory::store`]`(&Access, address, warp, &regs)` |
//! | `tcgen05.cp` | [`TensorMemory::copy_in`]`(CpShape, cta_group, address, descriptor, smem)`; with cta_group::2 call it once for each CTA with that CTA's own shared memory |
//! | `tcgen05.shift` | rejected: which way "down" goes could not be established |
//! | `tcgen05.mma` | [`crate::mma::umma`], through [`TensorMemory::read`] and [`TensorMemory::write`] |
//!
//! `warp` is the warp's index in its CTA; its quadrant is `warp % 4`. The methods act at
//! once: that ld, st, cp and mma are asynchronous, and what must be waited for, is the
//! caller's to enforce.

mod access;
mod copy;

pub use access::{Access, Shape};
pub use copy::CpShape;

/// Lanes of tensor memory.
pub const LANES: u32 = 128;
/// Columns of 32-bit words.
pub const COLUMNS: u32 = 512;

#[derive(Clone, Debug)]
struct Allocation {
    first: u32,
    columns: u32,
}

/// The memory with its allocation map.
#[derive(Clone, Debug)]
pub struct TensorMemory {
    words: Vec<u32>,
    written: Vec<bool>,
    allocations: Vec<Allocation>,
    allocated: [bool; COLUMNS as usize],
    cta_group: Option<u32>,
    relinquished: bool,
    last_size: u32,
}

impl Default for TensorMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// Splits an address into lane and column.
pub fn split(address: u32) -> (u32, u32) {
    (address >> 16, address & 0xFFFF)
}

impl TensorMemory {
    /// Nothing allocated, nothing written.
    pub fn new() -> Self {
        let size = (LANES * COLUMNS) as usize;
        TensorMemory {
            words: vec![0xFFFF_FFFF; size],
            written: vec![false; size],
            allocations: Vec::new(),
            allocated: [false; COLUMNS as usize],
            cta_group: None,
            relinquished: false,
            last_size: COLUMNS,
        }
    }

    /// All tcgen05 instructions of a kernel must use one `.cta_group`.
    pub fn use_group(&mut self, cta_group: u32) -> Result<(), String> {
        if !matches!(cta_group, 1 | 2) {
            return Err(format!("cta_group::{cta_group} does not exist"));
        }
        match self.cta_group {
            Some(used) if used != cta_group => {
                Err(format!("tcgen05 with cta_group::{cta_group} in a kernel that already used cta_group::{used}"))
            }
            _ => {
                self.cta_group = Some(cta_group);
                Ok(())
            }
        }
    }

    /// Allocates columns; the address of the first, or `None` when they aren't free now.
    pub fn alloc(&mut self, columns: u32, cta_group: u32) -> Result<Option<u32>, String> {
        self.use_group(cta_group)?;
        check_size("tcgen05.alloc", columns)?;
        if self.relinquished {
            return Err("tcgen05.alloc after tcgen05.relinquish_alloc_permit of the same CTA".into());
        }
        if columns > self.last_size {
            return Err(format!("tcgen05.alloc of {columns} columns after one of {}: allocations may not grow", self.last_size));
        }
        let free = (0..=COLUMNS - columns).step_by(32).find(|&c| (c..c + columns).all(|c| !self.allocated[c as usize]));
        let Some(first) = free else { return Ok(None) };
        self.last_size = columns;
        self.mark(first, columns, true);
        self.allocations.push(Allocation { first, columns });
        Ok(Some(first))
    }

    fn mark(&mut self, first: u32, columns: u32, allocated: bool) {
        for c in first..first + columns {
            self.allocated[c as usize] = allocated;
            for lane in 0..LANES {
                let i = (lane * COLUMNS + c) as usize;
                self.written[i] = false;
                self.words[i] = 0xFFFF_FFFF;
            }
        }
    }

    /// This CTA will not allocate any more.
    pub fn relinquish(&mut self, cta_group: u32) -> Result<(), String> {
        self.use_group(cta_group)?;
        if self.relinquished {
            return Err("tcgen05.relinquish_alloc_permit a second time".into());
        }
        self.relinquished = true;
        Ok(())
    }

    /// Frees what one `alloc` gave: same address, same size.
    pub fn dealloc(&mut self, address: u32, columns: u32, cta_group: u32) -> Result<(), String> {
        self.use_group(cta_group)?;
        check_size("tcgen05.dealloc", columns)?;
        let found = self.allocations.iter().position(|a| a.first == address);
        match found {
            Some(i) if self.allocations[i].columns == columns => {
                self.allocations.remove(i);
                self.mark(address, columns, false);
                Ok(())
            }
            Some(i) => {
                Err(format!("tcgen05.dealloc of {columns} columns at {address:#x}, where {} were allocated", self.allocations[i].columns))
            }
            None => Err(format!("tcgen05.dealloc at {address:#x}, where no allocation starts (live: {})", self.live())),
        }
    }

    fn live(&self) -> String {
        if self.allocations.is_empty() {
            return "none".into();
        }
        let each = |a: &Allocation| format!("{} columns at {:#x}", a.columns, a.first);
        self.allocations.iter().map(each).collect::<Vec<_>>().join(", ")
    }

    /// To be called when the CTA ends.
    pub fn finish(&self) -> Result<(), String> {
        if self.allocations.is_empty() {
            Ok(())
        } else {
            Err(format!("the CTA ends without tcgen05.dealloc of {}", self.live()))
        }
    }

    fn index(&self, lane: u32, column: u32, what: &str) -> Result<usize, String> {
        if lane >= LANES || column >= COLUMNS {
            return Err(format!("{what}: lane {lane}, column {column} is outside tensor memory (128 x 512)"));
        }
        if !self.allocated[column as usize] {
            return Err(format!("{what}: column {column} is not allocated (live: {})", self.live()));
        }
        Ok((lane * COLUMNS + column) as usize)
    }

    /// One word; `what` starts the message.
    pub fn read(&self, lane: u32, column: u32, what: &str) -> Result<u32, String> {
        let i = self.index(lane, column, what)?;
        if !self.written[i] {
            return Err(format!("{what}: lane {lane}, column {column} was never written"));
        }
        Ok(self.words[i])
    }

    /// One word; `what` starts the message.
    pub fn write(&mut self, lane: u32, column: u32, value: u32, what: &str) -> Result<(), String> {
        let i = self.index(lane, column, what)?;
        self.words[i] = value;
        self.written[i] = true;
        Ok(())
    }

    /// Fails unless every word of the rectangle could be written.
    pub fn check(&self, lane: u32, lanes: u32, column: u32, columns: u32, what: &str) -> Result<(), String> {
        self.index(lane + lanes - 1, column, what)?;
        for c in column..column + columns {
            self.index(lane, c, what)?;
        }
        Ok(())
    }
}

fn check_size(what: &str, columns: u32) -> Result<(), String> {
    if columns.is_power_of_two() && (32..=COLUMNS).contains(&columns) {
        Ok(())
    } else {
        Err(format!("{what}: {columns} columns is not a power of two from 32 to 512"))
    }
}

#[cfg(test)]
mod tests;
