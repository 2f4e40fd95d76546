//! A block's shared memory with, for every byte, who wrote and who read it
//! last: uninitialised reads and races are found by vector clocks.

/// Bytes at the start of shared memory that the system keeps (compute
/// capability 9.0 and later); also keeps address 0 from being valid.
pub const RESERVED: u32 = 1024;

/// One access by one actor: actor << 20 | clock. 0 means none.
pub type Epoch = u32;
pub const CLOCK_BITS: u32 = 20;
pub const CLOCK_MAX: u32 = (1 << CLOCK_BITS) - 1;

#[derive(Clone, Copy, Default)]
pub struct Cell {
    pub w: Epoch,
    /// Last two readers since the last write.
    pub r: [Epoch; 2],
}

/// What each actor knows of every other: the clock up to which its accesses
/// happened before now.
#[derive(Clone, Default, Debug)]
pub struct Clocks(pub Vec<u32>);

impl Clocks {
    #[inline]
    pub fn get(&self, actor: u32) -> u32 {
        self.0.get(actor as usize).copied().unwrap_or(0)
    }
    pub fn set(&mut self, actor: u32, c: u32) {
        let i = actor as usize;
        if self.0.len() <= i {
            self.0.resize(i + 1, 0);
        }
        self.0[i] = self.0[i].max(c);
    }
    pub fn join(&mut self, o: &Clocks) {
        if self.0.len() < o.0.len() {
            self.0.resize(o.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&o.0) {
            *a = (*a).max(*b);
        }
    }
    /// Did the access happen before?
    #[inline]
    pub fn knows(&self, e: Epoch) -> bool {
        let c = e & CLOCK_MAX;
        e == 0 || c == CLOCK_MAX || c <= self.get(e >> CLOCK_BITS)
    }
}

#[inline]
pub fn epoch(actor: u32, clock: u32) -> Epoch {
    (actor << CLOCK_BITS) | clock.min(CLOCK_MAX)
}

/// Why an access is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conflict {
    /// Nobody wrote this byte.
    Unwritten(u32),
    /// The other access (an epoch) is not ordered with this one.
    ReadWrite(u32, Epoch),
    WriteRead(u32, Epoch),
    WriteWrite(u32, Epoch),
}

pub struct Shared {
    pub mem: Vec<u8>,
    pub cells: Vec<Cell>,
}

impl Shared {
    pub fn new(size: u32) -> Shared {
        let n = size as usize;
        Shared { mem: vec![0xA5; n + 16], cells: vec![Cell::default(); n] }
    }

    pub fn reset(&mut self) {
        self.mem.fill(0xA5);
        self.cells.fill(Cell::default());
    }

    pub fn len(&self) -> u32 {
        self.cells.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Record a read by `me`, which knows `vc`.
    pub fn read(&mut self, off: u32, n: u32, me: Epoch, vc: &Clocks, races: bool) -> Option<Conflict> {
        for (i, c) in self.cells[off as usize..(off + n) as usize].iter_mut().enumerate() {
            if c.w == 0 {
                return Some(Conflict::Unwritten(off + i as u32));
            }
            if c.w >> CLOCK_BITS != me >> CLOCK_BITS && races && !vc.knows(c.w) {
                return Some(Conflict::WriteRead(off + i as u32, c.w));
            }
            if c.r[0] >> CLOCK_BITS == me >> CLOCK_BITS {
                c.r[0] = me;
            } else {
                c.r[1] = c.r[0];
                c.r[0] = me;
            }
        }
        None
    }

    /// Record a write.
    pub fn write(&mut self, off: u32, n: u32, me: Epoch, vc: &Clocks, races: bool) -> Option<Conflict> {
        for (i, c) in self.cells[off as usize..(off + n) as usize].iter_mut().enumerate() {
            let a = me >> CLOCK_BITS;
            if races {
                if c.w >> CLOCK_BITS != a && !vc.knows(c.w) {
                    return Some(Conflict::WriteWrite(off + i as u32, c.w));
                }
                for r in c.r {
                    if r >> CLOCK_BITS != a && !vc.knows(r) {
                        return Some(Conflict::ReadWrite(off + i as u32, r));
                    }
                }
            }
            *c = Cell { w: me, r: [0; 2] };
        }
        None
    }
}
