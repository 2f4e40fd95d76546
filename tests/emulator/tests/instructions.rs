//! Instruction classes in hand-written PTX, each against the same computation on
//! the host, over special and random values.

mod support;
use support::{Arg::*, Gpu};

/// Values where integer and float rules bend, then random ones.
fn values(n: usize, seed: u64) -> Vec<u32> {
    let special = [
        0u32,
        1,
        2,
        31,
        32,
        33,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x0000_0001,
        0x0080_0000,
        0x7f7f_ffff,
        0x4b00_0001,
        0x3eff_ffff,
        0x4f00_0000,
        0xcf00_0000,
        0x3c00_3c00,
        0x7bff_0400,
    ];
    let mut s = seed;
    (0..n)
        .map(|i| {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let r = (s >> 32) as u32;
            if (i as u64 + seed).is_multiple_of(3) {
                special[r as usize % special.len()]
            } else {
                r
            }
        })
        .collect()
}

const N: usize = 1024;

struct Bench {
    g: Gpu,
    inputs: [Vec<u32>; 3],
    at: [u64; 3],
}

impl Bench {
    fn new() -> Bench {
        let g = Gpu::new("sm_90");
        let inputs = [values(N, 1), values(N, 2), values(N, 3)];
        let at = [g.upload(&inputs[0]), g.upload(&inputs[1]), g.upload(&inputs[2])];
        Bench { g, inputs, at }
    }

    /// Run `body`: sources %a %b %c (b32), %A %B (b64: a|b, b|c), %h %i (b16);
    /// results %o (b32) or %O (b64, low and high word), %q a predicate.
    fn run(&self, body: &str) -> Vec<[u32; 2]> {
        let text = format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa,.param .u64 pb,.param .u64 pc,.param .u64 po)\n{{\n
            .reg .b32 %a,%b,%c,%o,%t,%u; .reg .b64 %A,%B,%O,%T,%x<6>; .reg .b16 %h,%i,%s; .reg .pred %q,%p,%r;\n
            .reg .u32 %n<4>;\n
            mov.u32 %n0, %tid.x; mov.u32 %n1, %ctaid.x; mad.lo.u32 %n2, %n1, 128, %n0; mul.wide.u32 %x0, %n2, 4;\n
            ld.param.u64 %x1, [pa]; add.s64 %x1, %x1, %x0; ld.global.b32 %a, [%x1];\n
            ld.param.u64 %x1, [pb]; add.s64 %x1, %x1, %x0; ld.global.b32 %b, [%x1];\n
            ld.param.u64 %x1, [pc]; add.s64 %x1, %x1, %x0; ld.global.b32 %c, [%x1];\n
            mov.b64 %A, {{%a, %b}}; mov.b64 %B, {{%b, %c}}; cvt.u16.u32 %h, %a; cvt.u16.u32 %i, %b;\n
            mov.u32 %o, 0; mov.u64 %O, 0; setp.ne.u32 %q, %o, %o;\n
            {body}\n
            @%q mov.u32 %o, 1;\n
            ld.param.u64 %x2, [po]; add.s64 %x2, %x2, %x0; add.s64 %x2, %x2, %x0;\n
            cvt.u64.u32 %x3, %o; or.b64 %O, %O, %x3; st.global.b64 [%x2], %O; ret;\n}}\n"
        );
        let out = self.g.filled(N * 8, 0xcc);
        self.g.module(&text).get("k").launch((N / 128) as u32, 128, 0, &[Ptr(self.at[0]), Ptr(self.at[1]), Ptr(self.at[2]), Ptr(out)]);
        let flat: Vec<u32> = self.g.download(out, 2 * N);
        flat.chunks(2).map(|c| [c[0], c[1]]).collect()
    }

    fn w32(&self, op: &str, f: impl Fn(u32, u32, u32) -> u32) {
        self.w64(op, |a, b, c| f(a, b, c) as u64);
    }

    fn w64(&self, op: &str, f: impl Fn(u32, u32, u32) -> u64) {
        for (i, got) in self.run(op).iter().enumerate() {
            let (a, b, c) = (self.inputs[0][i], self.inputs[1][i], self.inputs[2][i]);
            let want = f(a, b, c);
            let got = got[0] as u64 | (got[1] as u64) << 32;
            assert_eq!(got, want, "{op} of a={a:#x} b={b:#x} c={c:#x}: {got:#x}, want {want:#x}");
        }
    }
}

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}
/// A result as the device gives it: one NaN.
fn r(x: f32) -> u32 {
    if x.is_nan() {
        0x7fff_ffff
    } else {
        x.to_bits()
    }
}
fn ab(a: u32, b: u32) -> u64 {
    a as u64 | (b as u64) << 32
}

#[test]
fn integers() {
    let t = Bench::new();
    t.w32("add.u32 %o, %a, %b;", |a, b, _| a.wrapping_add(b));
    t.w32("sub.s32 %o, %a, 5;", |a, _, _| a.wrapping_sub(5));
    t.w32("add.sat.s32 %o, %a, %b;", |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    t.w32("mul.lo.u32 %o, %a, %b;", |a, b, _| a.wrapping_mul(b));
    t.w32("mul.hi.u32 %o, %a, %b;", |a, b, _| ((a as u64 * b as u64) >> 32) as u32);
    t.w32("mul.hi.s32 %o, %a, %b;", |a, b, _| ((a as i32 as i64 * b as i32 as i64) >> 32) as u32);
    t.w64("mul.wide.s32 %O, %a, %b;", |a, b, _| (a as i32 as i64 * b as i32 as i64) as u64);
    t.w32("mad.lo.s32 %o, %a, %b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    t.w32("mad.hi.u32 %o, %a, %b, %c;", |a, b, c| (((a as u64 * b as u64) >> 32) as u32).wrapping_add(c));
    t.w64("mad.wide.u32 %O, %a, %b, %B;", |a, b, c| (a as u64 * b as u64).wrapping_add(ab(b, c)));
    t.w64("mul.hi.u64 %O, %A, %B;", |a, b, c| ((ab(a, b) as u128 * ab(b, c) as u128) >> 64) as u64);
    t.w64("add.u64 %O, %A, %B;", |a, b, c| ab(a, b).wrapping_add(ab(b, c)));
    t.w32("div.u32 %o, %a, %b;", |a, b, _| a.checked_div(b).unwrap_or(!0));
    t.w32("rem.s32 %o, %a, %b;", |a, b, _| if b == 0 { a } else { (a as i32).wrapping_rem(b as i32) as u32 });
    t.w64("div.s64 %O, %A, %B;", |a, b, c| if ab(b, c) == 0 { !0 } else { (ab(a, b) as i64).wrapping_div(ab(b, c) as i64) as u64 });
    t.w32("min.s32 %o, %a, %b;", |a, b, _| (a as i32).min(b as i32) as u32);
    t.w32("max.u32 %o, %a, %b;", |a, b, _| a.max(b));
    t.w32("abs.s32 %o, %a;", |a, _, _| (a as i32).wrapping_abs() as u32);
    t.w32("neg.s32 %o, %a;", |a, _, _| a.wrapping_neg());
    t.w32("sad.u32 %o, %a, %b, %c;", |a, b, c| a.abs_diff(b).wrapping_add(c));
    t.w32("dp4a.s32.u32 %o, %a, %b, %c;", |a, b, c| {
        (0..4).fold(c, |s, k| s.wrapping_add(((a >> (8 * k)) as u8 as i8 as i32 * (b >> (8 * k)) as u8 as i32) as u32))
    });
    t.w32("add.u16 %s, %h, %i; cvt.u32.u16 %o, %s;", |a, b, _| (a as u16).wrapping_add(b as u16) as u32);
    t.w32("max.s16x2 %o, %a, %b;", |a, b, _| {
        let m = |k: u32| ((a >> k) as i16).max((b >> k) as i16) as u16 as u32;
        m(0) | m(16) << 16
    });
    t.w32("add.cc.u32 %t, %a, %b; addc.u32 %o, %c, 0;", |a, b, c| c.wrapping_add(a.overflowing_add(b).1 as u32));
    t.w32("sub.cc.u32 %t, %a, %b; subc.u32 %o, %c, %c;", |a, b, _| 0u32.wrapping_sub((a < b) as u32));
    t.w32("mad.lo.cc.u32 %t, %a, %b, %c; madc.hi.u32 %o, %a, %b, 0;", |a, b, c| ((a as u64 * b as u64 + c as u64) >> 32) as u32);
}

#[test]
fn bits() {
    let t = Bench::new();
    t.w32("and.b32 %o, %a, %b;", |a, b, _| a & b);
    t.w32("not.b32 %o, %a;", |a, _, _| !a);
    t.w32("cnot.b32 %o, %a;", |a, _, _| (a == 0) as u32);
    t.w32("lop3.b32 %o, %a, %b, %c, 0xe2;", |a, b, c| (a & b) | (!b & c));
    t.w32("shl.b32 %o, %a, %b;", |a, b, _| if b > 31 { 0 } else { a << b });
    t.w32("shr.s32 %o, %a, %b;", |a, b, _| ((a as i32) >> b.min(31)) as u32);
    t.w64("shr.u64 %O, %A, %c;", |a, b, c| ab(a, b).checked_shr(c).unwrap_or(0));
    t.w32("shf.l.wrap.b32 %o, %a, %b, %c;", |a, b, c| ((ab(a, b) << (c & 31)) >> 32) as u32);
    t.w32("shf.r.clamp.b32 %o, %a, %b, %c;", |a, b, c| (ab(a, b) >> c.min(32)) as u32);
    t.w32("popc.b64 %o, %A;", |a, b, _| ab(a, b).count_ones());
    t.w32("clz.b32 %o, %a;", |a, _, _| a.leading_zeros());
    t.w32("brev.b32 %o, %a;", |a, _, _| a.reverse_bits());
    t.w32("bfind.s32 %o, %a;", |a, _, _| {
        let v = if (a as i32) < 0 { !a } else { a };
        if v == 0 {
            !0
        } else {
            31 - v.leading_zeros()
        }
    });
    t.w32("prmt.b32 %o, %a, %b, %c;", |a, b, c| {
        (0..4).fold(0, |o, k| {
            let s = c >> (4 * k) & 15;
            let byte = (ab(a, b) >> (8 * (s & 7))) as u8;
            let byte = if s & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
            o | (byte as u32) << (8 * k)
        })
    });
    t.w32("bfe.u32 %o, %a, 7, 12;", |a, _, _| a >> 7 & 0xfff);
    t.w32("bfe.s32 %o, %a, 20, 9;", |a, _, _| ((a << 3) as i32 >> 23) as u32);
    t.w32("bfi.b32 %o, %a, %b, 9, 14;", |a, b, _| (b & !(0x3fff << 9)) | (a & 0x3fff) << 9);
    t.w32("selp.b32 %o, %a, %b, %p;", |_, b, _| b);
    t.w32("setp.lt.s32 %p, %a, %b; selp.b32 %o, %a, %b, %p;", |a, b, _| (a as i32).min(b as i32) as u32);
    t.w32("setp.hi.u32 %p|%r, %a, %b; and.pred %q, %p, !%r;", |a, b, _| (a > b) as u32);
    t.w32("setp.eq.u32 %p, %a, %b; setp.gt.or.u32 %q, %c, 77, %p;", |a, b, c| (c > 77 || a == b) as u32);
    t.w32("set.lt.u32.s32 %o, %a, %b;", |a, b, _| if (a as i32) < b as i32 { !0 } else { 0 });
    t.w32("slct.b32.s32 %o, %a, %b, %c;", |a, b, c| if c as i32 >= 0 { a } else { b });
    t.w32("mov.b64 {%t, %u}, %B; sub.u32 %o, %u, %t;", |_, b, c| c.wrapping_sub(b));
}

#[test]
fn floats() {
    let t = Bench::new();
    t.w32("add.rn.f32 %o, %a, %b;", |a, b, _| r(f(a) + f(b)));
    t.w32("mul.f32 %o, %a, %b;", |a, b, _| r(f(a) * f(b)));
    t.w32("fma.rn.f32 %o, %a, %b, %c;", |a, b, c| r(f(a).mul_add(f(b), f(c))));
    t.w32("div.rn.f32 %o, %a, %b;", |a, b, _| r(f(a) / f(b)));
    t.w32("sqrt.rn.f32 %o, %a;", |a, _, _| r(f(a).sqrt()));
    t.w32("rcp.rn.f32 %o, %a;", |a, _, _| r(1.0 / f(a)));
    let ftz = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    t.w32("add.ftz.f32 %o, %a, %b;", |a, b, _| r(ftz(ftz(f(a)) + ftz(f(b)))));
    t.w32("add.sat.f32 %o, %a, %b;", |a, b, _| {
        let v = f(a) + f(b);
        if v.is_nan() || v <= 0.0 {
            0
        } else {
            v.min(1.0).to_bits()
        }
    });
    // Directed rounding of products: the exact value in f64 decides.
    for (m, up) in [("rp", true), ("rm", false)] {
        t.w32(&format!("mul.{m}.f32 %o, %a, %b;"), |a, b, _| {
            let exact = f(a) as f64 * f(b) as f64;
            let n = exact as f32;
            if exact.is_nan() || exact.is_infinite() {
                return r(n);
            }
            let next = |x: f32| if up { x.next_up() } else { x.next_down() };
            if (up && (n as f64) < exact) || (!up && (n as f64) > exact) {
                r(next(n))
            } else {
                r(n)
            }
        });
    }
    t.w32("mul.rz.f32 %o, %a, %b;", |a, b, _| {
        let exact = f(a) as f64 * f(b) as f64;
        let n = exact as f32;
        if exact.is_nan() || exact.is_infinite() || (n as f64).abs() <= exact.abs() {
            r(n)
        } else {
            r(f(n.to_bits() - 1))
        }
    });
    t.w32("min.f32 %o, %a, %b;", |a, b, _| {
        let (x, y) = (f(a), f(b));
        if x.is_nan() {
            r(y)
        } else if y.is_nan() {
            a
        } else if x == y {
            a | b
        } else {
            r(x.min(y))
        }
    });
    t.w32("max.NaN.f32 %o, %a, %b;", |a, b, _| {
        let (x, y) = (f(a), f(b));
        if x.is_nan() || y.is_nan() {
            0x7fff_ffff
        } else if x == y {
            a & b
        } else {
            r(x.max(y))
        }
    });
    // A Hopper card makes every NaN 0x7fffffff, also here.
    t.w32("abs.f32 %o, %a;", |a, _, _| if f(a).is_nan() { 0x7fff_ffff } else { a & 0x7fff_ffff });
    t.w32("neg.f32 %o, %a;", |a, _, _| if f(a).is_nan() { 0x7fff_ffff } else { a ^ 0x8000_0000 });
    t.w32("{.reg .f32 %z; neg.f32 %z, %a; add.rm.f32 %o, %a, %z;}", |a, _, _| if f(a).is_finite() { 0x8000_0000 } else { 0x7fff_ffff });
    t.w32("copysign.f32 %o, %a, %b;", |a, b, _| (b & 0x7fff_ffff) | (a & 0x8000_0000));
    t.w32("setp.ltu.f32 %q, %a, %b;", |a, b, _| (f(a).is_nan() || f(b).is_nan() || f(a) < f(b)) as u32);
    t.w32("setp.ne.f32 %q, %a, %b;", |a, b, _| (f(a) < f(b) || f(a) > f(b)) as u32);
    t.w32("setp.nan.f32 %q, %a, %b;", |a, b, _| (f(a).is_nan() || f(b).is_nan()) as u32);
    t.w32("ex2.approx.f32 %o, %a;", |a, _, _| r((f(a) as f64).exp2() as f32));
    let d = f64::from_bits;
    let rd = |x: f64| if x.is_nan() { 0x7fff_ffff_ffff_ffff } else { x.to_bits() };
    t.w64("fma.rn.f64 %O, %A, %B, %A;", |a, b, c| rd(d(ab(a, b)).mul_add(d(ab(b, c)), d(ab(a, b)))));
    t.w64("div.rn.f64 %O, %A, %B;", |a, b, c| rd(d(ab(a, b)) / d(ab(b, c))));
}

#[test]
fn conversions() {
    let t = Bench::new();
    t.w32("cvt.rn.f32.s32 %o, %a;", |a, _, _| r(a as i32 as f32));
    t.w32("cvt.rn.f32.u64 %o, %A;", |a, b, _| r(ab(a, b) as f32));
    t.w32("cvt.rzi.s32.f32 %o, %a;", |a, _, _| f(a) as i32 as u32);
    t.w32("cvt.rni.u32.f32 %o, %a;", |a, _, _| f(a).round_ties_even() as u32);
    t.w32("cvt.rmi.f32.f32 %o, %a;", |a, _, _| r(f(a).floor()));
    t.w64("cvt.f64.f32 %O, %a;", |a, _, _| if f(a).is_nan() { 0x7fff_ffff_ffff_ffff } else { (f(a) as f64).to_bits() });
    t.w32("cvt.rn.f32.f64 %o, %A;", |a, b, _| r(f64::from_bits(ab(a, b)) as f32));
    t.w32("cvt.s32.s8 %o, %a;", |a, _, _| a as u8 as i8 as i32 as u32);
    t.w32("cvt.sat.u8.s32 %o, %a;", |a, _, _| (a as i32).clamp(0, 255) as u32);
    t.w64("cvt.s64.s32 %O, %a;", |a, _, _| a as i32 as i64 as u64);
    t.w32("cvt.rn.bf16x2.f32 %o, %a, %b;", |a, b, _| {
        let h = |x: u32| if f(x).is_nan() { 0x7fff } else { ((x as u64 + 0x7fff + (x >> 16 & 1) as u64) >> 16) as u32 & 0xffff };
        h(a) << 16 | h(b)
    });
}

#[test]
fn packed_halves() {
    let t = Bench::new();
    let bf = |x: u32| f(x << 16);
    let rb = |x: f64| -> u32 {
        // Round to nearest even into bf16, by search among the neighbours.
        if x.is_nan() {
            return 0x7fff;
        }
        let near = (x as f32).to_bits() >> 16;
        let best =
            [near.wrapping_sub(1), near, near + 1].into_iter().filter(|c| c & 0x7fff <= 0x7f80 && c >> 15 == (x.is_sign_negative() as u32));
        let limit = f(0x7f7f_0000) as f64 * (1.0 + 2f64.powi(-9));
        if x.abs() >= limit {
            return 0x7f80 | (x.is_sign_negative() as u32) << 15;
        }
        best.filter(|c| c & 0x7fff != 0x7f80)
            .min_by(|p, q| {
                let d = |c: &u32| (f(c << 16) as f64 - x).abs();
                d(p).total_cmp(&d(q)).then((p & 1).cmp(&(q & 1)))
            })
            .unwrap()
    };
    let two = |g: &dyn Fn(u32) -> u32| g(0) | g(16) << 16;
    t.w32("mul.rn.bf16x2 %o, %a, %b;", |a, b, _| two(&|k| rb(bf(a >> k & 0xffff) as f64 * bf(b >> k & 0xffff) as f64)));
    t.w32("add.rn.bf16x2 %o, %a, %b;", |a, b, _| {
        two(&|k| {
            let (x, y) = (bf(a >> k & 0xffff), bf(b >> k & 0xffff));
            let s = x + y; // f32 holds enough bits for one more rounding
            if s.is_nan() {
                0x7fff
            } else {
                rb(s as f64)
            }
        })
    });
    // Every NaN becomes 0x7fff.
    let halves = |v: u32, infinity: u32, g: fn(u32) -> u32| {
        let one = |h: u32| if h & 0x7fff > infinity { 0x7fff } else { g(h) };
        one(v & 0xffff) | one(v >> 16) << 16
    };
    t.w32("neg.bf16x2 %o, %a;", |a, _, _| halves(a, 0x7f80, |h| h ^ 0x8000));
    t.w32("abs.f16x2 %o, %a;", |a, _, _| halves(a, 0x7c00, |h| h & 0x7fff));
    let h = |x: u32| nvfp4_emulator::fp::f16_to_f32(x as u16);
    t.w32("add.rn.f16x2 %o, %a, %b;", |a, b, _| two(&|k| nvfp4_emulator::fp::f32_to_f16(h(a >> k & 0xffff) + h(b >> k & 0xffff)) as u32));
}

#[test]
fn memory_widths_and_spaces() {
    let t = Bench::new();
    // Local and shared memory round trips of each width, sign extension, vectors.
    t.w32(".local .align 8 .b8 buf[16]; st.local.b32 [buf+4], %a; ld.local.s8 %o, [buf+5];", |a, _, _| (a >> 8) as u8 as i8 as i32 as u32);
    t.w32(".local .align 8 .b8 buf[16]; mov.u64 %T, buf; cvta.local.u64 %T, %T; st.v2.b32 [%T+8], {%a, %b}; ld.u16 %s, [%T+14]; cvt.u32.u16 %o, %s;", |_, b, _| b >> 16);
    t.w64(
        ".shared .align 16 .b8 sm[2048]; mov.u32 %t, %tid.x; mul.lo.u32 %t, %t, 16; mov.u32 %u, sm; add.u32 %t, %t, %u;
         st.shared.v4.b32 [%t], {%a, %b, %c, %a}; ld.shared.v2.b64 {%T, %O}, [%t];",
        |a, _, c| ab(c, a),
    );
    t.w32(
        ".shared .align 4 .b8 one[512]; mov.u32 %t, %tid.x; shl.b32 %t, %t, 2; mov.u32 %u, one; add.u32 %t, %t, %u; cvt.u64.u32 %T, %t;
         cvta.shared.u64 %T, %T; st.b32 [%T], %c; isspacep.shared %p, %T; ld.shared.b32 %u, [%t]; selp.b32 %o, %u, 0, %p;",
        |_, _, c| c,
    );
}

#[test]
fn atomics_return_the_old_value() {
    let t = Bench::new();
    let own = ".shared .align 8 .b8 cell[1024]; mov.u32 %t, %tid.x; shl.b32 %t, %t, 3; mov.u32 %u, cell; add.u32 %t, %t, %u;";
    let shared = |op: &str| format!("{own} st.shared.b32 [%t], %a; {op} ld.shared.b32 %u, [%t]; xor.b32 %o, %o, %u;");
    t.w32(&shared("atom.shared.add.u32 %o, [%t], %b;"), |a, b, _| a ^ a.wrapping_add(b));
    t.w32(&shared("atom.shared.max.s32 %o, [%t], %b;"), |a, b, _| a ^ (a as i32).max(b as i32) as u32);
    t.w32(&shared("atom.shared.inc.u32 %o, [%t], %b;"), |a, b, _| a ^ if a >= b { 0 } else { a + 1 });
    t.w32(&shared("atom.shared.cas.b32 %o, [%t], %b, %c;"), |a, b, c| a ^ if a == b { c } else { a });
    t.w32(&shared("atom.shared.exch.b32 %o, [%t], %c;"), |a, _, c| a ^ c);
    t.w32(&shared("red.shared.xor.b32 [%t], %b;"), |a, b, _| a ^ b);
    t.w32(&shared("atom.shared.add.f32 %o, [%t], %b;"), |a, b, _| a ^ r(f(a) + f(b)));
}

#[test]
fn sums_over_all_threads() {
    let g = Gpu::new("sm_90");
    let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p){.reg .b64 %x; .reg .b32 %t; ld.param.u64 %x,[p]; mov.u32 %t,%tid.x;
        red.global.add.u32 [%x], %t; red.global.max.u32 [%x+4], %t; red.global.add.noftz.bf16x2 [%x+8], 0x3f803f80; red.global.add.u64 [%x+16], 5; ret;}";
    let p = g.filled(24, 0);
    g.module(ptx).get("k").launch(10, 100, 0, &[Ptr(p)]);
    let v: Vec<u32> = g.download(p, 6);
    assert_eq!(v[0], 10 * 4950);
    assert_eq!(v[1], 99);
    assert_eq!(v[2], 0x4380_4380, "1000 ones in bf16 stop at 256");
    assert_eq!(v[4], 5000);
}

#[test]
fn branches_by_index_and_loops() {
    let t = Bench::new();
    t.w32(
        "and.b32 %t, %a, 3; brx.idx %t, LIST; LIST: .branchtargets L0, L1, L2, L3;
         L0: add.u32 %o, %b, 1; bra DONE; L1: mov.u32 %o, %c; bra DONE; L2: not.b32 %o, %b; bra DONE; L3: mov.u32 %o, 9;
         DONE: add.u32 %o, %o, 1;",
        |a, b, c| [b.wrapping_add(1), c, !b, 9][(a & 3) as usize].wrapping_add(1),
    );
    t.w32(
        "and.b32 %t, %a, 15; LOOP: setp.eq.u32 %p, %t, 0; @%p bra OUT; add.u32 %o, %o, %t; sub.u32 %t, %t, 1; bra LOOP; OUT: xor.b32 %o, %o, %b;",
        |a, b, _| (1..=a & 15).sum::<u32>() ^ b,
    );
    // All lanes of a warp are together again behind a divergent loop.
    t.w32("and.b32 %t, %a, 7; L: setp.eq.u32 %p, %t, 0; @%p bra O; sub.u32 %t, %t, 1; bra L; O: activemask.b32 %o;", |_, _, _| !0);
}
