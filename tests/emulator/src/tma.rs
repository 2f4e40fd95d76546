//! Tensor maps and the box copies they describe (TMA).
//!
//! | use | function |
//! |---|---|
//! | `cuTensorMapEncodeTiled` | [`TensorMap::encode_tiled`]`(&TiledParams, sm) -> Result<[u8; 128], EncodeError>` |
//! | `cuTensorMapEncodeIm2col` and relatives | not modelled: answer with [`EncodeError::Unsupported`] |
//! | the 128 bytes as a kernel sees them | [`TensorMap::decode`]`(&[u8; 128]) -> Result<TensorMap, String>` |
//! | `cp.async.bulk.tensor ... shared <- global` (tile) | [`TensorMap::load`]`(coords, smem_addr, read_global, write_shared) -> Result<u32, String>`: bytes to count on the mbarrier |
//! | `cp.async.bulk.tensor ... global <- shared` | [`TensorMap::store`]`(coords, smem_addr, read_shared, write_global)` |
//! | `cp.reduce.async.bulk.tensor` | [`TensorMap::reduce`]`(op, coords, smem_addr, read_shared, update_global)` |
//! | `cp.reduce.async.bulk` and the element step of the above | [`reduce::combine`]`(op, element type, old, new)` |
//!
//! The 128 bytes have a layout of this crate's own, with a mark and a checksum, so that a
//! map that was never encoded, or was damaged on its way to the kernel, is noticed.
//! Memory is reached through closures, so that the caller's bounds, initialization and
//! race checks see every access: global ones as one contiguous piece of a row, shared ones
//! as pieces of at most 16 bytes at their swizzled addresses. A multicast load writes to
//! several CTAs from one closure.
//!
//! Modelled: 1 to 5 dimensions, all element types, swizzle none, 32, 64 and 128 bytes,
//! zero fill and NaN fill. Refused with a sentence: interleaved layouts, im2col, element
//! strides other than 1, and swizzled boxes whose rows are shorter than the swizzle.

mod copy;
mod encode;
pub mod reduce;

pub use encode::{EncodeError, TiledParams};

use crate::mma::desc::Swizzle;

/// Element types of `CUtensorMapDataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataType {
    /// 0
    U8,
    /// 1
    U16,
    /// 2
    U32,
    /// 3
    I32,
    /// 4
    U64,
    /// 5
    I64,
    /// 6
    F16,
    /// 7
    F32,
    /// 8
    F64,
    /// 9
    Bf16,
    /// 10
    F32Ftz,
    /// 11
    Tf32,
    /// 12
    Tf32Ftz,
    /// 13: 16 nibbles in 8 bytes, without gaps
    U4x16Align8,
    /// 14: 16 nibbles in 8 bytes, followed in shared memory by 8 bytes of gap
    U4x16Align16,
    /// 15: 16 six-bit elements in 12 bytes, followed in shared memory by 4 bytes of gap
    U6x16Align16,
}

impl DataType {
    const ALL: [DataType; 16] = [
        DataType::U8,
        DataType::U16,
        DataType::U32,
        DataType::I32,
        DataType::U64,
        DataType::I64,
        DataType::F16,
        DataType::F32,
        DataType::F64,
        DataType::Bf16,
        DataType::F32Ftz,
        DataType::Tf32,
        DataType::Tf32Ftz,
        DataType::U4x16Align8,
        DataType::U4x16Align16,
        DataType::U6x16Align16,
    ];

    /// From the driver's enumerator.
    pub fn from_code(code: u32) -> Option<DataType> {
        Self::ALL.get(code as usize).copied()
    }

    /// Bits of one element in global memory.
    pub const fn bits(self) -> u64 {
        match self {
            DataType::U8 => 8,
            DataType::U16 | DataType::F16 | DataType::Bf16 => 16,
            DataType::U64 | DataType::I64 | DataType::F64 => 64,
            DataType::U4x16Align8 | DataType::U4x16Align16 => 4,
            DataType::U6x16Align16 => 6,
            _ => 32,
        }
    }

    /// Packed sub-byte types.
    pub const fn is_packed(self) -> bool {
        self.bits() < 8
    }

    /// Bytes of `elements` elements in shared memory, gaps included.
    pub const fn shared_bytes(self, elements: u64) -> u64 {
        match self {
            DataType::U4x16Align16 | DataType::U6x16Align16 => elements,
            _ => elements * self.bits() / 8,
        }
    }

    const fn is_float(self) -> bool {
        matches!(
            self,
            DataType::F16 | DataType::F32 | DataType::F64 | DataType::Bf16 | DataType::F32Ftz | DataType::Tf32 | DataType::Tf32Ftz
        )
    }
}

/// A decoded tiled tensor map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// Element type.
    pub data_type: DataType,
    /// Address of element 0.
    pub address: u64,
    /// Elements of each dimension, innermost first.
    pub dims: Vec<u64>,
    /// Bytes between neighbours in dimensions 1, 2, ...
    pub strides: Vec<u64>,
    /// Box, innermost first.
    pub boxes: Vec<u32>,
    /// Swizzle of the box in shared memory.
    pub swizzle: Swizzle,
    /// Out-of-bounds elements of a load are NaN instead of zero.
    pub nan_fill: bool,
}

impl TensorMap {
    /// Bytes the box takes in shared memory: the transaction count of every load, also of
    /// one that lies partly or wholly outside the tensor.
    pub fn box_bytes(&self) -> u32 {
        let outer: u32 = self.boxes[1..].iter().product();
        self.inner_bytes() * outer
    }

    /// Shared-memory bytes of one row of the box.
    pub fn inner_bytes(&self) -> u32 {
        self.data_type.shared_bytes(self.boxes[0] as u64) as u32
    }
}

#[cfg(test)]
mod tests;
