//! Philox4x32-10, the counter-based generator behind every random bit of the contract (Salmon et al., "Parallel
//! random numbers: as easy as 1, 2, 3", 2011; docs/format.md, section 7).

pub const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words, a pure function of key and counter.
pub fn philox4x32_10(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let mut k = key;
    let mut c = counter;
    for round in 0..10 {
        if round > 0 {
            k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
        }
        let p0 = MULTIPLIER[0] as u64 * c[0] as u64;
        let p1 = MULTIPLIER[1] as u64 * c[2] as u64;
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
    }
    c
}

/// A 64-bit number as (low, high) words.
pub fn split(v: u64) -> [u32; 2] {
    [v as u32, (v >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers that the authors publish with their code (kat_vectors of Random123).
    #[test]
    fn known_answers() {
        assert_eq!(
            philox4x32_10([0; 2], [0; 4]),
            [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
        );
        assert_eq!(
            philox4x32_10([!0; 2], [!0; 4]),
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
        );
        assert_eq!(
            philox4x32_10(
                [0xa4093822, 0x299f31d0],
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344]
            ),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }
}
