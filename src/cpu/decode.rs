//! Reading elements as f32: of a matrix, or of a quantized matrix.

use crate::numerics::rounding::{bf16_bits, bf16_value, f16_bits, f16_value};
use crate::numerics::scale::{decode_factor, decode_value};
use crate::numerics::{e2m1, Dtype, Format};
use crate::plan::{Matrix, Quantized, Source};

/// Elements (row, col..col + out.len()) of the source; all inside it.
pub fn load(x: &Source, row: usize, col: usize, out: &mut [f32]) {
    match x {
        Source::Matrix(x) => load_matrix(x, row, col, out),
        Source::Quantized(x) => load_quantized(x, row, col, out),
    }
}

/// Elements (row, col..col + out.len()) of a matrix.
pub fn load_matrix(x: &Matrix, row: usize, col: usize, out: &mut [f32]) {
    debug_assert!(row < x.rows && col + out.len() <= x.cols);
    // SAFETY: the elements are inside the matrix, whose pointer, alignment and extent the plan checked.
    unsafe {
        let p = x.at(row, col);
        match x.dtype {
            Dtype::F32 => {
                std::ptr::copy_nonoverlapping(p.cast::<f32>(), out.as_mut_ptr(), out.len())
            }
            Dtype::Bf16 => {
                let x = std::slice::from_raw_parts(p.cast::<u16>(), out.len());
                out.iter_mut().zip(x).for_each(|(o, x)| *o = bf16_value(*x));
            }
            Dtype::F16 => {
                let x = std::slice::from_raw_parts(p.cast::<u16>(), out.len());
                out.iter_mut().zip(x).for_each(|(o, x)| *o = f16_value(*x));
            }
        }
    }
}

/// Writes elements (row, col..col + values.len()) of a matrix, each cast once (fp16 overflows to Inf).
pub fn store_matrix(y: &Matrix, row: usize, col: usize, values: &[f32]) {
    debug_assert!(row < y.rows && col + values.len() <= y.cols);
    // SAFETY: as in load_matrix; the caller's promise is that nobody else uses these elements now.
    unsafe {
        let p = y.at(row, col);
        match y.dtype {
            Dtype::F32 => {
                std::ptr::copy_nonoverlapping(values.as_ptr(), p.cast::<f32>(), values.len())
            }
            Dtype::Bf16 => {
                for (i, v) in values.iter().enumerate() {
                    p.cast::<u16>().add(i).write(bf16_bits(*v));
                }
            }
            Dtype::F16 => {
                for (i, v) in values.iter().enumerate() {
                    p.cast::<u16>().add(i).write(f16_bits(*v));
                }
            }
        }
    }
}

/// The amax of a row's scale domain; 1 where the format has none.
pub fn row_amax(x: &Quantized, row: usize) -> f32 {
    if x.domains() == 0 {
        return 1.0;
    }
    // SAFETY: the plan checked that amax holds `domains()` values.
    unsafe { x.amax.add(x.domain_of(row)).read() }
}

/// Scale byte of block `block` of a row.
pub fn scale_byte(x: &Quantized, row: usize, block: usize) -> u8 {
    debug_assert!(row < x.rows && block < x.scale_cols());
    // SAFETY: the plan checked that the scales hold every block of every row.
    unsafe { x.scales.add(x.scale_offset(row, block)).read() }
}

/// The codes of a row, packed.
pub fn code_row(x: &Quantized, row: usize) -> &[u8] {
    debug_assert!(row < x.rows);
    let bytes = x.code_row_bytes();
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the plan checked that the codes hold every row.
    unsafe { std::slice::from_raw_parts(x.codes.add(row * x.code_stride), bytes) }
}

/// Decoded elements (row, col..col + out.len()) of a quantized matrix.
pub fn load_quantized(x: &Quantized, row: usize, col: usize, out: &mut [f32]) {
    debug_assert!(col + out.len() <= x.cols);
    let codes = code_row(x, row);
    if x.format == Format::Bf16 {
        for (i, o) in out.iter_mut().enumerate() {
            let at = 2 * (col + i);
            *o = bf16_value(u16::from_le_bytes([codes[at], codes[at + 1]]));
        }
        return;
    }
    let d = x.decode_scale(row_amax(x, row));
    let block = x.format.block();
    let end = col + out.len();
    let mut at = col;
    while at < end {
        let next = ((at / block + 1) * block).min(end);
        let factor = decode_factor(&d, scale_byte(x, row, at / block));
        for (i, o) in (at..next).zip(&mut out[at - col..]) {
            *o = decode_value(&d, e2m1::get(codes, i), factor);
        }
        at = next;
    }
}
