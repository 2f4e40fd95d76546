//! A chip that differs from what is believed of it: `NVFP4_EMU_PLANT` names one instruction that then does something else
//! of the same kind. For tests that such a chip is found out.

use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// cvt.rn.e2m1x2: the first operand goes to the low nibble.
    E2m1x2,
    /// cvt.rs.e2m1x4: the second and third byte of the random word are exchanged.
    E2m1x4Rs,
    /// cvt.rn.e4m3x2: ties go away from zero.
    E4m3x2,
    /// mma.sync and tcgen05.mma with block scales: the scale bytes of a row of A are taken in descending order.
    BlockScale,
}

const NAMES: [(&str, Plant); 4] =
    [("e2m1x2", Plant::E2m1x2), ("e2m1x4.rs", Plant::E2m1x4Rs), ("e4m3x2", Plant::E4m3x2), ("block_scale", Plant::BlockScale)];

static PLANTED: OnceLock<Option<Plant>> = OnceLock::new();

/// Does this chip differ so? A name that is none stops the process.
pub fn is(plant: Plant) -> bool {
    *PLANTED.get_or_init(|| {
        let name = std::env::var("NVFP4_EMU_PLANT").ok().filter(|n| !n.is_empty())?;
        match NAMES.iter().find(|(n, _)| *n == name) {
            Some((_, plant)) => Some(*plant),
            None => {
                let known = NAMES.map(|(n, _)| n).join(", ");
                eprintln!("emulator: NVFP4_EMU_PLANT={name} is not one of {known}");
                std::process::exit(97)
            }
        }
    }) == Some(plant)
}
