//! The same call on both backends: memory images that are equal before it and must be equal after it, bytes between
//! rows and behind the ends included.

use nvfp4::cpu::Cpu;
use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::{self, quantize::Sizes, Buffers, QuantizePlan, QuantizeRequest, Seed, Source};

use super::config::{push_element, value, Config, Copy, Random};
use super::device::{Memory, Stream};

/// Bytes behind each buffer that nothing may write.
const GUARD: usize = 96;

/// A region of the arena.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    pub at: usize,
    pub bytes: usize,
}

/// Host image and device memory with the same content.
pub struct Arena {
    pub host: Vec<u8>,
    pub device: Memory,
    used: usize,
}

impl Arena {
    pub fn new(bytes: usize) -> Arena {
        Arena {
            host: vec![0; bytes],
            device: Memory::new(bytes),
            used: 0,
        }
    }
    /// Everything is poison again.
    pub fn reset(&mut self, poison: u8) {
        self.host[..self.used].fill(poison);
        self.used = 0;
    }
    /// A region that starts `shift` bytes behind a multiple of 256, filled with poison.
    pub fn take(&mut self, bytes: usize, shift: usize, poison: u8) -> Region {
        let at = self.used.next_multiple_of(256) + shift;
        let end = at + bytes + GUARD;
        assert!(
            end <= self.host.len(),
            "the arena of {} bytes is full",
            self.host.len()
        );
        self.host[self.used..end].fill(poison);
        self.used = end;
        Region { at, bytes }
    }
    pub fn upload(&self) {
        self.device.write(0, &self.host[..self.used]);
    }
    /// Part of it.
    pub fn upload_region(&self, r: Region) {
        self.device.write(r.at, &self.host[r.at..r.at + r.bytes]);
    }
    /// The device's bytes of everything taken.
    pub fn download(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.used];
        self.device.read(0, &mut bytes);
        bytes
    }
    pub fn used(&self) -> usize {
        self.used
    }
    fn base(&mut self, cuda: bool) -> *mut u8 {
        if cuda {
            self.device.at(0)
        } else {
            self.host.as_mut_ptr()
        }
    }
    pub fn pointer<T>(&mut self, cuda: bool, r: Region) -> *mut T {
        self.base(cuda).wrapping_add(r.at).cast()
    }
}

/// The regions of one quantized matrix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub codes: Region,
    pub scales: Region,
    pub amax: Region,
    pub given: Option<Region>,
    pub code_stride: i64,
    pub scale_stride: i64,
}

impl Place {
    pub fn new(arena: &mut Arena, copy: &Copy, q: &plan::Quantized, poison: u8) -> Place {
        let sizes = Sizes::of(q);
        let width = q.code_row_bytes();
        let pad = |packed: usize, width: usize, pad: usize| {
            packed
                + if width == 0 {
                    0
                } else {
                    q.rows.saturating_sub(1) * pad
                }
        };
        let linear = q.scale_layout == ScaleLayout::Linear;
        let scale_pad = if linear { copy.scale_pad } else { 0 };
        Place {
            codes: arena.take(
                pad(sizes.codes_bytes, width, copy.code_pad),
                copy.shift,
                poison,
            ),
            scales: arena.take(
                pad(sizes.scales_bytes, q.scale_cols(), scale_pad),
                copy.shift,
                poison,
            ),
            amax: arena.take(4 * sizes.amax_count, 0, poison),
            given: None,
            code_stride: (width + copy.code_pad) as i64,
            scale_stride: if linear {
                (q.scale_cols() + scale_pad) as i64
            } else {
                0
            },
        }
    }
    pub fn buffers(&self, arena: &mut Arena, cuda: bool) -> Buffers {
        Buffers {
            codes: arena.pointer(cuda, self.codes),
            codes_bytes: self.codes.bytes,
            scales: arena.pointer(cuda, self.scales),
            scales_bytes: self.scales.bytes,
            amax: arena.pointer(cuda, self.amax),
            amax_count: self.amax.bytes / 4,
            code_stride: self.code_stride,
            scale_stride: self.scale_stride,
        }
    }
}

/// A call laid out in an arena.
pub struct Laid {
    pub config: Config,
    pub x: Region,
    pub stride: usize,
    pub rowwise: Option<Place>,
    pub columnwise: Option<Place>,
    pub seed: Region,
    pub stats: Region,
    pub workspace: Region,
}

impl Laid {
    pub fn new(arena: &mut Arena, c: &Config) -> Laid {
        arena.reset(c.poison);
        let stride = c.cols + c.stride_pad;
        let size = c.dtype.size();
        let x = arena.take(c.rows * stride * size, c.shift * size, c.poison);
        let mut random = Random::new(c.key);
        let mut bytes = Vec::with_capacity(x.bytes);
        for _ in 0..c.rows * stride {
            push_element(&mut bytes, c.dtype, value(&mut random, c.data));
        }
        arena.host[x.at..x.at + x.bytes].copy_from_slice(&bytes);
        let place = |arena: &mut Arena, copy: &Option<Copy>, columnwise| {
            copy.map(|copy| {
                let q = copy
                    .shape(c.rows, c.cols, columnwise)
                    .expect("a legal copy");
                let mut p = Place::new(arena, &copy, &q, c.poison);
                if let Some(factor) = copy.given {
                    let r = arena.take(4 * q.domains(), 0, c.poison);
                    for d in 0..q.domains() {
                        let v = factor * (1.0 + d as f32 / 8.0);
                        arena.host[r.at + 4 * d..][..4].copy_from_slice(&v.to_le_bytes());
                    }
                    p.given = Some(r);
                }
                p
            })
        };
        let rowwise = place(arena, &c.rowwise, false);
        let columnwise = place(arena, &c.columnwise, true);
        let seed = arena.take(16, 0, c.poison);
        arena.host[seed.at..seed.at + 8].copy_from_slice(&c.seed.to_le_bytes());
        arena.host[seed.at + 8..seed.at + 16].copy_from_slice(&c.offset.to_le_bytes());
        let stats = arena.take(40, 0, c.poison);
        Laid {
            config: *c,
            x,
            stride,
            rowwise,
            columnwise,
            seed,
            stats,
            workspace: Region::default(),
        }
    }

    pub fn matrix(&self, arena: &mut Arena, cuda: bool) -> plan::Matrix {
        let c = &self.config;
        plan::Matrix::new(
            "x",
            arena.pointer(cuda, self.x),
            c.dtype,
            c.rows as i64,
            c.cols as i64,
            self.stride as i64,
        )
        .expect("a legal matrix")
    }

    pub fn plan(
        &self,
        arena: &mut Arena,
        cuda: bool,
        source: Source,
    ) -> nvfp4::Result<QuantizePlan> {
        let c = &self.config;
        let options = |k: &Option<Copy>| k.map_or(Options::default(), |k| k.options);
        let given = |arena: &mut Arena, p: &Option<Place>| match p.and_then(|p| p.given) {
            Some(r) => arena.pointer::<f32>(cuda, r).cast_const(),
            None => std::ptr::null(),
        };
        let request = QuantizeRequest {
            rowwise: options(&c.rowwise),
            columnwise: options(&c.columnwise),
            nonfinite: c.nonfinite,
            seed: if c.device_seed && cuda {
                Seed::Device(arena.pointer(true, self.seed), 0)
            } else {
                Seed::Host(c.seed, c.offset)
            },
            origin_row: c.origin.0 as i64,
            origin_col: c.origin.1 as i64,
            rowwise_amax: given(arena, &self.rowwise),
            columnwise_amax: given(arena, &self.columnwise),
            stats: if c.stats {
                arena.pointer(cuda, self.stats)
            } else {
                std::ptr::null_mut()
            },
            workspace: if cuda {
                arena.pointer(cuda, self.workspace)
            } else {
                std::ptr::null_mut()
            },
            workspace_bytes: if cuda { self.workspace.bytes } else { 0 },
        };
        let device = if cuda {
            plan::Device::Cuda
        } else {
            plan::Device::Cpu
        };
        let row = self.rowwise.map(|p| p.buffers(arena, cuda));
        let col = self.columnwise.map(|p| p.buffers(arena, cuda));
        plan::quantize::plan(&request, device, source, row.as_ref(), col.as_ref())
    }
}

/// Both backends.
pub struct Both<'a> {
    pub cpu: Cpu,
    pub cuda: &'a Cuda,
    pub stream: Stream,
}

impl Both<'_> {
    /// Waits for the GPU, then compares everything but `skip`; the first difference in words. `names` are the regions.
    pub fn compare(
        &self,
        arena: &Arena,
        skip: Region,
        names: &[(String, Region)],
    ) -> Result<(), String> {
        self.stream.wait();
        let got = arena.download();
        let want = &arena.host[..arena.used()];
        if got == want {
            return Ok(());
        }
        let differs =
            |i: &usize| got[*i] != want[*i] && !(skip.at..skip.at + skip.bytes).contains(i);
        let Some(i) = (0..want.len()).find(differs) else {
            return Ok(());
        };
        let wrong = (0..want.len()).filter(differs).count();
        let place = names
            .iter()
            .rev()
            .find(|(_, r)| r.at <= i && i < r.at + r.bytes + GUARD);
        let (name, at) = place.map_or(("no region", i), |(n, r)| (n.as_str(), i - r.at));
        Err(format!(
            "{name}: byte {at} is {:#04x} on the GPU, {:#04x} on the CPU; {wrong} bytes of the call differ",
            got[i], want[i]
        ))
    }
}
