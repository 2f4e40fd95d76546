//! Tensor maps: how the copy engine finds boxes of a matrix in memory. Encoded on the host, given to kernels by value.

use cudarc::driver::sys;

use super::driver::check;
use crate::Result;

/// CUtensorMap.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TensorMap([u64; 16]);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Bytes, laid into shared memory with the 128-byte swizzle.
    SwizzledByte,
    /// 32-bit words, as they come.
    Word,
}

impl TensorMap {
    /// Of a tensor at `address`: sizes from the innermost dimension on, bytes from one to the next of all but the innermost,
    /// and the box of one copy. What lies outside is read as 0.
    pub fn new<const RANK: usize>(
        element: Element,
        address: *const u8,
        sizes: [u64; RANK],
        strides: &[u64],
        boxes: [u32; RANK],
    ) -> Result<TensorMap> {
        assert_eq!(strides.len() + 1, RANK);
        let (kind, swizzle) = match element {
            Element::SwizzledByte => (
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            ),
            Element::Word => (
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            ),
        };
        let mut map = TensorMap([0; 16]);
        // SAFETY: room for a map with its alignment, and arrays of RANK (strides: RANK - 1) values.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                (&raw mut map).cast(),
                kind,
                RANK as u32,
                address.cast_mut().cast(),
                sizes.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                [1; RANK].as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check(
            &format!("cuTensorMapEncodeTiled of {sizes:?}, strides {strides:?}"),
            result,
        )?;
        Ok(map)
    }
}
