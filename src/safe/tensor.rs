//! Owned matrices.

use crate::numerics::rounding::{bf16_bits, bf16_value, f16_bits, f16_value};
use crate::numerics::{Dtype, Format, Options};
use crate::plan::quantize::{described, Sizes};
use crate::plan::{options, Buffers, Matrix, Quantized};
use crate::{Error, Result};

/// An unquantized matrix in host memory, row-major, rows without padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    rows: usize,
    cols: usize,
    dtype: Dtype,
    wide: Vec<f32>,
    /// Bits of bf16 or f16.
    narrow: Vec<u16>,
}

impl Tensor {
    /// Zeros.
    pub fn zeros(dtype: Dtype, rows: usize, cols: usize) -> Result<Tensor> {
        let len = rows
            .checked_mul(cols)
            .filter(|n| *n <= isize::MAX as usize / 4)
            .ok_or_else(|| {
                Error::Shape(format!("[{rows}, {cols}] is larger than the address space"))
            })?;
        let (wide, narrow) = if dtype == Dtype::F32 {
            (len, 0)
        } else {
            (0, len)
        };
        Ok(Tensor {
            rows,
            cols,
            dtype,
            wide: vec![0.0; wide],
            narrow: vec![0; narrow],
        })
    }

    /// A matrix of f32, row after row.
    pub fn from_f32(rows: usize, cols: usize, values: Vec<f32>) -> Result<Tensor> {
        check_len(rows, cols, values.len())?;
        Ok(Tensor {
            rows,
            cols,
            dtype: Dtype::F32,
            wide: values,
            narrow: Vec::new(),
        })
    }

    /// A matrix of bfloat16 (`Dtype::Bf16`) or binary16 (`Dtype::F16`) by its bits, row after row.
    pub fn from_bits(dtype: Dtype, rows: usize, cols: usize, bits: Vec<u16>) -> Result<Tensor> {
        if dtype == Dtype::F32 {
            return Err(Error::InvalidArgument(
                "from_bits wants Bf16 or F16, not F32".into(),
            ));
        }
        check_len(rows, cols, bits.len())?;
        Ok(Tensor {
            rows,
            cols,
            dtype,
            wide: Vec::new(),
            narrow: bits,
        })
    }

    /// The same values, each cast once to `dtype` (nearest even).
    pub fn to(&self, dtype: Dtype) -> Tensor {
        let values = self.to_f32();
        let mut out = Tensor {
            rows: self.rows,
            cols: self.cols,
            dtype,
            wide: Vec::new(),
            narrow: Vec::new(),
        };
        match dtype {
            Dtype::F32 => out.wide = values,
            Dtype::Bf16 => out.narrow = values.into_iter().map(bf16_bits).collect(),
            Dtype::F16 => out.narrow = values.into_iter().map(f16_bits).collect(),
        }
        out
    }

    /// All elements as f32 (exact), row after row.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 => self.wide.clone(),
            Dtype::Bf16 => self.narrow.iter().map(|b| bf16_value(*b)).collect(),
            Dtype::F16 => self.narrow.iter().map(|b| f16_value(*b)).collect(),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The bits of a 16-bit matrix; empty for f32.
    pub fn bits(&self) -> &[u16] {
        &self.narrow
    }

    pub(super) fn view(&self, name: &'static str) -> Result<Matrix> {
        let data = match self.dtype {
            Dtype::F32 => self.wide.as_ptr().cast::<u8>(),
            _ => self.narrow.as_ptr().cast::<u8>(),
        };
        // Backends write only through views that came from view_mut.
        Matrix::new(
            name,
            data.cast_mut(),
            self.dtype,
            self.rows as i64,
            self.cols as i64,
            0,
        )
    }

    pub(super) fn view_mut(&mut self, name: &'static str) -> Result<Matrix> {
        let data = match self.dtype {
            Dtype::F32 => self.wide.as_mut_ptr().cast::<u8>(),
            _ => self.narrow.as_mut_ptr().cast::<u8>(),
        };
        Matrix::new(
            name,
            data,
            self.dtype,
            self.rows as i64,
            self.cols as i64,
            0,
        )
    }
}

fn check_len(rows: usize, cols: usize, len: usize) -> Result<()> {
    if rows.checked_mul(cols) != Some(len) {
        return Err(Error::Shape(format!(
            "{len} elements for a matrix of [{rows}, {cols}]"
        )));
    }
    Ok(())
}

/// A quantized matrix in host memory: one copy, rowwise or columnwise, with all that decoding needs.
#[derive(Clone, Debug)]
pub struct QuantizedTensor {
    /// Codes as 16-bit pieces, so that BF16 values are aligned; the last one may be half used.
    codes: Vec<u16>,
    code_bytes: usize,
    scales: Vec<u8>,
    amax: Vec<f32>,
    /// Its pointers are not used.
    description: Quantized,
    options: Options,
}

impl QuantizedTensor {
    /// Room for the copy of a [rows, cols] matrix (in its own orientation) under options.
    pub(super) fn room(
        name: &str,
        o: &Options,
        rows: usize,
        cols: usize,
        columnwise: bool,
    ) -> Result<QuantizedTensor> {
        let options = options::check(name, o)?;
        let description =
            described(&options, rows, cols, columnwise).bind("copy", &Buffers::shape_only())?;
        let sizes = Sizes::of(&description);
        Ok(QuantizedTensor {
            codes: vec![0; sizes.codes_bytes.div_ceil(2)],
            code_bytes: sizes.codes_bytes,
            scales: vec![0; sizes.scales_bytes],
            amax: vec![0.0; sizes.amax_count],
            description,
            options,
        })
    }

    /// A quantized matrix from its parts: `codes` packed (element 2i in the low nibble; BF16: two bytes, little-endian),
    /// `scales` in `options.scale_layout`, one f32 a scale domain in `amax`. `cols` counts elements, not bytes.
    pub fn from_parts(
        options: &Options,
        rows: usize,
        cols: usize,
        codes: &[u8],
        scales: &[u8],
        amax: &[f32],
    ) -> Result<QuantizedTensor> {
        if options.hadamard != 0 {
            return Err(Error::NotSupported(format!(
                "parts of a matrix that went through a transform of {}",
                options.hadamard
            )));
        }
        let mut q = QuantizedTensor::room("options", options, rows, cols, false)?;
        let fits = |what: &str, have: usize, want: usize| {
            if have != want {
                return Err(Error::BufferSize(format!(
                    "{have} {what} for {} matrix of [{rows}, {cols}], which has {want}",
                    crate::plan::view::describe(options.format)
                )));
            }
            Ok(())
        };
        fits("bytes of codes", codes.len(), q.code_bytes)?;
        fits("bytes of scales", scales.len(), q.scales.len())?;
        fits("values of amax", amax.len(), q.amax.len())?;
        if let Some(i) = amax.iter().position(|a| !(a.is_finite() && *a >= 0.0)) {
            return Err(Error::InvalidArgument(format!(
                "amax[{i}] is {}, want finite and not negative",
                amax[i]
            )));
        }
        for (piece, bytes) in q.codes.iter_mut().zip(codes.chunks(2)) {
            *piece = u16::from_ne_bytes([bytes[0], *bytes.get(1).unwrap_or(&0)]);
        }
        q.scales.copy_from_slice(scales);
        q.amax.copy_from_slice(amax);
        Ok(q)
    }

    /// Rows of this copy; a columnwise copy has the source's columns.
    pub fn rows(&self) -> usize {
        self.description.rows
    }

    /// Columns of this copy, a transform's padding included.
    pub fn cols(&self) -> usize {
        self.description.cols
    }

    /// Columns before a transform's padding.
    pub fn source_cols(&self) -> usize {
        self.description.source_cols
    }

    /// Packed codes, row after row: ceil(cols / 2) bytes each (BF16: 2 * cols).
    pub fn codes(&self) -> &[u8] {
        // SAFETY: the vector holds at least `code_bytes` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.codes.as_ptr().cast::<u8>(), self.code_bytes) }
    }

    /// Scale bytes in `options().scale_layout`.
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// One f32 a scale domain; empty for MXFP4, BF16 and chain SINGLE.
    pub fn amax(&self) -> &[f32] {
        &self.amax
    }

    /// Options, every default filled in.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn format(&self) -> Format {
        self.description.format
    }

    /// Is this the transposed copy of its source?
    pub fn is_transposed(&self) -> bool {
        self.description.transposed
    }

    /// Signs of the transform as applied; 0 without one.
    pub fn sign_words(&self) -> [u32; 4] {
        self.description.sign_words
    }

    pub(super) fn buffers(&mut self) -> Buffers {
        Buffers {
            codes: self.codes.as_mut_ptr().cast(),
            codes_bytes: self.code_bytes,
            scales: self.scales.as_mut_ptr(),
            scales_bytes: self.scales.len(),
            amax: self.amax.as_mut_ptr(),
            amax_count: self.amax.len(),
            code_stride: 0,
            scale_stride: 0,
        }
    }

    /// What a call made of the buffers.
    pub(super) fn became(&mut self, description: &Quantized) {
        self.description = *description;
    }

    /// To be read.
    pub(super) fn view(&self) -> Quantized {
        Quantized {
            codes: self.codes.as_ptr().cast::<u8>().cast_mut(),
            scales: self.scales.as_ptr().cast_mut(),
            amax: self.amax.as_ptr().cast_mut(),
            ..self.description
        }
    }
}

impl PartialEq for QuantizedTensor {
    /// Equal bytes that mean the same.
    fn eq(&self, other: &Self) -> bool {
        let bits = |amax: &[f32]| amax.iter().map(|a| a.to_bits()).collect::<Vec<_>>();
        self.codes() == other.codes()
            && self.scales == other.scales
            && bits(&self.amax) == bits(&other.amax)
            && self.options == other.options
            && self.sign_words() == other.sign_words()
            && (self.rows(), self.cols(), self.source_cols())
                == (other.rows(), other.cols(), other.source_cols())
            && self.is_transposed() == other.is_transposed()
    }
}
