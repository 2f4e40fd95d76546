//! fprop, dgrad and wgrad of a linear layer on the GPU against the CPU, with BLOCK products: the same bytes.

use nvfp4::linear::{self, LinearRequest};
use nvfp4::numerics::*;
use nvfp4::plan::{Matrix, Seed};
use nvfp4::{recipe, Context, Recipe};

use super::config::Random;
use super::device::{Memory, Stream};

const TOKENS: usize = 144;
const INPUTS: usize = 96;
const OUTPUTS: usize = 80;

/// Host bytes and the same on the device.
struct Twin {
    host: Vec<u8>,
    device: Memory,
    rows: usize,
    cols: usize,
    dtype: Dtype,
}

impl Twin {
    fn new(r: &mut Random, rows: usize, cols: usize, dtype: Dtype) -> Twin {
        let host: Vec<u8> = (0..rows * cols)
            .flat_map(|_| match dtype {
                Dtype::F32 => r.normal().to_le_bytes().to_vec(),
                _ => half::bf16::from_f32(r.normal())
                    .to_bits()
                    .to_le_bytes()
                    .to_vec(),
            })
            .collect();
        let device = Memory::new(host.len());
        device.write(0, &host);
        Twin {
            host,
            device,
            rows,
            cols,
            dtype,
        }
    }
    fn matrix(&mut self, cuda: bool) -> Matrix {
        let p = match cuda {
            true => self.device.at(0),
            false => self.host.as_mut_ptr(),
        };
        Matrix::new("x", p, self.dtype, self.rows as i64, self.cols as i64, 0).expect("legal")
    }
    fn compare(&self, name: &str) -> Result<(), String> {
        let mut got = vec![0; self.host.len()];
        self.device.read(0, &mut got);
        match got.iter().zip(&self.host).position(|(g, h)| g != h) {
            None => Ok(()),
            Some(i) => Err(format!(
                "{name}: byte {i} is {}, want {}",
                got[i], self.host[i]
            )),
        }
    }
}

pub fn run() -> Result<String, String> {
    let say = |e: nvfp4::Error| e.to_string();
    let (gpu, cpu) = (Context::cuda(0).map_err(say)?, Context::cpu(1));
    let stream = Stream::new();
    let mut done = 0;
    for name in recipe::NAMES {
        let recipe = Recipe {
            accumulate: Accumulate::Block,
            ..Recipe::named(name).map_err(say)?
        };
        let mut r = Random::new(7);
        let mut x = Twin::new(&mut r, TOKENS, INPUTS, Dtype::Bf16);
        let mut w = Twin::new(&mut r, OUTPUTS, INPUTS, Dtype::Bf16);
        let mut dy = Twin::new(&mut r, TOKENS, OUTPUTS, Dtype::Bf16);
        let mut bias = Twin::new(&mut r, 1, OUTPUTS, Dtype::Bf16);
        let mut y = Twin::new(&mut r, TOKENS, OUTPUTS, Dtype::Bf16);
        let mut dx = Twin::new(&mut r, TOKENS, INPUTS, Dtype::Bf16);
        let mut dw = Twin::new(&mut r, OUTPUTS, INPUTS, Dtype::F32);
        for cuda in [false, true] {
            let ctx = if cuda { &gpu } else { &cpu };
            let (t, i, o) = (TOKENS as i64, INPUTS as i64, OUTPUTS as i64);
            let bytes = linear::workspace_bytes(ctx, &recipe, t, i, o, Dtype::Bf16).map_err(say)?;
            let memory = Memory::new(bytes);
            memory.fill(0xFF);
            let mut host = vec![0xFFu8; if cuda { 0 } else { bytes + 256 }];
            let request = LinearRequest {
                recipe,
                seed: Seed::Host(3, 4),
                accumulate_wgrad: true,
                workspace: match cuda {
                    true => memory.at(0),
                    false => host
                        .as_mut_ptr()
                        .wrapping_add(host.as_ptr().align_offset(256)),
                },
                workspace_bytes: bytes,
            };
            let s = if cuda {
                stream.raw()
            } else {
                std::ptr::null_mut()
            };
            let b = Some(bias.matrix(cuda));
            let (mx, mw, mdy) = (x.matrix(cuda), w.matrix(cuda), dy.matrix(cuda));
            linear::fprop(ctx, &request, mx, mw, b, y.matrix(cuda), s).map_err(say)?;
            linear::dgrad(ctx, &request, mdy, mw, dx.matrix(cuda), s).map_err(say)?;
            linear::wgrad(ctx, &request, mdy, mx, dw.matrix(cuda), s).map_err(say)?;
            stream.wait();
        }
        y.compare(&format!("{name}: y"))?;
        dx.compare(&format!("{name}: dx"))?;
        dw.compare(&format!("{name}: dw"))?;
        done += 3;
    }
    Ok(format!(
        "{done} products of {} recipes",
        recipe::NAMES.len()
    ))
}
