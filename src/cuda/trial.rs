//! The same small call on a GPU and on the CPU backend: memory images that are equal before it and must be equal after it.
//! What certification (certify.rs) and the self test (selftest.rs) compare by.

use super::driver::{Memory, OwnStream, Stream};
use crate::cpu::Cpu;
use crate::numerics::{Dtype, Options};
use crate::plan::quantize::{described, Sizes};
use crate::plan::{options, Buffers, Device, Matrix, Quantized};
use crate::Result;

/// Where a plan's pointers lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Device,
}

impl Side {
    pub fn device(self) -> Device {
        match self {
            Side::Host => Device::Cpu,
            Side::Device => Device::Cuda,
        }
    }
}

/// A part of both images.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    at: usize,
    pub bytes: usize,
}

const ALIGN: usize = 256;
/// What is written to no purpose must be seen: outputs and the room between them hold this.
const POISON: u8 = 0xFF;

pub struct Twin {
    host: Vec<u8>,
    /// Of the first aligned byte.
    skip: usize,
    device: Memory,
    stream: OwnStream,
    used: usize,
    pub cpu: Cpu,
    named: Vec<(&'static str, Span)>,
}

impl Twin {
    /// The device's context is current.
    pub fn new(bytes: usize) -> Result<Twin> {
        let host = vec![POISON; bytes + ALIGN];
        Ok(Twin {
            skip: host.as_ptr().align_offset(ALIGN),
            host,
            device: Memory::new(bytes)?,
            stream: OwnStream::new()?,
            used: 0,
            cpu: Cpu::new(1),
            named: Vec::new(),
        })
    }

    /// For another call.
    pub fn reset(&mut self) {
        self.host.fill(POISON);
        self.used = 0;
        self.named.clear();
    }

    pub fn take(&mut self, name: &'static str, bytes: usize) -> Span {
        let span = Span {
            at: self.used,
            bytes,
        };
        // At least one byte that nobody may write behind each.
        self.used = (self.used + bytes + 1).next_multiple_of(ALIGN);
        assert!(self.skip + self.used <= self.host.len(), "a trial's memory");
        self.named.push((name, span));
        span
    }

    pub fn put(&mut self, name: &'static str, bytes: &[u8]) -> Span {
        let span = self.take(name, bytes.len());
        self.fill(span, bytes);
        span
    }

    pub fn fill(&mut self, span: Span, bytes: &[u8]) {
        assert_eq!(span.bytes, bytes.len());
        let at = self.skip + span.at;
        self.host[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn pointer<T>(&mut self, side: Side, span: Span) -> *mut T {
        match side {
            Side::Host => self.host.as_mut_ptr().wrapping_add(self.skip + span.at),
            Side::Device => self.device.pointer().wrapping_add(span.at),
        }
        .cast()
    }

    /// Both calls, and what differs after them. Values of `floats` are f32, of which all NaN are alike.
    pub fn run(
        &mut self,
        floats: Option<Span>,
        host: impl FnOnce(&mut Twin) -> Result<()>,
        device: impl FnOnce(&mut Twin, Stream) -> Result<()>,
    ) -> Result<Option<String>> {
        let image = self.skip..self.skip + self.used;
        self.device.write(&self.host[image.clone()], &self.stream)?;
        host(self)?;
        let stream = self.stream.get();
        device(self, stream)?;
        let mut got = vec![0; self.used];
        self.device.read(&mut got, &self.stream)?;
        let want = &self.host[image];
        let alike = |i: usize| match floats {
            Some(d) if (d.at..d.at + d.bytes).contains(&i) => {
                let at = i - (i - d.at) % 4;
                let value = |m: &[u8]| f32::from_le_bytes([m[at], m[at + 1], m[at + 2], m[at + 3]]);
                value(&got).is_nan() && value(want).is_nan()
            }
            _ => false,
        };
        Ok((0..got.len())
            .find(|i| got[*i] != want[*i] && !alike(*i))
            .map(|i| {
                let (name, span) = self
                    .named
                    .iter()
                    .rev()
                    .find(|(_, s)| s.at <= i)
                    .expect("the first starts at 0");
                let behind = if i >= span.at + span.bytes {
                    " (behind its end)"
                } else {
                    ""
                };
                format!(
                    "byte {} of {name}{behind} is {:#04x}, the CPU's {:#04x}",
                    i - span.at,
                    got[i],
                    want[i]
                )
            }))
    }
}

/// A quantized matrix in both images.
#[derive(Clone, Copy)]
pub struct Place {
    shape: Quantized,
    pub codes: Span,
    pub scales: Span,
    pub amax: Span,
}

impl Place {
    /// Room for it.
    pub fn take(t: &mut Twin, shape: Quantized, names: [&'static str; 3]) -> Place {
        let sizes = Sizes::of(&shape);
        Place {
            shape,
            codes: t.take(names[0], sizes.codes_bytes),
            scales: t.take(names[1], sizes.scales_bytes),
            amax: t.take(names[2], 4 * sizes.amax_count),
        }
    }

    pub fn buffers(&self, t: &mut Twin, side: Side) -> Buffers {
        Buffers {
            codes: t.pointer(side, self.codes),
            codes_bytes: self.codes.bytes,
            scales: t.pointer(side, self.scales),
            scales_bytes: self.scales.bytes,
            amax: t.pointer(side, self.amax),
            amax_count: self.amax.bytes / 4,
            code_stride: 0,
            scale_stride: 0,
        }
    }

    pub fn bound(&self, t: &mut Twin, side: Side) -> Result<Quantized> {
        let buffers = self.buffers(t, side);
        self.shape.bind("operand", &buffers)
    }
}

/// The shape of a copy of a [rows, cols] matrix.
pub fn shape(o: &Options, rows: usize, cols: usize, columnwise: bool) -> Result<Quantized> {
    let o = options::check("copy", o)?;
    Ok(match columnwise {
        false => described(&o, rows, cols, false),
        true => described(&o, cols, rows, true),
    })
}

pub fn matrix(
    t: &mut Twin,
    side: Side,
    span: Span,
    dtype: Dtype,
    rows: usize,
    cols: usize,
) -> Result<Matrix> {
    let data = t.pointer(side, span);
    Matrix::new("x", data, dtype, rows as i64, cols as i64, 0)
}

/// The same numbers in every trial.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    pub fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }

    /// Roughly normal.
    pub fn normal(&mut self) -> f32 {
        (0..6)
            .map(|_| self.next() as f32 / 2f32.powi(30) - 1.0)
            .sum::<f32>()
            * 0.707
    }
}

/// Elements as they lie in memory.
pub fn elements(dtype: Dtype, values: impl Iterator<Item = f32>) -> Vec<u8> {
    values
        .flat_map(|v| match dtype {
            Dtype::F32 => v.to_le_bytes().to_vec(),
            Dtype::Bf16 => crate::numerics::rounding::bf16_bits(v)
                .to_le_bytes()
                .to_vec(),
            Dtype::F16 => crate::numerics::rounding::f16_bits(v)
                .to_le_bytes()
                .to_vec(),
        })
        .collect()
}
