//! Memory that a thread packs operands into.

/// Memory aligned to a cache line that grows when it must.
#[derive(Default)]
pub struct Buffer {
    data: Vec<Line>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Buffer {
    /// At least `bytes` bytes; what they held is lost when it grows.
    pub fn reserve(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(64);
        if self.data.len() < lines {
            self.data = Vec::with_capacity(lines);
            self.data.resize(lines, Line([0; 64]));
        }
        self.data.as_mut_ptr().cast()
    }
}

/// What a buffer of packed rows of A holds, so that the next tile of the same rows need not pack them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Address of the operand's codes.
    pub codes: usize,
    pub first_row: usize,
    pub rows: usize,
    pub first_block: usize,
    pub blocks: usize,
}

/// A thread's packing buffers: under 2 MiB in all.
#[derive(Default)]
pub struct Packing {
    pub a: Buffer,
    pub b: Buffer,
    pub held: Option<Held>,
}

impl Packing {
    /// Forgets what is packed: the caller's memory may have changed since.
    pub fn forget(&mut self) {
        self.held = None;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        64 * (self.a.data.len() + self.b.data.len())
    }
}
