//! `tcgen05.cp`: shared memory to tensor memory.

use super::{split, TensorMemory};
use crate::mma::desc::{elements, Family, MatrixDesc};
use crate::mma::SharedMemory;

/// Shapes of `tcgen05.cp`: source rows x bits, and where the rows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpShape {
    /// `.128x256b`: row r to lane r, 8 columns.
    S128x256b,
    /// `.128x128b`: row r to lane r, 4 columns.
    S128x128b,
    /// `.64x128b.warpx2::02_13`: row r to lanes r and r + 64.
    S64x128bWarpx2_02_13,
    /// `.64x128b.warpx2::01_23`: rows 0-31 to lanes r and r + 32, rows 32-63 to r + 32 and r + 64.
    S64x128bWarpx2_01_23,
    /// `.32x128b.warpx4`: row r to lanes r, r + 32, r + 64, r + 96.
    S32x128bWarpx4,
    /// `.4x256b`: rejected, its destination lanes aren't documented well enough to model.
    S4x256b,
}

impl CpShape {
    /// Source rows and bytes of a row.
    fn source(self) -> (usize, usize) {
        match self {
            CpShape::S128x256b => (128, 32),
            CpShape::S128x128b => (128, 16),
            CpShape::S64x128bWarpx2_02_13 | CpShape::S64x128bWarpx2_01_23 => (64, 16),
            CpShape::S32x128bWarpx4 => (32, 16),
            CpShape::S4x256b => (4, 32),
        }
    }

    /// Lanes that receive source row `r`.
    fn lanes(self, r: u32) -> Vec<u32> {
        match self {
            CpShape::S128x256b | CpShape::S128x128b | CpShape::S4x256b => vec![r],
            CpShape::S64x128bWarpx2_02_13 => vec![r, r + 64],
            CpShape::S64x128bWarpx2_01_23 => {
                let base = r % 32 + 64 * (r / 32);
                vec![base, base + 32]
            }
            CpShape::S32x128bWarpx4 => (0..4).map(|q| r + 32 * q).collect(),
        }
    }
}

impl TensorMemory {
    /// Copies what `descriptor` names to the columns at `address`.
    pub fn copy_in(
        &mut self,
        shape: CpShape,
        cta_group: u32,
        address: u32,
        descriptor: u64,
        smem: &dyn SharedMemory,
    ) -> Result<(), String> {
        self.use_group(cta_group)?;
        if shape == CpShape::S4x256b {
            return Err("tcgen05.cp.4x256b is not modelled".into());
        }
        let (lane, column) = split(address);
        if lane != 0 {
            return Err(format!(
                "tcgen05.cp: the address {address:#x} starts at lane {lane}; {shape:?} writes all lanes and must start at lane 0"
            ));
        }
        let (rows, bytes) = shape.source();
        let desc = MatrixDesc::decode(descriptor, Family::Tcgen05, "tcgen05.cp's source")?;
        let data = desc.read_k_major(0, rows, bytes, smem, "tcgen05.cp's source")?;
        for (r, row) in data.chunks_exact(bytes).enumerate() {
            for (c, word) in elements(row, 4).enumerate() {
                for lane in shape.lanes(r as u32) {
                    self.write(lane, column + c as u32, word, "tcgen05.cp")?;
                }
            }
        }
        Ok(())
    }
}
