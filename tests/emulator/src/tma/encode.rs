//! `cuTensorMapEncodeTiled`: its rules, and the 128 bytes it makes.

use super::{DataType, TensorMap};
use crate::mma::desc::Swizzle;

/// The call's arguments, with the driver's enumerators as plain numbers.
#[derive(Clone, Copy, Debug)]
pub struct TiledParams<'a> {
    /// CUtensorMapDataType.
    pub data_type: u32,
    /// tensorRank.
    pub rank: u32,
    /// globalAddress.
    pub address: u64,
    /// globalDim, `rank` values.
    pub dims: &'a [u64],
    /// globalStrides, `rank - 1` values.
    pub strides: &'a [u64],
    /// boxDim, `rank` values.
    pub boxes: &'a [u32],
    /// elementStrides, `rank` values.
    pub element_strides: &'a [u32],
    /// CUtensorMapInterleave.
    pub interleave: u32,
    /// CUtensorMapSwizzle.
    pub swizzle: u32,
    /// CUtensorMapL2promotion.
    pub l2_promotion: u32,
    /// CUtensorMapFloatOOBfill.
    pub oob_fill: u32,
}

/// Why no map was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// The driver answers CUDA_ERROR_INVALID_VALUE.
    Invalid(String),
    /// Legal for the driver, not modelled here.
    Unsupported(String),
}

const MARK: u32 = 0x7E45_04A7;

/// One 64-bit FNV-1a over the other 120 bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, &b| (h ^ b as u64).wrapping_mul(0x100_0000_01B3))
}

macro_rules! invalid {
    ($($text:tt)*) => { return Err(EncodeError::Invalid(format!($($text)*))) };
}

impl TensorMap {
    /// Checks the arguments as the driver does on compute capability `sm` and packs them.
    pub fn encode_tiled(p: &TiledParams, sm: u32) -> Result<[u8; 128], EncodeError> {
        Ok(Self::validate(p, sm)?.pack())
    }

    fn validate(p: &TiledParams, sm: u32) -> Result<TensorMap, EncodeError> {
        let Some(data_type) = DataType::from_code(p.data_type) else { invalid!("tensorDataType {} does not exist", p.data_type) };
        if data_type.is_packed() && sm < 100 {
            invalid!("tensorDataType {data_type:?} needs compute capability 10.0, this is sm_{sm}")
        }
        let rank = p.rank as usize;
        if !(1..=5).contains(&rank) {
            invalid!("tensorRank {rank} is not from 1 to 5")
        }
        let lengths = [p.dims.len(), p.boxes.len(), p.element_strides.len(), p.strides.len() + 1];
        assert!(lengths.iter().all(|&n| n == rank), "array lengths {lengths:?} for rank {rank}");
        match p.interleave {
            0 => {}
            1 | 2 if rank < 3 => invalid!("interleave {} needs rank 3, got {rank}", p.interleave),
            1 | 2 => return Err(EncodeError::Unsupported(format!("interleaved tensor map (mode {}) is not modelled", p.interleave))),
            other => invalid!("interleave {other} does not exist"),
        }
        let swizzle = match p.swizzle {
            0 => Swizzle::None,
            1 => Swizzle::B32,
            2 => Swizzle::B64,
            3 => Swizzle::B128,
            4..=6 => return Err(EncodeError::Unsupported(format!("swizzle {} (128 bytes with larger atoms) is not modelled", p.swizzle))),
            other => invalid!("swizzle {other} does not exist"),
        };
        if p.l2_promotion > 3 {
            invalid!("l2Promotion {} does not exist", p.l2_promotion)
        }
        match p.oob_fill {
            0 => {}
            1 if data_type.is_float() => {}
            1 => invalid!("NaN fill needs a floating-point type, not {data_type:?}"),
            other => invalid!("oobFill {other} does not exist"),
        }
        Self::check_global(p, data_type)?;
        Self::check_box(p, data_type, swizzle)?;
        Ok(TensorMap {
            data_type,
            address: p.address,
            dims: p.dims.to_vec(),
            strides: p.strides.to_vec(),
            boxes: p.boxes.to_vec(),
            swizzle,
            nan_fill: p.oob_fill == 1,
        })
    }

    fn check_global(p: &TiledParams, data_type: DataType) -> Result<(), EncodeError> {
        let align = match data_type {
            DataType::U4x16Align16 | DataType::U6x16Align16 => 32,
            _ => 16,
        };
        if p.address == 0 || !p.address.is_multiple_of(align) {
            invalid!("globalAddress {:#x} is not a non-zero multiple of {align}", p.address)
        }
        for (i, &d) in p.dims.iter().enumerate() {
            if d == 0 || d > 1 << 32 {
                invalid!("globalDim[{i}] of {d} is not from 1 to 2^32")
            }
        }
        let unit = match data_type {
            DataType::U4x16Align8 => 2,
            DataType::U4x16Align16 | DataType::U6x16Align16 => 128,
            _ => 1,
        };
        if !p.dims[0].is_multiple_of(unit) {
            invalid!("globalDim[0] of {} is not a multiple of {unit} for {data_type:?}", p.dims[0])
        }
        for (i, &s) in p.strides.iter().enumerate() {
            if !s.is_multiple_of(align) || s >= 1 << 40 {
                invalid!("globalStrides[{i}] of {s} is not a multiple of {align} below 2^40")
            }
        }
        Ok(())
    }

    fn check_box(p: &TiledParams, data_type: DataType, swizzle: Swizzle) -> Result<(), EncodeError> {
        for (i, &b) in p.boxes.iter().enumerate() {
            if b == 0 || b > 256 {
                invalid!("boxDim[{i}] of {b} is not from 1 to 256")
            }
        }
        for (i, &s) in p.element_strides.iter().enumerate() {
            if s == 0 || s > 8 {
                invalid!("elementStrides[{i}] of {s} is not from 1 to 8")
            }
            if s != 1 {
                return Err(EncodeError::Unsupported(format!("elementStrides[{i}] of {s} is not modelled")));
            }
        }
        if matches!(data_type, DataType::U4x16Align16 | DataType::U6x16Align16) {
            if p.boxes[0] != 128 {
                invalid!("boxDim[0] of {} must be 128 for {data_type:?}", p.boxes[0])
            }
            if !matches!(swizzle, Swizzle::None | Swizzle::B128) {
                invalid!("{data_type:?} takes no swizzle or 128 bytes, not {swizzle:?}")
            }
        }
        let bits = p.boxes[0] as u64 * data_type.bits();
        if !bits.is_multiple_of(128) {
            invalid!("boxDim[0] of {} elements is {} bits of {data_type:?}, not a multiple of 16 bytes", p.boxes[0], bits)
        }
        let inner = data_type.shared_bytes(p.boxes[0] as u64);
        if swizzle != Swizzle::None && inner > swizzle.row_bytes() as u64 {
            invalid!("boxDim[0] of {} elements is {inner} bytes, more than the {}-byte swizzle", p.boxes[0], swizzle.row_bytes())
        }
        Ok(())
    }

    fn pack(&self) -> [u8; 128] {
        let mut out = Vec::with_capacity(128);
        out.extend(MARK.to_le_bytes());
        let swizzle = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128]
            .iter()
            .position(|&s| s == self.swizzle)
            .expect("all four are listed") as u8;
        let rank = self.dims.len();
        out.extend([rank as u8, self.data_type as u8, swizzle, self.nan_fill as u8]);
        out.extend(self.address.to_le_bytes());
        for i in 0..5 {
            out.extend(self.dims.get(i).copied().unwrap_or(1).to_le_bytes());
        }
        for i in 0..4 {
            out.extend(self.strides.get(i).copied().unwrap_or(0).to_le_bytes());
        }
        for i in 0..5 {
            out.extend((self.boxes.get(i).copied().unwrap_or(1) as u16).to_le_bytes());
        }
        out.resize(120, 0);
        let sum = checksum(&out);
        out.extend(sum.to_le_bytes());
        out.try_into().expect("128 bytes")
    }

    /// Reads back what [`TensorMap::encode_tiled`] made.
    pub fn decode(bytes: &[u8; 128]) -> Result<TensorMap, String> {
        let u64_at = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().expect("8 bytes"));
        if bytes[..4] != MARK.to_le_bytes() {
            return Err(format!("the tensor map starts with {:02x?}: it was not made by cuTensorMapEncodeTiled", &bytes[..4]));
        }
        if u64_at(120) != checksum(&bytes[..120]) {
            return Err("the tensor map was changed after cuTensorMapEncodeTiled made it".into());
        }
        let rank = bytes[4] as usize;
        let u16_at = |i: usize| u16::from_le_bytes([bytes[i], bytes[i + 1]]) as u32;
        Ok(TensorMap {
            data_type: DataType::from_code(bytes[5] as u32).expect("written by pack"),
            swizzle: [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128][bytes[6] as usize],
            nan_fill: bytes[7] == 1,
            address: u64_at(8),
            dims: (0..rank).map(|i| u64_at(16 + 8 * i)).collect(),
            strides: (0..rank - 1).map(|i| u64_at(56 + 8 * i)).collect(),
            boxes: (0..rank).map(|i| u16_at(88 + 2 * i)).collect(),
        })
    }
}
