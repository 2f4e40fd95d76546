//! Rowwise quantization of square tiles: rows that share scales are held together in f32.

use super::{abs, size, Vector};

/// Elements of a row held at once: a multiple of every transform's length.
pub const MOST: usize = 128;

/// Up to 32 rows.
#[repr(C, align(64))]
pub struct Held {
    pub values: [[f32; MOST]; 32],
    /// Largest magnitudes of each column so far, as bits.
    pub largest: [u32; MOST],
    pub e: [f32; MOST / 16],
    /// One a sixteen columns; of tiles of 32 columns, one each.
    pub scales: [u8; MOST / 16],
    /// Bit i: sixteen columns i belong to a tile that is not finite.
    pub bad: u32,
}

impl Held {
    pub const fn new() -> Held {
        Held {
            values: [[0.0; MOST]; 32],
            largest: [0; MOST],
            e: [0.0; MOST / 16],
            scales: [0; MOST / 16],
            bad: 0,
        }
    }

    /// Takes row `r` (in ascending order from 0), `n` elements at `p`, the others +0.
    ///
    /// # Safety
    /// `p` must be readable for `n` elements.
    #[inline(always)]
    pub unsafe fn load<V: Vector, const DT: u8>(&mut self, r: usize, mut p: *const u8, n: usize) {
        let mut line = [0u32; MOST];
        // SAFETY: n elements at p, or zeros after them in the line.
        unsafe {
            if n < MOST {
                std::ptr::copy_nonoverlapping(p, line.as_mut_ptr().cast(), n * size::<DT>());
                p = line.as_ptr().cast();
            }
            for i in (0..MOST).step_by(V::LANES) {
                let v = V::load::<DT>(p.add(i * size::<DT>()));
                v.write(self.values[r].as_mut_ptr().add(i));
                let largest = self.largest.as_mut_ptr().add(i);
                let before = if r == 0 {
                    V::splat(0)
                } else {
                    V::read(largest)
                };
                before.umax(abs(v)).write(largest);
            }
        }
    }
}
