//! Columnwise (transposed) quantization of pieces of 128 rows by 32 columns. The piece is first brought into L1 as f32,
//! so that each line of the source is read once; then a vector holds one row of some columns, and maxima, transform and
//! random bits are lane by lane. Only the codes are transposed, 64 bytes of a column at a time: one line of the output.

use super::hadamard::down;
use super::{abs, nearest, size, stochastic, Vector, BF16, F16, F32};
use crate::cpu::columns::{Columns, Options, Output, HEIGHT, WIDTH};
use crate::cpu::rule::Transform;

/// The piece in f32, row after row.
#[repr(C, align(64))]
struct Stage([f32; WIDTH * HEIGHT]);

/// Brings in the rows that exist, zeros for the others up to `height`, and transforms them.
#[inline(always)]
unsafe fn stage<V: Vector, const DT: u8>(
    x: &Columns,
    height: usize,
    transform: Option<&Transform>,
    out: &mut Stage,
) {
    let out = out.0.as_mut_ptr();
    // SAFETY: rows and columns that exist; the stage holds HEIGHT rows, of which whole sixteens are written.
    unsafe {
        for r in 0..x.rows {
            let mut p = x.data.wrapping_add(r * x.stride);
            let mut line = [0u32; WIDTH];
            if x.cols < WIDTH {
                let bytes = x.cols * size::<DT>();
                std::ptr::copy_nonoverlapping(p, line.as_mut_ptr().cast(), bytes);
                p = line.as_ptr().cast();
            }
            for c in (0..WIDTH).step_by(V::LANES) {
                V::load::<DT>(p.add(c * size::<DT>())).write(out.add(WIDTH * r + c));
            }
        }
        let whole = height.next_multiple_of(32).min(HEIGHT);
        out.add(WIDTH * x.rows)
            .write_bytes(0, WIDTH * (whole - x.rows));
        if let Some(t) = transform {
            for first in (0..height).step_by(t.n) {
                for c in (0..WIDTH).step_by(V::LANES) {
                    down::<V>(out.add(WIDTH * first + c), t);
                }
            }
        }
    }
}

/// The largest |x| of each column over sixteen rows, as bits.
#[inline(always)]
unsafe fn largest<V: Vector>(p: *const f32) -> V {
    // SAFETY: sixteen rows of the stage.
    unsafe {
        let mut m = [V::splat(0); 2];
        for i in 0..16 {
            m[i % 2] = m[i % 2].umax(abs(V::read(p.add(WIDTH * i))));
        }
        m[0].umax(m[1])
    }
}

/// Bits of the largest magnitude of the piece after the transform, NaN and Inf above every finite value.
///
/// # Safety
/// `x` must describe readable memory.
#[inline(always)]
pub unsafe fn amax_bits<V: Vector, const DT: u8>(
    x: &Columns,
    transform: Option<&Transform>,
) -> u32 {
    debug_assert!(DT == F32 || DT == BF16 || DT == F16);
    let mut staged = Stage([0.0; WIDTH * HEIGHT]);
    let height = x.height(transform);
    // SAFETY: the caller's promise; whole sixteens of the stage.
    unsafe {
        stage::<V, DT>(x, height, transform, &mut staged);
        let mut m = V::splat(0);
        for first in (0..height).step_by(16) {
            for c in (0..WIDTH).step_by(V::LANES) {
                m = m.umax(largest(staged.0.as_ptr().add(WIDTH * first + c)));
            }
        }
        m.largest()
    }
}

/// The scales of a piece, one row a sixteen rows of the source (pairs of them are equal for blocks of 32).
struct Scales {
    e: [[f32; WIDTH]; 8],
    bytes: [[u32; WIDTH]; 8],
    bad: [[u32; WIDTH]; 8],
}

/// Returns whether a block that exists is not finite.
#[inline(always)]
unsafe fn scale<V: Vector>(
    staged: &Stage,
    blocks: usize,
    x: &Columns,
    o: &Options,
    s: &mut Scales,
) -> bool {
    let mut m = [[0u32; WIDTH]; 8];
    // SAFETY: rows of the stage and of the arrays.
    unsafe {
        for (i, m) in m.iter_mut().enumerate().take(blocks) {
            for c in (0..WIDTH).step_by(V::LANES) {
                let p = staged.0.as_ptr().add(16 * WIDTH * i + c);
                largest::<V>(p).write(m.as_mut_ptr().add(c));
            }
        }
        if o.square {
            for m in m[..blocks].iter_mut() {
                for side in m.chunks_exact_mut(16) {
                    let b = side.iter().fold(0, |a, b| a.max(*b));
                    side.fill(b);
                }
            }
        }
        if o.rule.block() == 32 {
            for i in (0..8).step_by(2) {
                for c in 0..WIDTH {
                    let b = m[i][c].max(m[i + 1][c]);
                    (m[i][c], m[i + 1][c]) = (b, b);
                }
            }
        }
        let mut any = V::splat(0);
        for (i, m) in m.iter().enumerate().take(blocks) {
            for c in (0..WIDTH).step_by(V::LANES) {
                let (code, e, bad) = V::read(m.as_ptr().add(c)).scales(o.rule);
                code.write(s.bytes[i].as_mut_ptr().add(c));
                e.write(s.e[i].as_mut_ptr().add(c));
                bad.write(s.bad[i].as_mut_ptr().add(c));
                // Columns that do not exist are zeros.
                any = any.or(bad);
            }
        }
        debug_assert!(x.cols <= WIDTH);
        any.any()
    }
}

/// How elements become codes. A trait because a closure would not be inlined together with the instructions it uses.
trait Code<V> {
    /// The magnitude of row `r` of sixteen, plus 2, in the low three bits.
    unsafe fn code(&self, r: usize, x: V) -> V;
}

struct Nearest<V> {
    e: V,
}

impl<V: Vector> Code<V> for Nearest<V> {
    #[inline(always)]
    unsafe fn code(&self, _: usize, x: V) -> V {
        // SAFETY: registers only.
        unsafe { nearest(x, self.e) }
    }
}

/// With the four random words of each column.
struct Stochastic<V> {
    e: V,
    w: [V; 4],
}

impl<V: Vector> Code<V> for Stochastic<V> {
    /// Element 4w + i takes byte (0, 2, 1, 3)[i] of word w.
    #[inline(always)]
    unsafe fn code(&self, r: usize, x: V) -> V {
        // SAFETY: registers only.
        unsafe {
            let (w, byte) = (self.w[r / 4], V::splat(0xFF));
            let random = match r % 4 {
                0 => w.and(byte),
                1 => w.shr::<16>().and(byte),
                2 => w.shr::<8>().and(byte),
                _ => w.shr::<24>(),
            };
            stochastic(x, self.e, random)
        }
    }
}

/// Codes of eight rows from row `first` of sixteen: each column's in a word, first row lowest.
#[inline(always)]
unsafe fn word<V: Vector>(p: *const f32, first: usize, code: &impl Code<V>) -> V {
    // SAFETY: eight rows of the stage.
    unsafe {
        let mut all = V::splat(0);
        macro_rules! place {
            ($($i:literal)*) => {$(
                let x = V::read(p.add(WIDTH * (first + $i)));
                let m = code.code(first + $i, x).and(V::splat(7)).shl::<{ 4 * $i }>();
                // The sign, which saturation keeps, -0's too.
                let sign = x.and(V::splat(1 << 31)).shr::<{ 28 - 4 * $i }>();
                all = all.or(m.or(sign));
            )*};
        }
        place!(0 1 2 3 4 5 6);
        let x = V::read(p.add(WIDTH * (first + 7)));
        let m = code.code(first + 7, x).and(V::splat(7)).shl::<28>();
        all = all.or(m.or(x.and(V::splat(1 << 31))));
        // Minus 2 in each nibble's magnitude: plus 6 without the carry.
        let m = all.and(V::splat(0x7777_7777)).add(V::splat(0x6666_6666));
        let m = m.and(V::splat(0x7777_7777));
        m.or(all.and(V::splat(0x8888_8888)))
    }
}

/// Quantizes the piece. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must describe readable memory.
#[inline(always)]
pub unsafe fn tile<V: Vector, const DT: u8>(x: &Columns, o: &Options, out: &mut Output) -> bool {
    let height = x.height(o.transform);
    let blocks = height.div_ceil(16);
    let mut staged = Stage([0.0; WIDTH * HEIGHT]);
    let mut s = Scales {
        e: [[0.0; WIDTH]; 8],
        bytes: [[0; WIDTH]; 8],
        bad: [[0; WIDTH]; 8],
    };
    // SAFETY: rows of the stage, columns of the output; the caller's promise about x.
    unsafe {
        stage::<V, DT>(x, height, o.transform, &mut staged);
        let bad = scale::<V>(&staged, blocks, x, o, &mut s);
        for c in (0..x.cols).step_by(V::LANES) {
            let mut words = [V::splat(0); 16];
            for i in 0..blocks {
                let p = staged.0.as_ptr().add(16 * WIDTH * i + c);
                let e = V::read(s.e[i].as_ptr().add(c));
                let (low, high);
                if let Some(draw) = o.draw {
                    let counter = draw.counter();
                    let c0 = V::splat(draw.block.wrapping_add(i as u32));
                    let c1 = V::splat(counter[0].wrapping_add(c as u32)).add(V::iota());
                    let w = V::philox(c0, c1, counter[1], counter[2], draw.key);
                    let code = Stochastic { e, w };
                    (low, high) = (word(p, 0, &code), word(p, 8, &code));
                } else {
                    let code = Nearest { e };
                    (low, high) = (word(p, 0, &code), word(p, 8, &code));
                }
                // Blocks that are not finite have codes of 0.
                let bad = V::read(s.bad[i].as_ptr().add(c));
                words[2 * i] = low.and_not(bad);
                words[2 * i + 1] = high.and_not(bad);
            }
            V::transpose(&words, out.codes.as_mut_ptr().add(c));
        }
        let step = o.rule.block() / 16;
        for (c, scales) in out.scales.iter_mut().enumerate().take(x.cols) {
            for i in 0..8 / step {
                scales[i] = s.bytes[i * step][c] as u8;
            }
        }
        bad
    }
}
