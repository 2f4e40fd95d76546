//! How scale bytes become the factors that decoded codes are multiplied by, reduced to the few constants a SIMD loop
//! needs.

use crate::numerics::scale::{decode_amax, DecodeScale};
use crate::numerics::{Chain, Format, ScaleRule};

/// How scale bytes become factors: f = fl(fl(s * first) * second), then times 17/16 where the range option is on.
#[derive(Clone, Copy)]
pub struct Factors {
    pub first: f32,
    pub second: f32,
    pub range: bool,
    pub e8m0: bool,
    /// Largest finite value of the output type, where clamping to it is the contract's; f16 overflows instead.
    pub largest: f32,
}

impl Factors {
    /// None where only the scalar code knows the formula.
    pub fn new(d: &DecodeScale, largest: f32) -> Option<Factors> {
        let (first, second) = match (d.format, d.chain) {
            (Format::Bf16, _) => return None,
            (Format::Mxfp4, _) if d.scale_rule == ScaleRule::EncodeCentric => return None,
            (Format::Mxfp4, _) | (Format::Nvfp4, Chain::Single) => (1.0, 1.0),
            (Format::Nvfp4, _) => {
                let a = decode_amax(d.amax, d.c);
                let reciprocal = 1.0 / d.c;
                if a <= f32::MAX / 448.0 {
                    (a, reciprocal)
                } else {
                    (a * reciprocal, 1.0)
                }
            }
        };
        Some(Factors {
            first,
            second,
            range: d.range_16_17,
            e8m0: d.format == Format::Mxfp4,
            largest,
        })
    }
}
