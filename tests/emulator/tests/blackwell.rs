//! sm_100: a whole NVFP4 tile through TMA, tensor memory and tcgen05, equal to
//! the arithmetic model bit for bit; and what the strict machine refuses.

mod support;
use nvfp4_emulator::driver::tensor_map::cuTensorMapEncodeTiled;
use nvfp4_emulator::mma::{hardware_gemm_step, ScaleType};
use support::{compile, Arg::*, Gpu, Module};

const TILE: &str = include_str!("kernels/umma_tile.cu");

/// A map of packed FP4 (16U4_ALIGN8B): widths in elements.
fn map_fp4(address: u64, width: u64, rows: u64, box_w: u32, box_h: u32, swizzle: u32) -> Vec<u8> {
    #[repr(align(64))]
    struct Map([u8; 128]);
    let mut m = Map([0; 128]);
    // SAFETY: all arrays have the length that rank 2 needs.
    let r = unsafe {
        cuTensorMapEncodeTiled(
            m.0.as_mut_ptr() as *mut _,
            13,
            2,
            address as *mut _,
            [width, rows].as_ptr(),
            [width / 2].as_ptr(),
            [box_w, box_h].as_ptr(),
            [1, 1].as_ptr(),
            0,
            swizzle,
            0,
            0,
        )
    };
    assert_eq!(r, 0);
    m.0.to_vec()
}

fn bytes(n: usize, seed: u64, f: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut s = seed;
    (0..n)
        .map(|_| {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            f((s >> 56) as u8)
        })
        .collect()
}

/// The 128x4 layout of scale bytes for one tile of 128 rows.
fn swizzled(linear: &[u8], blocks: usize) -> Vec<u8> {
    let mut out = vec![0; 128 * blocks];
    for m in 0..128 {
        for b in 0..blocks {
            out[(b / 4) * 512 + (m % 32) * 16 + (m / 32) * 4 + b % 4] = linear[m * blocks + b];
        }
    }
    out
}

struct Problem {
    a: Vec<u8>,
    b: Vec<u8>,
    sa: Vec<u8>,
    sb: Vec<u8>,
    k: usize,
}

fn problem(k: usize) -> Problem {
    Problem {
        a: bytes(128 * k / 2, 1, |x| x),
        b: bytes(128 * k / 2, 2, |x| x),
        sa: bytes(128 * k / 16, 3, |x| x % 127),
        sb: bytes(128 * k / 16, 4, |x| x % 127),
        k,
    }
}

fn run(g: &Gpu, m: &Module, p: &Problem) -> (i32, Vec<u32>) {
    let (a, b) = (g.upload(&p.a), g.upload(&p.b));
    let (sa, sb) = (g.upload(&swizzled(&p.sa, p.k / 16)), g.upload(&swizzled(&p.sb, p.k / 16)));
    let d = g.filled(128 * 128 * 4, 0xff);
    let map = |x| map_fp4(x, p.k as u64, 128, 256, 128, 3);
    let args = [Bytes(map(a)), Bytes(map(b)), Ptr(sa), Ptr(sb), Ptr(d), I32((p.k / 256) as i32)];
    let r = m.get("tile").try_launch([1, 1, 1], [128, 1, 1], [1, 1, 1], 16384 * 2 + 2048 * 2 + 1024, &args);
    (r, if r == 0 { g.download(d, 128 * 128) } else { Vec::new() })
}

#[test]
fn a_tile_equals_the_model() {
    let Some(ptx) = compile("umma_tile", TILE, "100a") else { return };
    let g = Gpu::new("sm_100");
    let p = problem(512);
    let (r, d) = run(&g, &g.module(&ptx), &p);
    assert_eq!(r, 0);
    for m in 0..128 {
        for n in 0..128 {
            let mut acc = 0u32;
            for s in 0..p.k / 64 {
                let row = |v: &[u8], r: usize, per: usize| v[r * p.k / per + s * 64 / per..][..64 / per].to_vec();
                acc = hardware_gemm_step(&row(&p.a, m, 2), &row(&p.b, n, 2), &row(&p.sa, m, 16), &row(&p.sb, n, 16), ScaleType::Ue4m3, acc);
            }
            assert_eq!(d[m * 128 + n], acc, "row {m} column {n}");
        }
    }
}

/// One fault planted in the kernel's text must stop it with the right report.
#[test]
fn planted_faults_are_caught() {
    let g = Gpu::new("sm_100");
    let p = problem(512);
    let cases: &[(&str, &str, &str)] = &[
        ("mb_wait(s32(&full),kb&1);", "", "shared"),
        ("(1u<<7)|(1u<<10)", "(1u<<7)|(1u<<10)|(1u<<12)", "reserved bit 12"),
        ("|(1ull<<46)|", "|", "descriptor"),
        (
            "if(nkb) mb_wait(s32(&done),(nkb-1)&1); asm volatile(\"tcgen05.fence::after_thread_sync;\");",
            "if(nkb) mb_wait(s32(&done),(nkb-1)&1);",
            "fence::after_thread_sync",
        ),
        ("if(w==0) asm volatile(\"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;\"::\"r\"(tm));", "", "dealloc"),
        ("acc+((uint32_t)(32*w)<<16)+c", "acc+((uint32_t)(32*(w^1))<<16)+c", "may touch lanes"),
        ("mb_init(s32(&done),1);", "mb_init(s32(&done),2);", "deadlock"),
        ("mb_tx(s32(&full),16384*2+2048*2)", "mb_tx(s32(&full),16384*2+2048*2+16)", "deadlock"),
    ];
    for (from, to, word) in cases {
        assert!(TILE.contains(from), "the kernel has no '{from}'");
        let Some(ptx) = compile("umma_planted", &TILE.replacen(from, to, 1), "100a") else { return };
        let (r, _) = run(&g, &g.module(&ptx), &p);
        let report = nvfp4_emulator::driver::launch::last_fault().unwrap_or_default();
        assert_ne!(r, 0, "'{to}' in place of '{from}' went unnoticed");
        assert!(report.contains(word), "'{to}' in place of '{from}' gave:\n{report}");
        nvfp4_emulator::driver::context::nvfp4_emu_clear_fault();
    }
}
