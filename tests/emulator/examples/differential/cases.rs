//! What is compared.

use super::driver::Tensor;

/// How results may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    Bytes,
    /// f32 sums in an order and width of the chip's own: equal within 2^-22 of the sum of magnitudes, which the case
    /// keeps behind its results.
    Sums,
}

/// One launch: the kernel `entry` of module `module` with the same arguments for all (kernels/differential_sm90.cu).
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub module: usize,
    pub entry: String,
    pub grid: u32,
    pub block: u32,
    pub cluster: u32,
    pub shared: u32,
    pub input: Vec<u8>,
    pub output: usize,
    pub args: [i32; 4],
    pub from: Option<Tensor>,
    pub to: Option<Tensor>,
    pub rule: Rule,
    /// Of a product: (elements' format, magnitudes) -> what a sum may be off by; empty for bytes.
    pub slack: Vec<f32>,
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }
    pub fn below(&mut self, n: u32) -> u32 {
        ((self.next() as u64 * n as u64) >> 32) as u32
    }
}

/// Values where integer and float rules bend, among random ones; floats of moderate size, some of few bits.
fn word(r: &mut Random) -> u32 {
    const SPECIAL: [u32; 34] = [
        0,
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
        0x7f80_0001,
        0x0080_0000,
        0x007f_ffff,
        0x7f7f_ffff,
        0x4b00_0001,
        0x3eff_ffff,
        0x4f00_0000,
        0xcf00_0000,
        0x3c00_3c00,
        0x7bff_0400,
        0x43e0_0000,
        0x43e8_0000,
        0x3f00_0000,
        0x4120_0000,
    ];
    match r.below(5) {
        0 => SPECIAL[r.below(34) as usize],
        // Few bits: ties of the narrow formats.
        1 => (r.next() & 0x807c_0000) | (110 + r.below(30)) << 23,
        2 => (r.next() & 0x807f_ffff) | (120 + r.below(16)) << 23,
        _ => r.next(),
    }
}

fn words(r: &mut Random, n: usize, f: impl Fn(&mut Random) -> u32) -> Vec<u8> {
    (0..n).flat_map(|_| f(r).to_le_bytes()).collect()
}

pub const THREADS: usize = 2048;

/// The modules of single instructions: text, and the instructions in it.
pub fn instructions() -> Vec<(String, Vec<String>)> {
    let ops: Vec<&str> = include_str!("ops.txt").lines().filter(|l| !l.is_empty()).collect();
    ops.iter().map(|op| (module(op), vec![op.to_string()])).collect()
}

/// Sources %a %b %c (b32), %A %B (b64: a|b, b|c), %h %i (b16); results %o (b32) or %O (b64), %q a predicate.
fn module(body: &str) -> String {
    let n = THREADS * 4;
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pi,.param .u64 po,.param .align 4 .b8 pa[16],\
         .param .align 64 .b8 pf[128],.param .align 64 .b8 pt[128])\n{{\n\
         .reg .b32 %a,%b,%c,%o,%t,%u; .reg .b64 %A,%B,%O,%T,%x<6>; .reg .b16 %h,%i,%s; .reg .pred %q,%p,%r; .reg .u32 %n<4>;\n\
         mov.u32 %n0, %tid.x; mov.u32 %n1, %ctaid.x; mad.lo.u32 %n2, %n1, 128, %n0; mul.wide.u32 %x0, %n2, 4;\n\
         ld.param.u64 %x1, [pi]; add.s64 %x1, %x1, %x0; ld.global.b32 %a, [%x1]; ld.global.b32 %b, [%x1+{n}]; ld.global.b32 %c, [%x1+{}];\n\
         mov.b64 %A, {{%a, %b}}; mov.b64 %B, {{%b, %c}}; cvt.u16.u32 %h, %a; cvt.u16.u32 %i, %b; mov.u32 %t, 0; mov.u32 %u, 0; mov.u64 %T, 0;\n\
         mov.u32 %o, 0; mov.u64 %O, 0; setp.ne.u32 %q, %o, %o; setp.ne.u32 %p, %o, %o; setp.ne.u32 %r, %o, %o;\n\
         {body}\n\
         @%q add.u32 %o, %o, 1;\n\
         ld.param.u64 %x2, [po]; add.s64 %x2, %x2, %x0; add.s64 %x2, %x2, %x0;\n\
         cvt.u64.u32 %x3, %o; or.b64 %O, %O, %x3; st.global.b64 [%x2], %O; ret;\n}}\n",
        2 * n
    )
}

/// One case for each module of `instructions`.
pub fn instruction_cases(modules: &[(String, Vec<String>)]) -> Vec<Case> {
    let mut r = Random(1);
    let input = words(&mut r, 3 * THREADS, word);
    let case = |(i, (_, ops)): (usize, &(String, Vec<String>))| Case {
        name: ops[0].clone(),
        module: i,
        entry: "k".into(),
        grid: THREADS as u32 / 128,
        block: 128,
        input: input.clone(),
        output: 8 * THREADS,
        ..plain()
    };
    modules.iter().enumerate().map(case).collect()
}

fn plain() -> Case {
    Case {
        name: String::new(),
        module: 0,
        entry: String::new(),
        grid: 1,
        block: 32,
        cluster: 1,
        shared: 0,
        input: vec![],
        output: 0,
        args: [0; 4],
        from: None,
        to: None,
        rule: Rule::Bytes,
        slack: vec![],
    }
}

/// Cases of the kernels in differential_sm90.cu, which is module `module`.
pub fn kernel_cases(module: usize) -> Vec<Case> {
    let mut r = Random(2);
    let mut all = vec![];
    let mut add = |entry: &str, case: Case| {
        let name = match case.name.is_empty() {
            true => entry.to_string(),
            false => format!("{entry}, {}", case.name),
        };
        all.push(Case { name, module, entry: entry.into(), ..case });
    };
    let any = |r: &mut Random, n| words(r, n, |r| r.next());
    add("fragments", Case { input: any(&mut r, 128), output: 4 * 480, ..plain() });
    add("copies_async", Case { input: any(&mut r, 512), output: 4 * 640, ..plain() });
    add("copies_bulk", Case { block: 128, input: any(&mut r, 1024), output: 4 * 3072, ..plain() });
    add("barriers", Case { block: 128, output: 4 * 256, ..plain() });
    add("cluster_memory", Case { grid: 8, block: 64, cluster: 4, input: any(&mut r, 512), output: 4 * (1024 + 512), ..plain() });
    products(&mut r, &mut add);
    tensors(&mut r, &mut add);
    all
}

/// A 16-bit or 8-bit float of moderate size, now and then any.
fn element(r: &mut Random, kind: &str, wild: bool) -> u32 {
    let any = wild && r.below(16) == 0;
    match kind {
        _ if any => r.next(),
        "bf16" => (r.next() & 0x807f) | (119 + r.below(16)) << 7,
        "f16" => (r.next() & 0x83ff) | (8 + r.below(14)) << 10,
        "e4m3" => r.next() & 0xff,
        "e5m2" => (r.next() & 0x83) | (8 + r.below(14)) << 2,
        _ => r.next(),
    }
}

fn packed(r: &mut Random, kind: &str, wild: bool, n: usize) -> Vec<u8> {
    match kind {
        "bf16" | "f16" => (0..2 * n).flat_map(|_| (element(r, kind, wild) as u16).to_le_bytes()).collect(),
        "e4m3" | "e5m2" => (0..4 * n)
            .map(|_| loop {
                let v = element(r, kind, wild) as u8;
                if wild || v & 0x7f != 0x7f {
                    break v;
                }
            })
            .collect(),
        "tf32" => words(r, n, |r| (r.next() & 0x807f_e000) | (119 + r.below(16)) << 23),
        "f32" => words(r, n, |r| (r.next() & 0x807f_ffff) | (119 + r.below(18)) << 23),
        _ => words(r, n, Random::next),
    }
}

fn products(r: &mut Random, add: &mut dyn FnMut(&str, Case)) {
    const BLOCKS: u32 = 24;
    for (entry, kind, acc, a, b, c) in [
        ("mma_bf16_k16", "bf16", "f32", 4, 2, 4),
        ("mma_bf16_k8", "bf16", "f32", 2, 1, 4),
        ("mma_f16_k16", "f16", "f32", 4, 2, 4),
        ("mma_f16_f16", "f16", "f16", 4, 2, 2),
        ("mma_tf32_k8", "tf32", "f32", 4, 2, 4),
        ("mma_s8_k32", "s8", "s32", 4, 2, 4),
        ("mma_u8_s8_k32", "s8", "s32", 4, 2, 4),
        ("mma_e4m3_k32", "e4m3", "f32", 4, 2, 4),
    ] {
        for wild in [false, true] {
            let mut input = vec![];
            for _ in 0..BLOCKS {
                input.extend(packed(r, kind, wild, 32 * (a + b)));
                input.extend(packed(r, acc, false, 32 * c));
            }
            let name = if wild { "any bits" } else { "" }.to_string();
            add(entry, Case { name, grid: BLOCKS, input, output: BLOCKS as usize * 128 * c, ..plain() });
        }
    }
    for (entry, ka, kb) in
        [("wgmma_bf16", "bf16", "bf16"), ("wgmma_f16", "f16", "f16"), ("wgmma_e4m3", "e4m3", "e4m3"), ("wgmma_e5m2_e4m3", "e5m2", "e4m3")]
    {
        let mut input = vec![];
        for _ in 0..BLOCKS {
            input.extend(packed(r, ka, false, 2048));
            input.extend(packed(r, kb, false, 256));
            input.extend(packed(r, "f32", false, 512));
        }
        let slack = slack(&input, ka, kb);
        add(entry, Case { grid: BLOCKS, block: 128, input, output: BLOCKS as usize * 2048, rule: Rule::Sums, slack, ..plain() });
    }
}

fn value(kind: &str, bits: u32) -> f64 {
    let (e, m, bias) = match kind {
        "bf16" => (8, 7, 127),
        "f16" => (5, 10, 15),
        "e4m3" => (4, 3, 7),
        _ => (5, 2, 15),
    };
    let (exp, man) = ((bits >> m & ((1 << e) - 1)) as i32, (bits & ((1 << m) - 1)) as f64);
    let unit = 2f64.powi(exp.max(1) - bias - m);
    unit * if exp == 0 { man } else { man + (1u32 << m) as f64 }
}

/// By thread and register of `wgmma`'s results: 2^-22 (16-bit elements) or 2^-12 (8-bit ones, whose sums keep 13 bits
/// behind the largest) of the magnitudes that meet there.
fn slack(input: &[u8], ka: &str, kb: &str) -> Vec<f32> {
    let size = if matches!(ka, "bf16" | "f16") { 2 } else { 1 };
    let per = 16 / size;
    let part = if size == 2 { 2f64.powi(-22) } else { 2f64.powi(-12) };
    let mut all = vec![];
    for block in input.chunks(4 * 2816) {
        let at = |base: usize, stride: usize, step: usize, row: usize, k: usize, kind: &str| {
            let core = (row / 8 * 2 + k / per) * 128 + row % 8 * 16 + k % per * size;
            let at = base + step * stride + core;
            let bits = if size == 2 { u16::from_le_bytes([block[at], block[at + 1]]) as u32 } else { block[at] as u32 };
            value(kind, bits)
        };
        for i in 0..4 {
            for t in 0..128 {
                let (row, col) = (t / 32 * 16 + t % 32 / 4 + 8 * (i / 2), t % 4 * 2 + i % 2);
                let c = 4 * (2304 + 128 * i + t);
                let start = f32::from_le_bytes([block[c], block[c + 1], block[c + 2], block[c + 3]]).abs() as f64;
                let sum: f64 = (0..4)
                    .flat_map(|s| (0..2 * per).map(move |k| (s, k)))
                    .map(|(s, k)| at(0, 2048, s, row, k, ka) * at(8192, 256, s, col, k, kb))
                    .sum();
                all.push((part * (sum + start)) as f32);
            }
        }
    }
    all
}

fn tensors(r: &mut Random, add: &mut dyn FnMut(&str, Case)) {
    // Element type of the driver, its bytes: u8, u16, u32, f32, bf16.
    let types = [(0u32, 1u64), (1, 2), (2, 4), (7, 4), (9, 2)];
    for (i, (swizzle, width)) in [(0u32, 48u64), (0, 256), (1, 32), (2, 64), (3, 128)].into_iter().enumerate() {
        for (j, (x, y)) in [(0, 0), (-3, -2), (40, 30), (7, 35)].into_iter().enumerate() {
            let (element, size) = types[(i + j) % types.len()];
            let rows = 16u32;
            let t = Tensor { element, dims: vec![160 / size, 41], strides: vec![160], boxes: vec![(width / size) as u32, rows], swizzle };
            let bytes = width as i32 * rows as i32;
            // Coordinates that are legal for every element size.
            let args = [x, y, bytes, 2];
            let name = format!("swizzle {swizzle}, elements of {size}, box of {width} bytes at ({x}, {y})");
            let base = Case { block: 64, shared: bytes as u32, args, ..plain() };
            let input = words(r, 160 * 41 / 4, |r| (r.next() & 0x807f_ffff) | (119 + r.below(16)) << 23);
            add("tensor_load", Case { name: name.clone(), input, output: bytes as usize, from: Some(t.clone()), ..base.clone() });
            let input = words(r, bytes as usize / 4, |r| (r.next() & 0x807f_ffff) | (119 + r.below(16)) << 23);
            add("tensor_store", Case { name: name.clone(), input: input.clone(), output: 160 * 41, to: Some(t.clone()), ..base.clone() });
            if size == 4 && element != 7 {
                let args = [x, y, bytes, 1];
                add(
                    "tensor_store",
                    Case { name: format!("{name}, added"), input, output: 160 * 41, to: Some(t.clone()), args, ..base.clone() },
                );
            }
        }
    }
    let cube = Tensor { element: 0, dims: vec![64, 9, 3], strides: vec![64, 576], boxes: vec![64, 4, 2], swizzle: 2 };
    let input = words(r, 432, Random::next);
    add(
        "tensor_load",
        Case {
            name: "three dimensions".into(),
            block: 64,
            shared: 512,
            args: [-8, 7, 512, 3],
            input,
            output: 512,
            from: Some(cube),
            ..plain()
        },
    );
    let half = Tensor { element: 0, dims: vec![128, 40], strides: vec![128], boxes: vec![128, 8], swizzle: 3 };
    let input = words(r, 32 * 40, Random::next);
    add(
        "tensor_multicast",
        Case { grid: 2, cluster: 2, block: 64, shared: 2048, args: [0, 5, 1024, 0], input, output: 4096, from: Some(half), ..plain() },
    );
}
