//! Groups of tokens, as a layer of experts has them: group g is the rows offsets[g]..offsets[g + 1] of a matrix. On a
//! GPU the offsets are in device memory, so that a plan knows their number and a bound of their last one, nothing more.

use std::ops::Range;

use super::view::{aligned, dimension};
use super::Device;
use crate::numerics::{Format, ScaleLayout};
use crate::{Error, Result};

/// Most groups of a call.
pub const MOST: usize = 1 << 20;
/// A group's columns in a columnwise copy start at a multiple of at most this: the longest transform, and four blocks
/// of MXFP4.
const LARGEST_ALIGN: usize = 128;

/// The groups of a call.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// G, at least 1.
    pub count: usize,
    /// G + 1 values, in memory of the context's device. Checked on the CPU, not on a GPU.
    pub offsets: *const i64,
}

// SAFETY: a pointer into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for Groups {}
// SAFETY: as above.
unsafe impl Sync for Groups {}

impl Groups {
    /// Checks the number, and on the CPU the offsets: they ascend from at least 0 to at most `total`.
    pub fn new(
        device: Device,
        groups: i64,
        offsets: *const i64,
        total: usize,
        shape_only: bool,
    ) -> Result<Groups> {
        let count = dimension("desc", "groups", groups)?;
        if !(1..=MOST).contains(&count) {
            return Err(Error::InvalidArgument(format!(
                "desc.groups is {groups}, want 1 to {MOST}"
            )));
        }
        let groups = Groups { count, offsets };
        if shape_only {
            return Ok(groups);
        }
        if offsets.is_null() {
            return Err(Error::NullPointer("desc.offsets"));
        }
        aligned(offsets.cast(), "desc.offsets", 8)?;
        if device == Device::Cpu {
            // SAFETY: aligned, and the caller vouches for G + 1 values of host memory.
            unsafe { groups.check(total)? };
        }
        Ok(groups)
    }

    /// # Safety
    /// The offsets are G + 1 values of host memory.
    unsafe fn check(&self, total: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        let offsets = unsafe { std::slice::from_raw_parts(self.offsets, self.count + 1) };
        let invalid = |text: String| Err(Error::InvalidArgument(text));
        if offsets[0] < 0 {
            return invalid(format!(
                "desc.offsets[0] is {}, want at least 0",
                offsets[0]
            ));
        }
        if let Some(g) = (0..self.count).find(|g| offsets[g + 1] < offsets[*g]) {
            return invalid(format!(
                "desc.offsets[{}] is {}, less than desc.offsets[{g}] = {}: they must ascend",
                g + 1,
                offsets[g + 1],
                offsets[g]
            ));
        }
        if offsets[self.count] > total as i64 {
            return invalid(format!(
                "desc.offsets[{}] is {}, there are {total} rows of tokens",
                self.count, offsets[self.count]
            ));
        }
        Ok(())
    }

    /// The rows of each group, on the CPU.
    ///
    /// # Safety
    /// The offsets are G + 1 values of host memory that `new` has checked.
    pub unsafe fn ranges(&self) -> Vec<Range<usize>> {
        // SAFETY: the caller's promise.
        let offsets = unsafe { std::slice::from_raw_parts(self.offsets, self.count + 1) };
        offsets
            .windows(2)
            .map(|w| w[0] as usize..w[1] as usize)
            .collect()
    }
}

/// What the columns of a group must start at a multiple of in a columnwise copy: what is asked for, or the least that
/// blocks, transform and the tiles of swizzled scales (four blocks wide) allow.
pub fn column_align(
    asked: u32,
    format: Format,
    hadamard: u32,
    layout: ScaleLayout,
) -> Result<usize> {
    let tile = match (format, layout) {
        (Format::Bf16, _) | (_, ScaleLayout::Linear) => 16,
        (_, ScaleLayout::Swizzled) => 4 * format.block(),
    };
    let least = tile.max(format.block()).max(hadamard as usize);
    match asked as usize {
        0 => Ok(least),
        n if n <= LARGEST_ALIGN && n.is_power_of_two() && n >= least => Ok(n),
        n => Err(Error::InvalidArgument(format!(
            "desc.column_align is {n}, want 0 or a power of two from {least} (blocks of {}, a transform of {hadamard}, \
             {layout:?} scales) to {LARGEST_ALIGN}",
            format.block()
        ))),
    }
}

/// Columns that hold any `groups` groups of `total` tokens, each padded to a multiple of `align`.
pub fn padded_columns(total: usize, groups: usize, align: usize) -> usize {
    (total + groups.min(total) * (align - 1)) / align * align
}

/// Where the columns of each group start, and where the last one ends.
pub fn column_starts(groups: &[Range<usize>], align: usize) -> Vec<usize> {
    let mut starts = vec![0];
    for g in groups {
        starts.push(starts[starts.len() - 1] + g.len().next_multiple_of(align));
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_reached_and_never_exceeded() {
        // All ways to cut 7 tokens into 4 groups, empty ones included.
        let mut largest = 0;
        for cuts in 0..8usize.pow(3) {
            let mut at = [0, cuts % 8, cuts / 8 % 8, cuts / 64, 7];
            at.sort_unstable();
            let groups: Vec<_> = at.windows(2).map(|w| w[0]..w[1]).collect();
            let end = column_starts(&groups, 16)[4];
            assert!(end <= padded_columns(7, 4, 16));
            largest = largest.max(end);
        }
        assert_eq!(largest, padded_columns(7, 4, 16));
        assert_eq!(padded_columns(0, 4, 16), 0);
        assert_eq!(padded_columns(2, 100, 64), 128);
    }

    #[test]
    fn alignment_follows_block_transform_and_layout() {
        use {Format::*, ScaleLayout::*};
        assert_eq!(column_align(0, Nvfp4, 0, Linear), Ok(16));
        assert_eq!(column_align(0, Nvfp4, 16, Swizzled), Ok(64));
        assert_eq!(column_align(0, Mxfp4, 0, Linear), Ok(32));
        assert_eq!(column_align(0, Mxfp4, 64, Swizzled), Ok(128));
        assert_eq!(column_align(0, Bf16, 0, Swizzled), Ok(16));
        assert_eq!(column_align(128, Nvfp4, 16, Linear), Ok(128));
        for (asked, hadamard) in [(8, 0), (48, 0), (256, 0), (16, 32)] {
            let e = column_align(asked, Nvfp4, hadamard, Linear).unwrap_err();
            assert!(e.to_string().contains(&asked.to_string()), "{e}");
        }
    }
}
