//! Which options go together (docs/format.md). A field that the chosen format does not read must be at its default, so
//! that nothing a caller asks for is dropped in silence.

use crate::numerics::{
    ms_eden, scale, Block, Chain, Format, Options, Rounding, ScaleRule, Select, Signs,
};
use crate::{Error, Result};

/// Checks the options of one copy and fills in defaults that depend on other fields.
pub fn check(name: &str, o: &Options) -> Result<Options> {
    let invalid = |text: String| Err(Error::InvalidArgument(format!("{name}: {text}")));
    if ![0, 16, 32, 64, 128].contains(&o.hadamard) {
        return invalid(format!(
            "hadamard is {}, want 0, 16, 32, 64 or 128",
            o.hadamard
        ));
    }
    if o.format != Format::Nvfp4 {
        let f = if o.format == Format::Mxfp4 {
            "MXFP4"
        } else {
            "BF16"
        };
        if o.chain != Chain::Te {
            return invalid(format!("a scale chain is NVFP4's, the format is {f}"));
        }
        if o.select != Select::Single {
            return invalid(format!(
                "select {:?} is NVFP4's, the format is {f}",
                o.select
            ));
        }
        if o.domain_rows != 0 || o.c != 0.0 {
            return invalid(format!(
                "domain_rows is {} and c is {}, {f} has no amax",
                o.domain_rows, o.c
            ));
        }
    }
    if o.format != Format::Mxfp4 && o.scale_rule != ScaleRule::Floor {
        return invalid(format!("scale rule {:?} is MXFP4's", o.scale_rule));
    }
    if o.format == Format::Bf16
        && (o.rounding != Rounding::Nearest || o.range_16_17 || o.block != Block::OneD)
    {
        return invalid("BF16 has no blocks and rounds to nearest".into());
    }
    if o.half_scale && (o.scale_rule != ScaleRule::EncodeCentric || o.block != Block::TwoD) {
        return invalid("half scales belong to tiles under ENCODE_CENTRIC".into());
    }
    if ![0.0, scale::C_448, scale::C_256].contains(&o.c) {
        return invalid(format!("c is {}, want 2688, 1536 or 0 (default)", o.c));
    }
    if o.block == Block::TwoD && !o.domain_rows.is_multiple_of(o.format.block()) {
        return invalid(format!(
            "domain_rows is {}, tiles want a multiple of {}",
            o.domain_rows,
            o.format.block()
        ));
    }
    if o.select == Select::MsEden {
        if o.hadamard as usize != ms_eden::TRANSFORM
            || !matches!(o.signs, Signs::Seeded | Signs::Mask(_))
        {
            return invalid(format!(
                "MS-EDEN follows a seeded transform of 128, hadamard is {} with signs {:?}",
                o.hadamard, o.signs
            ));
        }
        if o.block != Block::OneD || o.rounding != Rounding::Nearest || o.range_16_17 {
            return invalid(
                "MS-EDEN takes 1x16 blocks, nearest rounding and the whole range".into(),
            );
        }
        if o.chain == Chain::Single || o.c != 0.0 {
            return invalid("MS-EDEN has its own C and chain DIV6".into());
        }
    }
    Ok(scale::resolve(o))
}

/// Does this copy draw random bits for its elements or scales?
pub fn draws(o: &Options) -> bool {
    o.rounding == Rounding::Stochastic || o.select == Select::MsEden
}

/// Does its tile depend on the side it is looked at from? (Then one copy decides for both.)
pub fn is_sided(o: &Options) -> bool {
    o.rounding == Rounding::Stochastic || o.select != Select::Single
}
