//! Box copies between global and shared memory.

use super::reduce::{combine, ReduceOp};
use super::{DataType, TensorMap};
use crate::convert::exact::{BF16, F16};
use crate::mma::desc::Swizzle;

/// Reads global memory: address, destination.
pub type ReadGlobal<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), String> + 'a;
/// Writes global memory: address, bytes.
pub type WriteGlobal<'a> = dyn FnMut(u64, &[u8]) -> Result<(), String> + 'a;
/// Reads shared memory: address, destination.
pub type ReadShared<'a> = dyn FnMut(u32, &mut [u8]) -> Result<(), String> + 'a;
/// Writes shared memory: address, bytes.
pub type WriteShared<'a> = dyn FnMut(u32, &[u8]) -> Result<(), String> + 'a;
/// Replaces the bytes at a global address through a function, atomically.
pub type UpdateGlobal<'a> = dyn FnMut(u64, usize, &mut dyn FnMut(&mut [u8])) -> Result<(), String> + 'a;

/// One row of a box: where it starts in global memory and which of its elements exist.
struct Row {
    /// Address of the first element that exists.
    address: u64,
    /// Elements of the row that come before it.
    skip: u32,
    /// Elements that exist.
    count: u32,
}

impl TensorMap {
    fn check(&self, coords: &[i32], smem_addr: u32) -> Result<(), String> {
        if coords.len() != self.dims.len() {
            return Err(format!("tensor copy with {} coordinates through a map of rank {}", coords.len(), self.dims.len()));
        }
        if !smem_addr.is_multiple_of(128) {
            return Err(format!("tensor copy: shared address {smem_addr:#x} is not a multiple of 128"));
        }
        let unit = match self.data_type {
            DataType::U4x16Align8 => 2,
            DataType::U4x16Align16 | DataType::U6x16Align16 => 128,
            _ => 1,
        };
        if coords[0].rem_euclid(unit) != 0 {
            return Err(format!("tensor copy: coordinate 0 of {} is not a multiple of {unit} for {:?}", coords[0], self.data_type));
        }
        if self.swizzle != Swizzle::None && self.inner_bytes() != self.swizzle.row_bytes() {
            return Err(format!(
                "tensor copy: box rows of {} bytes in a {}-byte swizzle are not modelled",
                self.inner_bytes(),
                self.swizzle.row_bytes()
            ));
        }
        Ok(())
    }

    /// Row `index` (all dimensions but the innermost, ascending) of the box at `coords`.
    fn row(&self, coords: &[i32], mut index: u32) -> Row {
        let mut address = self.address;
        let mut exists = true;
        for (i, &size) in self.boxes.iter().enumerate().skip(1) {
            let at = coords[i] as i64 + (index % size) as i64;
            index /= size;
            exists &= at >= 0 && (at as u64) < self.dims[i];
            address = address.wrapping_add((at as u64).wrapping_mul(self.strides[i - 1]));
        }
        let first = coords[0] as i64;
        let from = first.max(0);
        let to = (first + self.boxes[0] as i64).min(self.dims[0].min(i64::MAX as u64) as i64);
        if !exists || from >= to {
            return Row { address: 0, skip: 0, count: 0 };
        }
        Row { address: address + from as u64 * self.data_type.bits() / 8, skip: (from - first) as u32, count: (to - from) as u32 }
    }

    fn rows(&self) -> u32 {
        self.boxes[1..].iter().product()
    }

    /// Offset in the shared row of global byte `b` of the box row, gaps included.
    fn spread(&self, b: u32) -> u32 {
        match self.data_type {
            DataType::U4x16Align16 => b / 8 * 16 + b % 8,
            DataType::U6x16Align16 => b / 12 * 16 + b % 12,
            _ => b,
        }
    }

    /// Global bytes of a full box row.
    fn row_bytes(&self) -> u32 {
        (self.boxes[0] as u64 * self.data_type.bits() / 8) as u32
    }

    fn fill(&self) -> Vec<u8> {
        let mut row = vec![0; self.row_bytes() as usize];
        if self.nan_fill {
            let nan: Vec<u8> = match self.data_type {
                DataType::F16 => (F16.nan as u16).to_le_bytes().to_vec(),
                DataType::Bf16 => (BF16.nan as u16).to_le_bytes().to_vec(),
                DataType::F64 => 0x7FFF_FFFF_FFFF_FFFFu64.to_le_bytes().to_vec(),
                _ => 0x7FFF_FFFFu32.to_le_bytes().to_vec(),
            };
            row.chunks_exact_mut(nan.len()).for_each(|c| c.copy_from_slice(&nan));
        }
        row
    }

    /// Bytes `[skip, skip + count)` in elements, as a byte range of the box row.
    fn span(&self, row: &Row) -> std::ops::Range<usize> {
        let bits = self.data_type.bits();
        let bytes = |n: u32| (n as u64 * bits / 8) as usize;
        bytes(row.skip)..bytes(row.skip + row.count)
    }

    /// Global to shared memory. Elements outside the tensor are filled. Returns the bytes
    /// to count on the mbarrier: those of the whole box.
    pub fn load(
        &self,
        coords: &[i32],
        smem_addr: u32,
        read_global: &mut ReadGlobal,
        write_shared: &mut WriteShared,
    ) -> Result<u32, String> {
        self.check(coords, smem_addr)?;
        let fill = self.fill();
        for r in 0..self.rows() {
            let row = self.row(coords, r);
            let mut data = fill.clone();
            if row.count != 0 {
                read_global(row.address, &mut data[self.span(&row)])?;
            }
            self.for_each_piece(smem_addr, r, |at, bytes| write_shared(at, &data[bytes]))?;
        }
        Ok(self.box_bytes())
    }

    /// Calls `piece` with each shared address and the range of the row's global bytes that
    /// lies there: at most 16 bytes, so that a piece never crosses a swizzle chunk.
    fn for_each_piece(
        &self,
        smem_addr: u32,
        row: u32,
        mut piece: impl FnMut(u32, std::ops::Range<usize>) -> Result<(), String>,
    ) -> Result<(), String> {
        let step = match self.data_type {
            DataType::U4x16Align16 => 8,
            DataType::U6x16Align16 => 12,
            _ => 16,
        };
        let base = smem_addr + row * self.inner_bytes();
        for b in (0..self.row_bytes()).step_by(step as usize) {
            let at = self.swizzle.apply(base + self.spread(b));
            piece(at, b as usize..(b + step) as usize)?;
        }
        Ok(())
    }

    fn gather_row(&self, smem_addr: u32, row: u32, read_shared: &mut ReadShared) -> Result<Vec<u8>, String> {
        let mut data = vec![0; self.row_bytes() as usize];
        self.for_each_piece(smem_addr, row, |at, bytes| read_shared(at, &mut data[bytes]))?;
        Ok(data)
    }

    /// Shared to global memory. Elements outside the tensor are dropped. Returns the bytes
    /// of the box.
    pub fn store(
        &self,
        coords: &[i32],
        smem_addr: u32,
        read_shared: &mut ReadShared,
        write_global: &mut WriteGlobal,
    ) -> Result<u32, String> {
        self.check(coords, smem_addr)?;
        for r in 0..self.rows() {
            let data = self.gather_row(smem_addr, r, read_shared)?;
            let row = self.row(coords, r);
            if row.count != 0 {
                write_global(row.address, &data[self.span(&row)])?;
            }
        }
        Ok(self.box_bytes())
    }

    /// Shared memory combined into global memory, element by element.
    pub fn reduce(
        &self,
        op: ReduceOp,
        coords: &[i32],
        smem_addr: u32,
        read_shared: &mut ReadShared,
        update_global: &mut UpdateGlobal,
    ) -> Result<u32, String> {
        self.check(coords, smem_addr)?;
        if self.data_type.is_packed() {
            return Err(format!("tensor reduction of {:?} does not exist", self.data_type));
        }
        let size = (self.data_type.bits() / 8) as usize;
        combine(op, self.data_type, 0, 0)?;
        for r in 0..self.rows() {
            let data = self.gather_row(smem_addr, r, read_shared)?;
            let row = self.row(coords, r);
            for (i, new) in data[self.span(&row)].chunks_exact(size).enumerate() {
                let mut failed = None;
                update_global(row.address + (i * size) as u64, size, &mut |old: &mut [u8]| {
                    let word = |b: &[u8]| b.iter().rev().fold(0u64, |w, &x| w << 8 | x as u64);
                    match combine(op, self.data_type, word(old), word(new)) {
                        Ok(v) => old.copy_from_slice(&v.to_le_bytes()[..size]),
                        Err(e) => failed = Some(e),
                    }
                })?;
                if let Some(e) = failed {
                    return Err(e);
                }
            }
        }
        Ok(self.box_bytes())
    }
}
