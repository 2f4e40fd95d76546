//! Allocation rules, register maps and copies of tensor memory.

use super::*;

fn fails<T: std::fmt::Debug>(r: Result<T, String>, part: &str) {
    let e = r.unwrap_err();
    assert!(e.contains(part), "{e}");
}

#[test]
fn allocation_rules() {
    let mut t = TensorMemory::new();
    for bad in [0, 16, 48, 1024] {
        fails(t.alloc(bad, 1), "not a power of two");
    }
    let a = t.alloc(256, 1).unwrap().unwrap();
    let b = t.alloc(128, 1).unwrap().unwrap();
    assert_ne!(a, b);
    fails(t.alloc(256, 1), "may not grow");
    assert_eq!(t.alloc(128, 1).unwrap(), Some(384));
    assert_eq!(t.alloc(32, 1).unwrap(), None);
    fails(t.alloc(32, 2), "already used cta_group::1");
    fails(t.dealloc(b, 64, 1), "where 128 were allocated");
    fails(t.dealloc(b + 32, 128, 1), "no allocation starts");
    fails(t.finish(), "256 columns at 0x0, 128 columns at 0x100, 128 columns at 0x180");
    t.dealloc(b, 128, 1).unwrap();
    fails(t.dealloc(b, 128, 1), "no allocation starts");
    assert_eq!(t.alloc(32, 1).unwrap(), Some(b));
    t.relinquish(1).unwrap();
    fails(t.alloc(32, 1), "after tcgen05.relinquish");
    fails(t.relinquish(1), "second time");
    for (address, columns) in [(a, 256), (384, 128), (b, 32)] {
        t.dealloc(address, columns, 1).unwrap();
    }
    t.finish().unwrap();
    fails(TensorMemory::new().use_group(3), "cta_group::3");
}

#[test]
fn words_must_be_allocated_and_written() {
    let mut t = TensorMemory::new();
    let x32 = Access { shape: Shape::S32x32b, num: 32, packed: false };
    fails(t.store(&x32, 0, 0, &vec![[0; 32]; 32]), "column 0 is not allocated");
    t.alloc(32, 1).unwrap();
    fails(t.load(&x32, 0, 0), "lane 0, column 0 was never written");
    t.store(&x32, 0, 0, &vec![[7; 32]; 32]).unwrap();
    assert_eq!(t.load(&x32, 0, 0).unwrap(), vec![[7; 32]; 32]);
    fails(t.load(&x32, 1, 0), "column 32 is not allocated");
    fails(t.load(&x32, 32 << 16, 1), "lane 32, column 0 was never written");
    fails(t.load(&x32, 32 << 16, 0), "warp 0 may touch lanes 0 to 31 only");
    fails(t.load(&x32, 0, 6), "warp 6 may touch lanes 64 to 95 only");
    fails(t.load(&x32, 16 << 16, 4), "cannot start at");
    fails(t.store(&x32, 0, 4, &[[0; 32]; 8]), "8 registers given");
    fails(t.load(&Access { num: 24, ..x32 }, 0, 0), ".x24 does not exist");
    fails(t.load(&Access { shape: Shape::S16x256b, num: 64, packed: false }, 0, 0), "up to 32");
    // Memory of a freed allocation is not readable through a new one.
    t.dealloc(0, 32, 1).unwrap();
    t.alloc(32, 1).unwrap();
    fails(t.load(&x32, 0, 0), "never written");
}

/// Value of a word that names its place.
fn tag(lane: u32, column: u32) -> u32 {
    lane << 16 | column
}

fn filled() -> TensorMemory {
    let mut t = TensorMemory::new();
    t.alloc(512, 1).unwrap();
    for lane in 0..LANES {
        for column in 0..COLUMNS {
            t.write(lane, column, tag(lane, column), "").unwrap();
        }
    }
    t
}

#[test]
fn register_maps_of_every_shape() {
    let t = filled();
    // Each case: shape, repetitions, start lane, then (thread, register, lane, column).
    type Places = &'static [(usize, usize, u32, u32)];
    let cases: [(Shape, u32, u32, Places); 5] = [
        (Shape::S32x32b, 8, 32, &[(0, 0, 32, 0), (31, 7, 63, 7), (5, 3, 37, 3)]),
        (Shape::S16x64b, 4, 48, &[(0, 0, 48, 0), (1, 0, 56, 0), (2, 0, 48, 1), (3, 3, 56, 7), (31, 1, 63, 3)]),
        (Shape::S16x128b, 2, 32, &[(0, 0, 32, 0), (3, 1, 40, 3), (31, 3, 47, 7), (4, 2, 33, 4)]),
        (Shape::S16x256b, 2, 32, &[(0, 0, 32, 0), (1, 1, 32, 3), (4, 2, 41, 0), (31, 7, 47, 15), (0, 4, 32, 8)]),
        (Shape::S16x32bx2 { split: 64 }, 16, 48, &[(0, 0, 48, 0), (15, 15, 63, 15), (16, 0, 48, 64), (31, 5, 63, 69)]),
    ];
    for (shape, num, lane, places) in cases {
        let access = Access { shape, num, packed: false };
        let column = 100;
        let regs = t.load(&access, lane << 16 | column, 1).unwrap();
        for &(thread, j, l, c) in places {
            assert_eq!(regs[j][thread], tag(l, column + c), "{shape:?} thread {thread} register {j}");
        }
        // Every word of the rectangle exactly once, and st is the inverse of ld.
        let mut all: Vec<u32> = regs.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 32 * regs.len());
        let mut other = TensorMemory::new();
        other.alloc(512, 1).unwrap();
        other.store(&access, lane << 16 | column, 1, &regs).unwrap();
        for value in all {
            assert_eq!(other.read(value >> 16, value & 0xFFFF, "").unwrap(), value);
        }
    }
}

#[test]
fn sixteen_bit_packing_takes_two_columns_a_register() {
    let t = filled();
    let access = Access { shape: Shape::S32x32b, num: 4, packed: true };
    let regs = t.load(&access, 64 << 16 | 10, 2).unwrap();
    assert_eq!(regs[3][9], 16 | 17 << 16);
    let mut other = TensorMemory::new();
    other.alloc(32, 1).unwrap();
    other.store(&access, 64 << 16 | 10, 2, &regs).unwrap();
    assert_eq!(other.read(73, 16, "").unwrap(), 16);
    assert_eq!(other.read(73, 17, "").unwrap(), 17);
}

#[test]
fn copies_place_rows_in_their_lanes() {
    let smem: Vec<u8> = (0..8192u32).map(|i| (i / 16 * 31 + i % 16) as u8).collect();
    let plain = |start: u64, lbo: u64, sbo: u64| start >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | 1 << 46;
    let mut t = TensorMemory::new();
    t.alloc(64, 1).unwrap();
    // Scale factors: byte 16r + 4c + b lands in lane r (+32q), column c, byte b.
    t.copy_in(CpShape::S32x128bWarpx4, 1, 4, plain(512, 16, 128), &smem).unwrap();
    for lane in 0..128u32 {
        for c in 0..4u32 {
            let at = 512 + (16 * (lane % 32) + 4 * c) as usize;
            let want = u32::from_le_bytes(smem[at..at + 4].try_into().unwrap());
            assert_eq!(t.read(lane, 4 + c, "").unwrap(), want, "{lane} {c}");
        }
    }
    for (shape, lanes) in [
        (CpShape::S64x128bWarpx2_02_13, [(0, 0), (40, 40), (64, 0), (127, 63)]),
        (CpShape::S64x128bWarpx2_01_23, [(0, 0), (40, 8), (64, 32), (127, 63)]),
        (CpShape::S128x128b, [(0, 0), (40, 40), (64, 64), (127, 127)]),
    ] {
        t.copy_in(shape, 1, 8, plain(0, 16, 128), &smem).unwrap();
        for (lane, row) in lanes {
            let at = 16 * row + 4;
            let want = u32::from_le_bytes(smem[at..at + 4].try_into().unwrap());
            assert_eq!(t.read(lane, 9, "").unwrap(), want, "{shape:?} lane {lane}");
        }
    }
    // 256 bits: the second 16 bytes come from the leading offset.
    t.copy_in(CpShape::S128x256b, 1, 16, plain(0, 2048, 128), &smem).unwrap();
    let at = 2048 + 16 * 77;
    assert_eq!(t.read(77, 20, "").unwrap(), u32::from_le_bytes(smem[at..at + 4].try_into().unwrap()));
    let mut run = |shape, address, d| t.copy_in(shape, 1, address, d, &smem);
    fails(run(CpShape::S32x128bWarpx4, 62, plain(0, 16, 128)), "column 64 is not allocated");
    fails(run(CpShape::S32x128bWarpx4, 32 << 16, plain(0, 16, 128)), "must start at lane 0");
    fails(run(CpShape::S32x128bWarpx4, 0, plain(0, 16, 0)), "stride offset of 0");
    fails(run(CpShape::S32x128bWarpx4, 0, plain(0, 16, 128) & !(1 << 46)), "0b001");
    fails(run(CpShape::S32x128bWarpx4, 0, plain(7936, 16, 128)), "outside");
    fails(run(CpShape::S4x256b, 0, plain(0, 16, 128)), "not modelled");
}
