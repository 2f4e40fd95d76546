//! Which combinations of options the contract defines.

use super::matrix::has_amax;
use super::scale::{C_256, C_448};
use super::{ms_eden, Block, Format, Options, Rounding, Select};
use crate::{Error, Result};

/// Are these options one of the combinations that the contract defines?
pub fn check(o: &Options) -> Result<()> {
    let not = |what: String| Err(Error::InvalidArgument(what));
    if ![0, 16, 32, 64, 128].contains(&o.hadamard) {
        return not(format!(
            "a Hadamard transform of {}; its length is 0, 16, 32, 64 or 128",
            o.hadamard
        ));
    }
    if ![0.0, C_448, C_256].contains(&o.c) {
        return not(format!(
            "C = {}; it is 2688 or 1536, or 0 for the default",
            o.c
        ));
    }
    if o.format != Format::Nvfp4 && o.select != Select::Single {
        return not(format!(
            "{:?} chooses scales of NVFP4; the format is {:?}",
            o.select, o.format
        ));
    }
    if o.format == Format::Bf16 && (o.rounding == Rounding::Stochastic || o.range_16_17) {
        return not("the BF16 format rounds to nearest only".into());
    }
    if o.block == Block::TwoD && has_amax(o) && !o.domain_rows.is_multiple_of(16) {
        return not(format!(
            "tiles with an amax for each {} rows; that must be a multiple of 16",
            o.domain_rows
        ));
    }
    let eden = (
        ms_eden::TRANSFORM as u32,
        Block::OneD,
        Rounding::Nearest,
        false,
        0.0,
    );
    if o.select == Select::MsEden && (o.hadamard, o.block, o.rounding, o.range_16_17, o.c) != eden {
        return not(format!(
            "MS-EDEN needs a transform of 128, 1x16 blocks, nearest rounding, no RANGE_16_17 and its own C; got a \
             transform of {}, {:?}, {:?}, RANGE_16_17 {}, C = {}",
            o.hadamard, o.block, o.rounding, o.range_16_17, o.c
        ));
    }
    Ok(())
}
