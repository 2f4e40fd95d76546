//! The element step of bulk reductions.

use super::DataType;
use crate::convert::exact::{decode, encode, Cvt, Format, Value, BF16, F16};

/// `.redOp` of `cp.reduce.async.bulk`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduceOp {
    /// `.add`
    Add,
    /// `.min`
    Min,
    /// `.max`
    Max,
    /// `.inc`: old >= new ? 0 : old + 1
    Inc,
    /// `.dec`: old == 0 or old > new ? new : old - 1
    Dec,
    /// `.and`
    And,
    /// `.or`
    Or,
    /// `.xor`
    Xor,
}

/// What global memory holds after `new` was combined into `old` (raw bits).
pub fn combine(op: ReduceOp, data_type: DataType, old: u64, new: u64) -> Result<u64, String> {
    use ReduceOp::*;
    let missing = || Err(format!("reduction {op:?} of {data_type:?} does not exist"));
    if matches!(op, And | Or | Xor) {
        if !matches!(data_type, DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64) {
            return missing();
        }
        return Ok(match op {
            And => old & new,
            Or => old | new,
            _ => old ^ new,
        });
    }
    match data_type {
        DataType::U32 => {
            let (old, new) = (old as u32, new as u32);
            Ok(match op {
                Add => old.wrapping_add(new),
                Min => old.min(new),
                Max => old.max(new),
                Inc => {
                    if old >= new {
                        0
                    } else {
                        old + 1
                    }
                }
                _ => {
                    if old == 0 || old > new {
                        new
                    } else {
                        old - 1
                    }
                }
            } as u64)
        }
        DataType::I32 => {
            let (old, new) = (old as i32, new as i32);
            Ok(match op {
                Add => old.wrapping_add(new),
                Min => old.min(new),
                Max => old.max(new),
                _ => return missing(),
            } as u32 as u64)
        }
        DataType::U64 => Ok(match op {
            Add => old.wrapping_add(new),
            Min => old.min(new),
            Max => old.max(new),
            _ => return missing(),
        }),
        DataType::I64 => {
            let (old, new) = (old as i64, new as i64);
            Ok(match op {
                Add => old.wrapping_add(new),
                Min => old.min(new),
                Max => old.max(new),
                _ => return missing(),
            } as u64)
        }
        DataType::F32 | DataType::F32Ftz => {
            if op != Add {
                return missing();
            }
            let sum = f32::from_bits(old as u32) + f32::from_bits(new as u32);
            let bits = if sum.is_nan() { 0x7FFF_FFFF } else { sum.to_bits() };
            let flush = data_type == DataType::F32Ftz;
            Ok(if flush { crate::convert::flush_f32(bits) } else { bits } as u64)
        }
        DataType::F64 => {
            if op != Add {
                return missing();
            }
            Ok((f64::from_bits(old) + f64::from_bits(new)).to_bits())
        }
        DataType::F16 => half(op, &F16, old, new).map_or_else(missing, Ok),
        DataType::Bf16 => half(op, &BF16, old, new).map_or_else(missing, Ok),
        _ => missing(),
    }
}

/// 16-bit floats through f64. The sum is exact up to an exponent gap of 44; beyond, it
/// stays next to the larger operand, far from any tie, so rounding twice changes nothing.
fn half(op: ReduceOp, format: &Format, old: u64, new: u64) -> Option<u64> {
    let value = |bits: u64| match decode(bits, format) {
        Value::Nan => f64::NAN,
        Value::Inf(neg) => f64::INFINITY * if neg { -1.0 } else { 1.0 },
        Value::Finite { neg, mag, exp } => {
            let v = mag as f64 * 2f64.powi(exp);
            if neg {
                -v
            } else {
                v
            }
        }
    };
    let (x, y) = (value(old), value(new));
    let pick = |first: bool| Some(if first { old } else { new });
    match op {
        ReduceOp::Add => {
            let sum = decode((x + y).to_bits(), &crate::convert::exact::F64);
            Some(encode(sum, format, &Cvt::RN))
        }
        // A NaN loses against a number; -0 is below +0.
        ReduceOp::Min if x.is_nan() || y.is_nan() => pick(y.is_nan()),
        ReduceOp::Max if x.is_nan() || y.is_nan() => pick(y.is_nan()),
        ReduceOp::Min => pick(x < y || (x == y && x.is_sign_negative())),
        ReduceOp::Max => pick(x > y || (x == y && x.is_sign_positive())),
        _ => None,
    }
}
