//! `tcgen05.ld` and `tcgen05.st`: which thread's register meets which word.

use super::{split, TensorMemory};

/// Data-movement shapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// `.32x32b`
    S32x32b,
    /// `.16x64b`
    S16x64b,
    /// `.16x128b`
    S16x128b,
    /// `.16x256b`
    S16x256b,
    /// `.16x32bx2` with its immHalfSplitoff.
    S16x32bx2 {
        /// Column offset of threads 16 to 31.
        split: u32,
    },
}

/// One ld or st form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Shape.
    pub shape: Shape,
    /// The N of `.xN`.
    pub num: u32,
    /// `.pack::16b` (ld) or `.unpack::16b` (st): one register holds the low halves of two
    /// neighbouring columns, lower column in the lower half.
    pub packed: bool,
}

impl Access {
    /// Registers a thread supplies or receives.
    pub fn registers(&self) -> usize {
        self.num as usize
            * match self.shape {
                Shape::S16x128b => 2,
                Shape::S16x256b => 4,
                _ => 1,
            }
    }

    fn max_num(&self) -> u32 {
        match self.shape {
            Shape::S16x128b => 64,
            Shape::S16x256b => 32,
            _ => 128,
        }
    }

    /// Lane and 32-bit (or packed) column of register `j` of thread `t`, relative to the address.
    fn place(&self, t: u32, j: u32) -> (u32, u32) {
        match self.shape {
            Shape::S32x32b => (t, j),
            Shape::S16x64b => (8 * (t & 1) + (t >> 2), 2 * j + (t >> 1 & 1)),
            Shape::S16x128b => ((t >> 2) + 8 * (j & 1), (t & 3) + 4 * (j >> 1)),
            Shape::S16x256b => ((t >> 2) + 8 * (j >> 1 & 1), 2 * (t & 3) + (j & 1) + 8 * (j >> 2)),
            Shape::S16x32bx2 { split } => (t & 15, if t < 16 { j } else { split + j }),
        }
    }

    fn check(&self, what: &str, address: u32, warp: u32) -> Result<(u32, u32), String> {
        if !self.num.is_power_of_two() || self.num > self.max_num() {
            return Err(format!("{what}: .x{} does not exist for {:?} (powers of two up to {})", self.num, self.shape, self.max_num()));
        }
        let (lane, column) = split(address);
        let first = 32 * (warp % 4);
        let allowed = if self.shape == Shape::S32x32b { lane == first } else { lane == first || lane == first + 16 };
        if !allowed {
            return Err(format!(
                "{what}: warp {warp} may touch lanes {first} to {} only; the address {address:#x} starts at lane {lane}{}",
                first + 31,
                if lane / 32 == first / 32 { ", which this shape cannot start at" } else { "" }
            ));
        }
        Ok((lane, column))
    }
}

impl TensorMemory {
    /// `tcgen05.ld`.
    pub fn load(&self, access: &Access, address: u32, warp: u32) -> Result<Vec<[u32; 32]>, String> {
        let (lane0, column0) = access.check("tcgen05.ld", address, warp)?;
        let mut regs = vec![[0; 32]; access.registers()];
        for (j, reg) in regs.iter_mut().enumerate() {
            for (t, word) in reg.iter_mut().enumerate() {
                let (lane, column) = access.place(t as u32, j as u32);
                let lane = lane0 + lane;
                *word = if access.packed {
                    let low = self.read(lane, column0 + 2 * column, "tcgen05.ld")?;
                    let high = self.read(lane, column0 + 2 * column + 1, "tcgen05.ld")?;
                    low & 0xFFFF | high << 16
                } else {
                    self.read(lane, column0 + column, "tcgen05.ld")?
                };
            }
        }
        Ok(regs)
    }

    /// `tcgen05.st`.
    pub fn store(&mut self, access: &Access, address: u32, warp: u32, regs: &[[u32; 32]]) -> Result<(), String> {
        let (lane0, column0) = access.check("tcgen05.st", address, warp)?;
        if regs.len() != access.registers() {
            return Err(format!(
                "tcgen05.st: {} registers given, {:?}.x{} takes {}",
                regs.len(),
                access.shape,
                access.num,
                access.registers()
            ));
        }
        for (j, reg) in regs.iter().enumerate() {
            for (t, &word) in reg.iter().enumerate() {
                let (lane, column) = access.place(t as u32, j as u32);
                let lane = lane0 + lane;
                if access.packed {
                    self.write(lane, column0 + 2 * column, word & 0xFFFF, "tcgen05.st")?;
                    self.write(lane, column0 + 2 * column + 1, word >> 16, "tcgen05.st")?;
                } else {
                    self.write(lane, column0 + column, word, "tcgen05.st")?;
                }
            }
        }
        Ok(())
    }
}
