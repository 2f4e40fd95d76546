//! Shared-memory matrix descriptors of wgmma and tcgen05, and the operands they name.
//!
//! Layouts in units of 16-byte chunks, W = 1, 2, 4, 8 chunks for no, 32-, 64- and
//! 128-byte swizzle; `i` runs over rows (M or N), `c` over 16-byte chunks of K:
//!
//! | | address of the chunk |
//! |---|---|
//! | K-major, swizzled | start + (i/8)*SBO + (i%8)*16W + 16c, then the swizzle |
//! | K-major, none | start + (i/8)*SBO + (i%8)*16 + c*LBO |
//! | MN-major, swizzled (`m` = chunk of the M or N direction, k = depth) | start + (m/W)*LBO + (m%W)*16 + (k%8)*16W + (k/8)*SBO, then the swizzle |
//! | MN-major, none | start + m*SBO + (k%8)*16 + (k/8)*LBO |
//!
//! The swizzle exclusive-ors address bits 9:7, 8:7 or 7 into bits 6:4, 5:4 or 4.

use super::SharedMemory;

/// Swizzle of a shared-memory tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swizzle {
    /// Rows of 16 bytes.
    None,
    /// Rows of 32 bytes.
    B32,
    /// Rows of 64 bytes.
    B64,
    /// Rows of 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of one row of the pattern.
    pub const fn row_bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Bits of the row index that take part, as a mask of address bits 9:7 shifted to 2:0.
    pub const fn phase_mask(self) -> u32 {
        self.row_bytes() / 16 - 1
    }

    /// Where the byte at linear address `addr` really lies.
    pub const fn apply(self, addr: u32) -> u32 {
        addr ^ (((addr >> 7) & self.phase_mask()) << 4)
    }

    /// Alignment of the pattern: 8 rows of 128 bytes, 4 of 128, 2 of 128, or 16 bytes.
    pub const fn pattern_bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            s => (s.phase_mask() + 1) * 128,
        }
    }
}

/// Which instruction family the descriptor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// sm_90 wgmma: swizzle in bits 63:62.
    Wgmma,
    /// sm_100 tcgen05: swizzle in bits 63:61, version bit 46.
    Tcgen05,
}

/// A decoded descriptor; offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatrixDesc {
    /// Start address.
    pub start: u32,
    /// Leading-dimension byte offset.
    pub lbo: u32,
    /// Stride-dimension byte offset.
    pub sbo: u32,
    /// Swizzle.
    pub swizzle: Swizzle,
}

/// Direction that is contiguous in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Major {
    /// The depth.
    K,
    /// Rows of A or columns of B.
    Mn,
}

impl MatrixDesc {
    /// Decodes and checks one descriptor; `what` names the operand in messages.
    pub fn decode(desc: u64, family: Family, what: &str) -> Result<MatrixDesc, String> {
        let bits = |lo: u32, n: u32| ((desc >> lo) & ((1 << n) - 1)) as u32;
        let fail = |why: String| Err(format!("descriptor of {what} {desc:#018x}: {why}"));
        for (lo, n) in [(14, 2), (30, 2)] {
            if bits(lo, n) != 0 {
                return fail(format!("reserved bits {}:{lo} are {:#x}", lo + n - 1, bits(lo, n)));
            }
        }
        let swizzle = match family {
            Family::Wgmma => {
                for (lo, n) in [(46, 3), (52, 10)] {
                    if bits(lo, n) != 0 {
                        return fail(format!("reserved bits {}:{lo} are {:#x}", lo + n - 1, bits(lo, n)));
                    }
                }
                [Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32][bits(62, 2) as usize]
            }
            Family::Tcgen05 => {
                if bits(46, 3) != 1 {
                    return fail(format!("bits 48:46 must be 0b001, are {:#05b}", bits(46, 3)));
                }
                if bits(52, 1) != 0 {
                    return fail("bit 52 (absolute leading offset) needs a K = 96 instruction of sm_103a".into());
                }
                if bits(53, 8) != 0 {
                    return fail(format!("reserved bits 60:53 are {:#x}", bits(53, 8)));
                }
                match bits(61, 3) {
                    0 => Swizzle::None,
                    2 => Swizzle::B128,
                    4 => Swizzle::B64,
                    6 => Swizzle::B32,
                    1 => return fail("128-byte swizzle with 32-byte atoms (mode 1) is not modelled".into()),
                    other => return fail(format!("swizzle mode {other} does not exist")),
                }
            }
        };
        let start = bits(0, 14) << 4;
        let base_offset = bits(49, 3);
        if base_offset != 0 {
            return fail(format!("base offset {base_offset}: only tiles aligned to the swizzle pattern (base offset 0) are modelled"));
        }
        let phase = start >> 7 & swizzle.phase_mask();
        if phase != 0 {
            return fail(format!(
                "start address {start:#x} lies in row group {phase} of its {}-byte swizzle pattern, but the base offset is 0",
                swizzle.pattern_bytes()
            ));
        }
        Ok(MatrixDesc { start, lbo: bits(16, 14) << 4, sbo: bits(32, 14) << 4, swizzle })
    }

    /// A stride that separates groups must keep the pattern's phase and not be zero.
    fn check_stride(&self, name: &str, value: u32, what: &str) -> Result<(), String> {
        let unit = self.swizzle.pattern_bytes();
        if value == 0 || !value.is_multiple_of(unit) {
            return Err(format!(
                "descriptor of {what}: {name} of {value} bytes is not a non-zero multiple of {unit} ({:?} swizzle)",
                self.swizzle
            ));
        }
        Ok(())
    }

    /// Reads rows `first..first + rows` of `row_bytes` bytes of K (a multiple of 16),
    /// K-major. The result holds row after row without gaps.
    pub fn read_k_major(
        &self,
        first: usize,
        rows: usize,
        row_bytes: usize,
        smem: &dyn SharedMemory,
        what: &str,
    ) -> Result<Vec<u8>, String> {
        let chunks = row_bytes / 16;
        if first + rows > 8 {
            self.check_stride("stride offset", self.sbo, what)?;
        }
        let w = self.swizzle.row_bytes();
        if self.swizzle == Swizzle::None {
            if chunks > 1 {
                self.check_stride("leading offset", self.lbo, what)?;
            }
        } else if (self.start % w) as usize + row_bytes > w as usize {
            return Err(format!(
                "descriptor of {what}: {row_bytes} bytes of K from byte {} leave the {w}-byte row of the swizzle",
                self.start % w
            ));
        }
        let mut out = vec![0; rows * row_bytes];
        for (i, row) in out.chunks_exact_mut(row_bytes).enumerate() {
            let i = (first + i) as u32;
            let base = self.start + i / 8 * self.sbo + i % 8 * w;
            for (c, chunk) in row.chunks_exact_mut(16).enumerate() {
                let step = if self.swizzle == Swizzle::None { self.lbo } else { 16 };
                let addr = self.swizzle.apply(base + c as u32 * step);
                smem.read(addr, chunk).map_err(|e| format!("{what}: {e}"))?;
            }
        }
        Ok(out)
    }

    /// Reads elements `first..first + count` (`first` a whole number of 16-byte chunks) of
    /// `depth` lines of `bytes`-byte elements, MN-major; returns them transposed to
    /// K-major: element (first + i, k) at `(i * depth + k) * bytes`.
    pub fn read_mn_major(
        &self,
        first: usize,
        count: usize,
        depth: usize,
        bytes: usize,
        smem: &dyn SharedMemory,
        what: &str,
    ) -> Result<Vec<u8>, String> {
        let per = 16 / bytes;
        let w = self.swizzle.row_bytes();
        let width = (w / 16) as usize;
        let swizzled = self.swizzle != Swizzle::None;
        if !self.start.is_multiple_of(w) {
            return Err(format!("descriptor of {what}: an MN-major start address {:#x} must be a multiple of {w} bytes", self.start));
        }
        let chunks = first / per..(first + count).div_ceil(per);
        let (outer_mn, outer_k) = if swizzled { (self.lbo, self.sbo) } else { (self.sbo, self.lbo) };
        let (mn_name, k_name) = if swizzled { ("leading offset", "stride offset") } else { ("stride offset", "leading offset") };
        if chunks.end > width {
            self.check_stride(mn_name, outer_mn, what)?;
        }
        if depth > 8 {
            self.check_stride(k_name, outer_k, what)?;
        }
        let mut out = vec![0; count * depth * bytes];
        let mut chunk = [0; 16];
        for k in 0..depth {
            for m in chunks.clone() {
                let linear =
                    self.start + (m / width) as u32 * outer_mn + (m % width) as u32 * 16 + (k % 8) as u32 * w + (k / 8) as u32 * outer_k;
                smem.read(self.swizzle.apply(linear), &mut chunk).map_err(|e| format!("{what}: {e}"))?;
                for (e, value) in chunk.chunks_exact(bytes).enumerate() {
                    let i = m * per + e - first;
                    if i < count {
                        out[(i * depth + k) * bytes..][..bytes].copy_from_slice(value);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Reads rows `range` of an operand with `depth` elements of `bytes` bytes a row, stored
    /// in either direction, and returns them K-major.
    pub fn read(
        &self,
        major: Major,
        range: std::ops::Range<usize>,
        depth: usize,
        bytes: usize,
        smem: &dyn SharedMemory,
        what: &str,
    ) -> Result<Vec<u8>, String> {
        let (first, rows) = (range.start, range.len());
        match major {
            Major::K => self.read_k_major(first, rows, depth * bytes, smem, what),
            Major::Mn => self.read_mn_major(first, rows, depth, bytes, smem, what),
        }
    }
}

/// Little-endian elements of `bytes` bytes.
pub fn elements(data: &[u8], bytes: usize) -> impl Iterator<Item = u32> + '_ {
    data.chunks_exact(bytes).map(|c| c.iter().rev().fold(0, |w, &b| w << 8 | b as u32))
}
