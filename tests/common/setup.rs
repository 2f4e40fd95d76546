//! A call to spoil.

use super::{last_error, zero, Ctx, Dense, Packed};
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::ptr::null_mut;

/// A good rowwise quantization that a test spoils.
pub struct Setup {
    pub ctx: Ctx,
    pub x: Dense,
    pub desc: nvfp4_quantize_desc,
}

impl Setup {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Setup {
        Setup {
            ctx: Ctx::new(1),
            x: Dense::filled(Dtype::F32, 32, 48, || 1.5),
            desc: zero(),
        }
    }

    /// Quantizes rowwise after `spoil`, and says whether the copy's buffers were left alone.
    pub fn run(
        &self,
        spoil: impl FnOnce(&mut nvfp4_quantize_desc, &mut nvfp4_matrix, &mut nvfp4_quantized),
    ) -> nvfp4_status {
        let mut copy = Packed::room(&Options::default(), 32, 48, 0xA5, 0);
        copy.c();
        let (mut desc, mut x, mut q) = (self.desc, self.x.c(), copy.q);
        spoil(&mut desc, &mut x, &mut q);
        // SAFETY: what is spoilt is what the call must find.
        let status =
            unsafe { nvfp4_quantize(self.ctx.0, &desc, &x, &mut q, null_mut(), null_mut()) };
        if status != NVFP4_OK {
            let text = last_error();
            assert!(
                copy.codes.iter().chain(&copy.scales).all(|b| *b == 0xA5),
                "written in spite of: {text}"
            );
            assert!(
                copy.amax.iter().all(|a| a.to_bits() == 0xA5A5_A5A5),
                "amax written in spite of: {text}"
            );
            assert_eq!(
                (q.rows, q.cols),
                (0, 0),
                "the view was written in spite of: {text}"
            );
        }
        status
    }
}
