//! Scales: from the amax of a domain and of a block to the scale byte, the encode multiplier and the decode factor
//! (docs/format.md, sections 2 to 4). Block functions serve every format, so that a backend has one path.

use super::{
    e2m1, e4m3, e8m0, four_over_six, ms_eden, mx, Block, Chain, Format, Options, ScaleRule, Select,
};

/// C of the standard rule: 6 * 448.
pub const C_448: f32 = 2688.0;
/// C that leaves head room for four over six: 6 * 256.
pub const C_256: f32 = 1536.0;
/// fl(1/6).
pub const ONE_SIXTH: f32 = 1.0 / 6.0;
/// Encode side of `range_16_17`: fl(16/17).
pub const RANGE_ENCODE: f32 = 16.0 / 17.0;
/// Decode side of `range_16_17`: 17/16, exact.
pub const RANGE_DECODE: f32 = 17.0 / 16.0;

/// Options with every default that depends on another field filled in: what a quantized tensor records. `c` is 2688
/// unless given (four over six: 1536; MS-EDEN: its own). Four over six and MS-EDEN use chain DIV6 where the chain is
/// left at its default.
pub fn resolve(o: &Options) -> Options {
    let four_over_six = four_over_six::is_selected(o.select);
    let mut r = *o;
    if o.select == Select::MsEden {
        r.chain = Chain::Div6;
        r.c = ms_eden::C;
    } else {
        if four_over_six && o.chain == Chain::Te {
            r.chain = Chain::Div6;
        }
        if o.c == 0.0 {
            r.c = if four_over_six { C_256 } else { C_448 };
        }
    }
    r
}

/// What the blocks of one scale domain share. MXFP4 and chain SINGLE have encode = decode = 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorScale {
    pub amax: f32,
    pub c: f32,
    /// S_enc = min(fl(C / amax), FLT_MAX); 1 where amax is 0.
    pub encode: f32,
    /// S_dec = fl(1 / S_enc).
    pub decode: f32,
}

/// Scale of a domain. `amax` must be finite and not negative.
pub fn tensor_scale(o: &Options, amax: f32) -> TensorScale {
    let c = resolve(o).c;
    let encode = if amax == 0.0 || o.format != Format::Nvfp4 || o.chain == Chain::Single {
        1.0
    } else {
        (c / amax).min(f32::MAX)
    };
    TensorScale {
        amax,
        c,
        encode,
        decode: 1.0 / encode,
    }
}

/// NVFP4 block scale before its cast to E4M3; `b` is the largest magnitude of the block or tile.
pub fn unrounded_block_scale(o: &Options, b: f32, t: &TensorScale) -> f32 {
    if o.select == Select::MsEden {
        return b / ms_eden::VAL_MAX * t.encode;
    }
    match resolve(o).chain {
        Chain::Te => b * (t.encode * ONE_SIXTH),
        Chain::Div6 => b / 6.0 * t.encode,
        Chain::Single => b / 6.0,
    }
}

/// Scale byte of a block without four over six, and what its elements are multiplied by.
pub fn block_scale(o: &Options, b: f32, t: &TensorScale) -> (u8, f32) {
    let byte = match o.format {
        Format::Nvfp4 => e4m3::encode(unrounded_block_scale(o, b, t)),
        Format::Mxfp4 => mx::block_scale(o.scale_rule, o.half_scale && o.block == Block::TwoD, b),
        Format::Bf16 => 0,
    };
    (byte, encode_multiplier(o, byte, t))
}

/// Multiplier e of a block with this scale byte: min(fl(1 / fl(s * S_dec)), FLT_MAX) for NVFP4, 1 / s for MXFP4, then
/// times fl(16/17) under `range_16_17`.
pub fn encode_multiplier(o: &Options, byte: u8, t: &TensorScale) -> f32 {
    let e = match o.format {
        Format::Nvfp4 => (1.0 / (e4m3::decode(byte) * t.decode)).min(f32::MAX),
        Format::Mxfp4 => e8m0::reciprocal(byte),
        Format::Bf16 => 1.0,
    };
    if o.range_16_17 {
        e * RANGE_ENCODE
    } else {
        e
    }
}

/// The value that is rounded to a code: fl(x * e); MXFP4 ENCODE_CENTRIC: fl(6 * fl(x * e)).
pub fn scaled(o: &Options, x: f32, e: f32) -> f32 {
    if o.format == Format::Mxfp4 && o.scale_rule == ScaleRule::EncodeCentric {
        e2m1::MAX * (x * e)
    } else {
        x * e
    }
}

/// What decoding needs to know of a tensor and one of its scale domains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeScale {
    pub format: Format,
    pub chain: Chain,
    pub scale_rule: ScaleRule,
    pub range_16_17: bool,
    /// C as recorded, never 0.
    pub c: f32,
    /// Amax of the domain as recorded; ignored by MXFP4 and chain SINGLE.
    pub amax: f32,
}

impl DecodeScale {
    /// Decoding of what `o` encodes with `amax`.
    pub fn new(o: &Options, amax: f32) -> Self {
        let r = resolve(o);
        DecodeScale {
            format: r.format,
            chain: r.chain,
            scale_rule: r.scale_rule,
            range_16_17: r.range_16_17,
            c: r.c,
            amax,
        }
    }
}

/// amax as decoding uses it: not below the point where S_enc clamps; 0 stays 0.
pub fn decode_amax(amax: f32, c: f32) -> f32 {
    if amax == 0.0 {
        0.0
    } else {
        amax.max(c / f32::MAX)
    }
}

/// Factor of a block: an element decodes to `decode_value(d, code, decode_factor(d, byte))`. NaN for the NaN byte.
pub fn decode_factor(d: &DecodeScale, byte: u8) -> f32 {
    let factor = match (d.format, d.chain) {
        (Format::Bf16, _) => return 1.0,
        (Format::Mxfp4, _) => e8m0::decode(byte),
        (Format::Nvfp4, Chain::Single) => e4m3::decode(byte),
        (Format::Nvfp4, _) => {
            let s = e4m3::decode(byte);
            let a = decode_amax(d.amax, d.c);
            let reciprocal = 1.0 / d.c;
            if a <= f32::MAX / 448.0 {
                s * a * reciprocal
            } else {
                s * (a * reciprocal)
            }
        }
    };
    if d.range_16_17 {
        factor * RANGE_DECODE
    } else {
        factor
    }
}

/// Value of a code under its block's factor, clamped to the largest finite f32; NaN stays NaN.
pub fn decode_value(d: &DecodeScale, code: u8, factor: f32) -> f32 {
    let q = e2m1::decode(code);
    let v = if d.format == Format::Mxfp4 && d.scale_rule == ScaleRule::EncodeCentric {
        q * ONE_SIXTH * factor
    } else {
        q * factor
    };
    // A NaN passes a clamp.
    v.clamp(-f32::MAX, f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn te() -> Options {
        Options::default()
    }

    fn div6() -> Options {
        Options {
            chain: Chain::Div6,
            ..te()
        }
    }

    #[test]
    fn an_amax_of_2688_makes_the_outer_scale_one() {
        let t = tensor_scale(&te(), 2688.0);
        assert_eq!((t.encode, t.decode), (1.0, 1.0));
        assert_eq!(block_scale(&te(), 6.0, &t), (0x38, 1.0));
        assert_eq!(block_scale(&te(), 2688.0, &t), (0x7E, 1.0 / 448.0));
    }

    #[test]
    fn zero_tiny_and_huge_amax_stay_finite() {
        for o in [te(), div6()] {
            assert_eq!(tensor_scale(&o, 0.0).encode, 1.0);
            assert_eq!(tensor_scale(&o, f32::from_bits(1)).encode, f32::MAX);
            let (byte, e) = block_scale(&o, 0.0, &tensor_scale(&o, 1.0));
            assert_eq!((byte, e), (0, f32::MAX));
            for amax in [1e-45, 1e-36, 8e-36, 1e-20, 1.0, 1e30, f32::MAX] {
                let t = tensor_scale(&o, amax);
                let (byte, e) = block_scale(&o, amax, &t);
                let d = DecodeScale::new(&o, amax);
                let code = e2m1::encode(scaled(&o, amax, e));
                let v = decode_value(&d, code, decode_factor(&d, byte));
                assert!(v.is_finite() && e.is_finite(), "{amax:e} decodes to {v:e}");
                assert!(
                    (v / amax - 1.0).abs() < 0.07 || amax < 8e-36,
                    "{amax:e} decodes to {v:e}"
                );
            }
        }
    }

    #[test]
    fn known_small_maxima() {
        let decode = |o: &Options, amax: f32| {
            let (byte, e) = block_scale(o, amax, &tensor_scale(o, amax));
            let d = DecodeScale::new(o, amax);
            (
                byte,
                decode_value(
                    &d,
                    e2m1::encode(scaled(o, amax, e)),
                    decode_factor(&d, byte),
                ),
            )
        };
        let (byte, v) = decode(&div6(), 1e-36);
        assert_eq!(byte, 0x66);
        assert!((v / 9.874e-37 - 1.0).abs() < 1e-3, "{v:e}");
        assert_eq!(decode(&div6(), 8e-36).0, 0x7E);
        assert_eq!(
            decode(&te(), 6.0),
            (0x7E, 6.0),
            "an amax of 6 decodes to exactly 6"
        );
    }

    #[test]
    fn a_given_amax_below_the_data_saturates() {
        let t = tensor_scale(&te(), 1.0);
        let (byte, e) = block_scale(&te(), 10.0, &t);
        let d = DecodeScale::new(&te(), 1.0);
        assert_eq!(byte, 0x7E);
        assert_eq!(
            decode_value(
                &d,
                e2m1::encode(scaled(&te(), 10.0, e)),
                decode_factor(&d, byte)
            ),
            1.0
        );
    }

    #[test]
    fn chains_differ_on_few_bytes_of_some_tensors() {
        let differing = |amax: f32| {
            let t = tensor_scale(&te(), amax);
            let bytes = |o: &Options, b: f32| block_scale(o, b, &t).0;
            (1..512)
                .filter(|i| bytes(&te(), *i as f32 / 64.0) != bytes(&div6(), *i as f32 / 64.0))
                .count()
        };
        let counts: Vec<usize> = (256..512).map(|i| differing(i as f32 / 64.0)).collect();
        assert!(counts.iter().any(|n| *n > 0), "the chains are two");
        assert!(
            counts.iter().filter(|n| **n == 0).count() > 128,
            "most tensors agree"
        );
        assert!(*counts.iter().max().unwrap() < 32);
    }

    #[test]
    fn single_has_no_outer_scale() {
        let o = Options {
            chain: Chain::Single,
            ..te()
        };
        let t = tensor_scale(&o, 3000.0);
        assert_eq!(block_scale(&o, 3000.0, &t).0, 0x7E);
        let d = DecodeScale::new(&o, 3000.0);
        assert_eq!(decode_value(&d, 7, decode_factor(&d, 0x7E)), 2688.0);
    }

    #[test]
    fn range_16_17_scales_both_sides() {
        let o = Options {
            range_16_17: true,
            ..te()
        };
        let t = tensor_scale(&o, 2688.0);
        let (byte, e) = block_scale(&o, 6.0, &t);
        assert_eq!((byte, e), (0x38, 16.0 / 17.0));
        let d = DecodeScale::new(&o, 2688.0);
        assert_eq!(decode_factor(&d, byte), 2688.0 * (1.0 / 2688.0) * 1.0625);
    }

    #[test]
    fn the_nan_byte_decodes_to_nan_and_zero_scale_to_zero() {
        for o in [
            te(),
            Options {
                chain: Chain::Single,
                ..te()
            },
            Options {
                format: Format::Mxfp4,
                ..te()
            },
        ] {
            let nan = if o.format == Format::Mxfp4 {
                e8m0::NAN
            } else {
                e4m3::NAN
            };
            let d = DecodeScale::new(&o, 1.0);
            assert!(decode_value(&d, 0, decode_factor(&d, nan)).is_nan());
        }
        let d = DecodeScale::new(&te(), f32::MAX);
        assert_eq!(decode_value(&d, 7, decode_factor(&d, 0)), 0.0);
        let d = DecodeScale::new(
            &Options {
                format: Format::Mxfp4,
                ..te()
            },
            0.0,
        );
        assert_eq!(decode_value(&d, 7, decode_factor(&d, 254)), f32::MAX);
        assert_eq!(decode_value(&d, 2, decode_factor(&d, 0)), 2f32.powi(-127));
    }
}
